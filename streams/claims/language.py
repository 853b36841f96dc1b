"""English as data: the words, expressions and tables of `english.toml`, read once. Pure.

An expression may name others, and lists of words, in braces; see the file.
"""

from __future__ import annotations

import pkgutil
import re
import tomllib
from functools import cache
from typing import Final, Literal, TypedDict, cast


class English(TypedDict):
    """What `english.toml` holds."""

    rows: list[list[str]]
    kinds: dict[str, str]
    favourites: list[str]
    written: list[tuple[str, str]]
    first_person: list[tuple[str, str]]
    wordings: list[tuple[str, str]]
    bare: dict[str, str]
    headings: dict[str, str]
    frames: dict[str, str]
    words: dict[str, str]
    patterns: dict[str, str]


def _read(file: Literal["english.toml", "places.toml"]) -> dict[str, str]:
    return tomllib.loads((pkgutil.get_data(__name__, file) or b"").decode())


ENGLISH: Final = cast("English", _read("english.toml"))
PLACES: Final = _read("places.toml")
_BREAK: Final = re.compile(r"(?:\A|\n) {4,}|\n")
_FLAGGED: Final = re.compile(r"\A\(\?([ims]+)\)(.*)", re.DOTALL)
_NAMED: Final = re.compile(r"\{([a-z_]+(?:\+[a-z_]+)*)\}")


def words(name: str) -> list[str]:
    """A list of words, in the order of the file."""
    return ENGLISH["words"][name].split()


@cache
def word_set(name: str) -> frozenset[str]:
    return frozenset(words(name))


@cache
def spaced_set(name: str) -> frozenset[str]:
    """A list in which some are of several words."""
    return frozenset(word.replace("_", " ") for word in words(name))


def joined(text: str) -> str:
    """The text of an expression, which may be written over several lines."""
    return _BREAK.sub("", text)


@cache
def fragment(name: str) -> str:
    """The text of an expression, with what it names put in; of words, the longest first."""
    text = ENGLISH["patterns"].get(name)
    if text is not None:
        text = _NAMED.sub(lambda match: fragment(match[1]), joined(text))
        return _FLAGGED.sub(r"(?\1:\2)", text)
    listed: frozenset[str] = frozenset().union(*map(spaced_set, name.split("+")))
    return "|".join(sorted(listed, key=lambda word: (-len(word), word)))


def expression(name: str) -> re.Pattern[str]:
    return re.compile(fragment(name))


def rewritings(listed: list[tuple[str, str]]) -> list[tuple[re.Pattern[str], str]]:
    """What is put for what, each an expression and a template."""
    return [(re.compile(joined(found)), written) for found, written in listed]


FAVOURITES: Final = tuple(
    frozenset(map(str.strip, listed.split(","))) for listed in ENGLISH["favourites"]
)
"""Things of which none is a kind of another."""
