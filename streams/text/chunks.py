"""A long text as chunks that overlap, cut at the ends of sentences where one is near."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from palimpsest.schemas.normal_forms import storage_content

NEAR = 4
"""A cut is looked for in the last part of this many of a chunk."""
LONGEST_CLUSTER = 64
"""Characters that are taken for one grapheme at most: what goes on longer is cut all the same."""

_PARAGRAPH = re.compile(r"\n[^\S\n]*\n")
_SENTENCE = re.compile(
    r"""[.!?…]+["'”’»)\]]*(?=\s)   # with a space behind: no number, no address
    |[。！？｡．][」』）”’]*          # scripts that write none
    |[।؟۔]|\n""",
    re.VERBOSE,
)
_SPACE = re.compile(r"\s")
_JOINERS = "\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_TAGS = range(0xE0020, 0xE0080)
_FLAGS = range(0x1F1E6, 0x1F200)


def chunks(text: str, size: int, overlap: int) -> list[str]:
    """The text in storage form, in pieces of at most `size` characters, each but the first
    beginning up to `overlap` characters before the one before ended, or at the grapheme that is
    there; none is empty. `overlap` is at most half of `size`."""
    text = unicodedata.normalize("NFC", text.replace("\0", "")).strip()
    found: list[str] = []
    start = 0
    while start < len(text):
        end = _end(text, start, size)
        stored = storage_content(text[start:end])
        if stored:
            found.append(stored)
        if end >= len(text):
            break
        start = max(_start(text, end, overlap), start + 1)
    return found


def batches(found: Sequence[str], characters: int) -> list[tuple[int, tuple[str, ...]]]:
    """Successive chunks as groups of up to so many characters, each with the number of its first
    chunk; a chunk that is longer is alone."""
    groups: list[tuple[int, tuple[str, ...]]] = []
    first, length = 0, 0
    for number, chunk in enumerate(found):
        if number > first and length + len(chunk) > characters:
            groups.append((first, tuple(found[first:number])))
            first, length = number, 0
        length += len(chunk)
    return [*groups, (first, tuple(found[first:]))] if found else []


def _end(text: str, start: int, size: int) -> int:
    """Where the chunk that begins at `start` ends: after the last paragraph, sentence or word that
    ends near its greatest length, else between two graphemes."""
    most = start + size
    if most >= len(text):
        return len(text)
    near = most - size // NEAR
    for ending in (_PARAGRAPH, _SENTENCE, _SPACE):
        cuts = [match.end() for match in ending.finditer(text, near, most)]
        if cuts:
            return cuts[-1]
    return _between_graphemes(text, most, start + 1)


def _start(text: str, end: int, overlap: int) -> int:
    """Where the next chunk begins: with a sentence or a word of the overlap."""
    if not overlap:
        return end
    least = end - overlap
    for ending in (_SENTENCE, _SPACE):
        found = ending.search(text, least, end)
        if found is not None and found.end() < end:
            return found.end()
    return _between_graphemes(text, least, least - LONGEST_CLUSTER)


def _between_graphemes(text: str, place: int, least: int) -> int:
    """The nearest place before which a grapheme ends, at or before `place`."""
    lowest = max(least, place - LONGEST_CLUSTER)
    for here in range(place, lowest - 1, -1):
        if not _is_inside(text, here):
            return here
    return place


def _is_inside(text: str, place: int) -> bool:
    """Whether a cut at the place would part what is shown as one character."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if after in _JOINERS or before in _JOINERS or unicodedata.category(after) in ("Mn", "Me", "Mc"):
        return True
    code = ord(after)
    if code in _SKIN_TONES or code in _TAGS or (before == "\r" and after == "\n"):
        return True
    if code in _FLAGS and ord(before) in _FLAGS:
        run = place
        while run > 0 and ord(text[run - 1]) in _FLAGS:
            run -= 1
        return (place - run) % 2 == 1
    return _is_jamo(before) and _is_jamo(after)


def _is_jamo(character: str) -> bool:
    return 0x1100 <= ord(character) <= 0x11FF
