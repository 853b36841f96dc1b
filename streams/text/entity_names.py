"""Whether two names may denote one entity: what the names show, and what is known of both.

Names alone prove nothing: two people are called Anna. Two entities are proposed as one when their
names could be those of one and both have something specific in common, and nothing speaks against
it. A person decides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias, cast

from anyascii import anyascii

from palimpsest.streams.text.tables import read_table

NameEvidence = Literal["equal", "initials", "nickname", "part", "spelling"]
"""How two names are alike: equal in Latin script, without accents and punctuation; one has
initials of the other; a short form of a given name; all words of one are in the other; one
character of a word of five or more differs."""

_WORD: Final = re.compile(r"[a-z0-9]+")
_MEN: Final = frozenset({"mr", "sir", "herr", "sr"})
_WOMEN: Final = frozenset({"mrs", "ms", "miss", "dame", "frau", "sra"})
_TITLES: Final = (
    _MEN | _WOMEN | {"dr", "prof", "professor", "inc", "ltd", "gmbh", "llc", "as", "the"}
)
_SMALL: Final = frozenset("of and for the de la und der".split())
_Alike: TypeAlias = Callable[[str, str], bool]
_SPELLED: Final = 5
_MOST_WORDS: Final = 6
"""Longer names are compared as a whole only."""

_ONE_AT_A_TIME: Final = re.compile(
    r"\b(?:born (?:in|on)|birthday|lives? in|married to|husband|wife|mother|father"
    r"|works? (?:at|for)|employed by|located in|capital of|headquartered in|founded in|made by"
    r"|written by|age)\b"
)
"""Relations of which an entity has one at a time: other ends speak against one entity."""
LEAST_SCORE: Final = 0.25
"""A relation to an entity that eight others are related to as well."""
_VAGUE_TYPES: Final = frozenset({"", "unknown", "extracted"})


@dataclass(frozen=True, slots=True)
class KnownEntity:
    """What is known of an entity: all its names, its type, and its relations as (relation, whether
    it starts here, the other entity)."""

    names: tuple[str, ...]
    type: str
    relations: frozenset[tuple[str, bool, str]]


@dataclass(frozen=True, slots=True)
class MergeEvidence:
    """Why two entities may be one. `shared` are the relations that both have, the most specific
    first; `score` is the sum of their weights, 1 for an entity that only these two are related
    to."""

    names: NameEvidence
    shared: tuple[tuple[str, bool, str], ...]
    score: float


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name in lower-case Latin script, without titles and legal forms."""
    words = _all_words(name)
    return tuple(word for word in words if word not in _TITLES) or tuple(words)


def _all_words(name: str) -> list[str]:
    return _WORD.findall(anyascii(name).lower().replace("'", "").replace(".", " "))


@cache
def _long_forms() -> Mapping[str, frozenset[str]]:
    """The given names that a word may stand for, itself included."""
    listed = cast("dict[str, list[str]]", read_table(__name__, "nicknames.toml"))
    found: dict[str, set[str]] = {}
    for name, short_forms in listed.items():
        for word in (name, *short_forms):
            found.setdefault(word, {word}).add(name)
    return {word: frozenset(names) for word, names in found.items()}


def name_evidence(one: str, other: str) -> NameEvidence | None:
    """How two names are alike; None where they are not."""
    a, b = words_of(one), words_of(other)
    titles = {*_all_words(one), *_all_words(other)}
    if not a or not b or not (titles.isdisjoint(_MEN) or titles.isdisjoint(_WOMEN)):
        return None
    if sorted(a) == sorted(b) or "".join(a) == "".join(b):
        return "equal"
    short, long = sorted((a, b), key=lambda words: (len(words), len("".join(words))))
    if len(long) > _MOST_WORDS:
        return None
    if _is_acronym(short, long) or _pair_up(short, long, _is_initial):
        return "initials"
    if _pair_up(short, long, _is_short_form):
        return "nickname"
    if {*short} < {*long} and any(len(word) > 1 for word in short):
        return "part"
    if len(short) == len(long) and _pair_up(short, long, _is_misspelled):
        return "spelling"
    return None


def _is_acronym(short: Sequence[str], long: Sequence[str]) -> bool:
    """AWS of Amazon Web Services; also with small words left out, as in MIT."""
    if len(short) != 1 or len(long) < 2 or len(short[0]) < 2:
        return False
    initials = "".join(word[0] for word in long)
    return short[0] in (initials, "".join(word[0] for word in long if word not in _SMALL))


def _pair_up(short: Sequence[str], long: Sequence[str], alike: _Alike) -> bool:
    """Whether every word of the shorter name is equal to one of the other in the same order, or is
    `alike`, at least one of them so, and a whole word is left to tell them by."""
    place, differing, whole = 0, 0, 0
    for word in short:
        while place < len(long) and long[place] != word and not alike(word, long[place]):
            place += 1
        if place == len(long):
            return False
        differing += long[place] != word
        whole += long[place] == word and len(word) > 1
        place += 1
    return differing > 0 and (whole > 0 or (alike is not _is_initial and len(long) <= 2))


def _is_initial(one: str, other: str) -> bool:
    return 1 in (len(one), len(other)) and one[0] == other[0]


def _is_short_form(one: str, other: str) -> bool:
    forms = _long_forms()
    return not forms.get(one, frozenset()).isdisjoint(forms.get(other, ()))


def _is_misspelled(one: str, other: str) -> bool:
    """Whether one character differs, is missing, or two are exchanged."""
    short, long = sorted((one, other), key=len)
    if len(short) < _SPELLED or len(long) - len(short) > 1:
        return False
    start = next(
        (i for i, pair in enumerate(zip(short, long, strict=False)) if len({*pair}) > 1), len(short)
    )
    rest, longer = short[start:], long[start:]
    if len(short) == len(long):
        return rest[1:] == longer[1:] or (rest[:2] == longer[1::-1] and rest[2:] == longer[2:])
    return rest == longer[1:]


def merge_evidence(
    one: KnownEntity, other: KnownEntity, degrees: Mapping[str, int]
) -> MergeEvidence | None:
    """Why these two may be one entity; None where nothing specific says so, or something speaks
    against it: another type, a relation between them, or different ends of a relation of which an
    entity has one at a time. `degrees`: with how many entities each entity is related."""
    types = {one.type, other.type} - _VAGUE_TYPES
    if len(types) > 1 or _is_against(one, other):
        return None
    pairs = ((a, b) for a in one.names for b in other.names)
    names = next((found for a, b in pairs if (found := name_evidence(a, b)) is not None), None)
    if names is None:
        return None
    weights = {
        shared: 1 / (1 + math.log2(max(1, degrees.get(shared[2], 2) - 1)))
        for shared in one.relations & other.relations
    }
    score = sum(weights.values())
    if score < LEAST_SCORE:
        return None
    shared = tuple(sorted(weights, key=lambda each: (-weights[each], each)))
    return MergeEvidence(names, shared, score)


def _is_against(one: KnownEntity, other: KnownEntity) -> bool:
    own = {*one.names, *other.names}
    if any(end in own for _, _, end in (*one.relations, *other.relations)):
        return True  # one of them is told to do something to the other
    ends: tuple[dict[str, set[str]], ...] = ({}, {})
    for of_one, entity in zip(ends, (one, other), strict=True):
        for relation, starts_here, end in entity.relations:
            if starts_here and _ONE_AT_A_TIME.search(relation.replace("_", " ")):
                of_one.setdefault(relation, set()).add(end)
    return any(ends[0][key].isdisjoint(ends[1][key]) for key in ends[0].keys() & ends[1].keys())
