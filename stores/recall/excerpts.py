"""The parts of a long text that matter to a question: its lead and its best sentences. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence, Set
from itertools import chain
from typing import Final

ELLIPSIS: Final = "…"
LEAD: Final = 60
"""Characters of the lead, which then extends to the end of the sentence: less does not show the
subject of a turn."""
LONGEST: Final = 160
"""Maximum characters of a sentence that is not divided."""
SLACK: Final = 1.25
"""A text longer than requested by no more than this factor stays whole."""
MOST: Final = 20_000
"""Maximum characters of a text that are read; the rest is ignored."""
_END: Final = re.compile(r"(?<=\D[.!?…])\s+|(?<=[。！？])|\n\s*|\s(?=\[image: )")
_SPACE: Final = re.compile(r"\s+")

Stems = Callable[[str], Set[str]]


def folded(text: str) -> str:
    """Returns the text on one line, so that it opens no section of its own."""
    return _SPACE.sub(" ", text).strip()


def excerpt(text: str, characters: int, asked: Set[str], stems: Stems) -> str:
    """Returns the text on one line, about `characters` long: the lead, then the sentences with most
    of the words `asked`, in their order, with "…" for each omission. The best of them is included
    even if it is longer. Words that occur in fewer of the sentences count for more."""
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
    """Returns the sentences, each on one line; splits a long one, between words if it has any."""
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
