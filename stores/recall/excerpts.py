"""What matters of a long text to a question: its lead and its best sentences. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence, Set
from itertools import chain
from typing import Final

ELLIPSIS: Final = "…"
LEAD: Final = 60
"""Characters of the lead, and then to the end of the sentence: less does not show what a turn is
about."""
LONGEST: Final = 160
"""Characters of a sentence that is not divided."""
SLACK: Final = 1.25
"""A text that is longer than wanted by no more than this stays whole."""
MOST: Final = 20_000
"""Characters of a text that are read: what follows is left out."""
_END: Final = re.compile(r"(?<=\D[.!?…])\s+|(?<=[。！？])|\n\s*|\s(?=\[image: )")
_SPACE: Final = re.compile(r"\s+")

Stems = Callable[[str], Set[str]]


def folded(text: str) -> str:
    """The text on one line, so that it opens no section of its own."""
    return _SPACE.sub(" ", text).strip()


def excerpt(text: str, characters: int, asked: Set[str], stems: Stems) -> str:
    """The text on one line, about `characters` long: the lead, then the sentences that hold most
    of what is `asked`, in their order, with "…" for what is left out. The best of them is there
    even where it is longer. What fewer of the sentences hold counts for more."""
    whole = folded(text)
    if len(whole) <= characters * SLACK:
        return whole
    sentences = _sentences(text)
    kept = {0}
    length = len(sentences[0])
    while length < LEAD and len(kept) < len(sentences):
        length += 1 + len(sentences[len(kept)])
        kept.add(len(kept))
    held = [asked & stems(sentence) for sentence in sentences]
    often = Counter(chain.from_iterable(held))
    hits = [sum(1 / often[stem] for stem in sorted(each)) for each in held]
    best = max(hits[number] for number in kept)
    for number in sorted(range(len(sentences)), key=lambda number: (-hits[number], number)):
        fits = length + len(sentences[number]) < characters
        if number not in kept and (fits or hits[number] > best):
            kept.add(number)
            length += 1 + len(sentences[number])
            best = max(best, hits[number])
    return _joined(sentences, kept, len(text) > MOST)


def _joined(sentences: Sequence[str], kept: Set[int], is_cut: bool) -> str:
    parts: list[str] = []
    before = -1
    for number in sorted(kept):
        if number != before + 1:
            parts.append(ELLIPSIS)
        parts.append(sentences[number])
        before = number
    if before != len(sentences) - 1 or is_cut:
        parts.append(ELLIPSIS)
    return " ".join(parts)


def _sentences(text: str) -> list[str]:
    """The sentences, each on one line; a long one in parts, between words where it has any."""
    found: list[str] = []
    for sentence in _END.split(text[:MOST]):
        rest = folded(sentence)
        while len(rest) > LONGEST:
            space = rest.rfind(" ", LONGEST // 2, LONGEST)
            end = LONGEST if space < 0 else space
            found.append(rest[:end].rstrip())
            rest = rest[end:].lstrip()
        if rest:
            found.append(rest)
    return found or [""]
