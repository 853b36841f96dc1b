"""English as data: the words, expressions and tables of `english.toml`, read once. Pure."""

from __future__ import annotations

import re
from typing import Final, TypedDict, cast

from palimpsest.schemas.rows.enumerations import FactType
from palimpsest.streams.text.tables import Lexicon, joined, read_table


class SlotFacts(TypedDict, total=False):
    """What is known of the facts of a slot: see the file."""

    categories: list[str]
    type: FactType
    importance: int
    confidence: float


class English(TypedDict):
    """What `english.toml` holds."""

    rows: list[list[str]]
    kinds: dict[str, str]
    favourites: list[str]
    relations: list[tuple[str, str, str, str]]
    attributes: list[tuple[str, str, str, str]]
    written: list[tuple[str, str]]
    retold: list[tuple[str, str]]
    asked: list[tuple[str, str]]
    retold_first: list[tuple[str, str]]
    first_person: list[tuple[str, str]]
    wordings: list[tuple[str, str]]
    sides: list[tuple[str, str, str, str, str, str]]
    bare: dict[str, str]
    consumed: dict[str, str]
    matters: dict[str, str]
    breeds_called: dict[str, str]
    headings: dict[str, str]
    frames: dict[str, str]
    sought: dict[str, str]
    slots: dict[str, SlotFacts]
    words: dict[str, str]
    patterns: dict[str, str]


_LEXICON: Final = Lexicon(__name__, "english.toml")
ENGLISH: Final = cast("English", _LEXICON.tables)
PLACES: Final = cast("dict[str, str]", read_table(__name__, "places.toml"))
words = _LEXICON.words
word_set = _LEXICON.word_set
spaced_set = _LEXICON.spaced_set
fragment = _LEXICON.fragment
expression = _LEXICON.expression
filled = _LEXICON.filled


def rewritings(listed: list[tuple[str, str]]) -> list[tuple[re.Pattern[str], str]]:
    """What is put for what, each an expression and a template."""
    return [(re.compile(filled(joined(found))), written) for found, written in listed]


FAVOURITES: Final = tuple(
    frozenset(map(str.strip, listed.split(","))) for listed in ENGLISH["favourites"]
)
"""Things of which none is a kind of another."""
