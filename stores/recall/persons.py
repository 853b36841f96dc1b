"""Which of several persons a question is about, and whom a statement begins with, by all words of
their names: "Dr Lee" is not Dr Kim, and user_2 not user_1."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

TITLES: Final = frozenset(
    "dr doctor prof professor mr mrs ms miss sir madam dame herr frau fr sr sra".split()
)
"""What precedes a name, and belongs to many."""
_WORD: Final = re.compile(r"\w+")

Words = tuple[str, ...]


def persons_in(question: str, speakers: Sequence[str]) -> list[str]:
    """The speakers whom the question names, in their order. A full name goes before a part of one,
    and a longer one before one that it contains. A part that several share names all of them; of a
    name with a number no part names anybody."""
    asked = _words(question)
    places: dict[str, list[int]] = {}
    for place, word in enumerate(asked):
        places.setdefault(word, []).append(place)
    full = [
        (begin, begin + len(words), who)
        for who in speakers
        for words in _full(who)
        for begin in places.get(words[0], ())
        if asked[begin : begin + len(words)] == words
    ]
    named: set[str] = set()
    reach, around = 0, (0, 0)
    # A name lies within a longer one if one that begins before it, or with it, reaches as far.
    for begin, end, who in sorted(full, key=lambda each: (each[0], -each[1])):
        if end > reach or (begin, end) == around:
            named.add(who)
        if end > reach:
            reach, around = end, (begin, end)
    if not named:
        # The first and the last word of a name may each stand for it.
        names = {who: _unnumbered(who) for who in speakers}
        parts = {who: len({*n[:1], *n[-1:]}.intersection(asked)) for who, n in names.items()}
        most = max(parts.values(), default=0)
        named = {who for who, count in parts.items() if most and count == most}
    return [who for who in speakers if who in named]


def holders_of(text: str, speakers: Sequence[str]) -> set[str]:
    """The speakers with whose name the statement begins: several where they share that name."""
    words = _words(text)
    found = {
        who: max((len(each) for each in _full(who) if words[: len(each)] == each), default=0)
        for who in speakers
    }
    most = max(found.values(), default=0)
    if most:
        return {who for who, count in found.items() if count == most}
    first = _without_title(words)[:1]
    return {who for who in speakers if first and _unnumbered(who)[:1] == first}


def _words(text: str) -> Words:
    return tuple(_WORD.findall(text.casefold()))


def _full(who: str) -> Iterable[Words]:
    """The name as it is, and without its title."""
    words = _words(who)
    plain = _without_title(words)
    return {each for each in (words, plain) if each}


def _without_title(words: Words) -> Words:
    return tuple(word for word in words if word not in TITLES)


def _unnumbered(who: str) -> Words:
    """The words of a name without its title; none of one with a number, which is named in full."""
    words = _without_title(_words(who))
    return () if any(any(map(str.isdigit, word)) for word in words) else words
