"""What the vector of a long text by no person is made from.

An answer of an assistant is a page of advice. A vector of all of it is near to everything, and
takes ten times as long to make as that of a person's message.
"""

from __future__ import annotations

import re
from typing import Final

OUTLINE_CHARACTERS: Final = 320
"""Some 70 pieces of an embedding model's vocabulary, as in a person's message."""
LEAD_CHARACTERS: Final = 160
PART_CHARACTERS: Final = 16
"""Of a paragraph: what there is no room for is left out from the end."""

_PART: Final = re.compile(r"\s(?=(?:\d{1,3}[.)]|[-*+•–—]|#{1,6})\s)")
"""Where a paragraph begins that is an item of a list or has a heading: texts are stored without
their lines."""
_MARKUP: Final = re.compile(r"\*\*|__|`+|\|+|(?<!\S)(?:#{1,6}|-{3,}|={3,})(?!\S)")
"""Each sign of it is a piece of the vocabulary like a word, and says nothing."""


def outline(text: str) -> str:
    """How a long text begins and how each of its paragraphs does, without the signs of Markdown; a
    short one as it is."""
    if len(text) <= OUTLINE_CHARACTERS:
        return text
    found = _beginnings(text)
    return " ".join(_MARKUP.sub(" ", found).split()) or found


def _beginnings(text: str) -> str:
    first, *others = _PART.split(text)
    beginnings = [_beginning(first, LEAD_CHARACTERS if others else OUTLINE_CHARACTERS)]
    room = OUTLINE_CHARACTERS - len(beginnings[0])
    for number, part in enumerate(others):
        if room <= 0:
            break
        share = max(room // (len(others) - number), PART_CHARACTERS)
        beginnings.append(_beginning(part, share))
        room -= len(beginnings[-1]) + 1
    return " ".join(beginnings)


def _beginning(text: str, characters: int) -> str:
    """Whole words, unless the first one is longer than that."""
    return text if len(text) <= characters else text[:characters].rsplit(" ", 1)[0]
