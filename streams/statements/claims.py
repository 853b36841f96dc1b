"""Claims, and which two of them cannot both hold: same frame first, contradiction second."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from palimpsest.streams.statements.places import apart, is_known

SAYS: Final = "says"
"""The relation of a whole statement: its frame is all it says, its value is empty."""

Words = tuple[str, ...]


class Claim(NamedTuple):
    """One thing that a statement claims.

    `frame`: whom it is about and all that must be the same before two claims can clash, folded.
    `value`: what stands in the frame's gap; empty in a claim that denies means: whatever it is.
    `qualifiers`: habits and durations ("every morning"), which a claim may have more or fewer of.
    `is_name`: the value is written as a name. `is_news`: it tells that this came to be ("moved
    to", "now").
    """

    relation: str
    frame: Words
    value: Words = ()
    holds: bool = True
    qualifiers: frozenset[str] = frozenset()
    is_name: bool = False
    is_news: bool = False


class Claims(NamedTuple):
    """What a statement claims: of what stands (`held`), and as news of what is known (`told`).

    What is known must be read more carefully than what is new: a statement that tells more than
    the claim would lose the rest if it were replaced, and a past event stays true.
    """

    held: tuple[Claim, ...] = ()
    told: tuple[Claim, ...] = ()


NOTHING: Final = Claims()


def incompatible(new: Claim, known: Claim) -> bool:
    """Whether `known` cannot stand once `new` is true."""
    if new.relation != known.relation or new.frame != known.frame:
        return False
    if new.holds != known.holds:
        yes, no = (new, known) if new.holds else (known, new)
        return no.value in ((), yes.value) and no.qualifiers <= yes.qualifiers
    if not new.holds or new.value == known.value:
        return False
    excludes = _EXCLUDES.get(new.relation, _different)
    # When it came to be is no part of what holds.
    same_when = new.is_news or new.qualifiers == known.qualifiers
    return new.relation != SAYS and same_when and excludes(new, known)


def _different(new: Claim, known: Claim) -> bool:
    """Another value, neither of which only tells more than the other."""
    return not _tells_more(new.value, known.value)


def _tells_more(one: Words, other: Words) -> bool:
    return set(one) <= set(other) or set(other) <= set(one)


def _elsewhere(new: Claim, known: Claim) -> bool:
    """Another home. A district lies in a city: where the list of places does not know, only a
    move between two unknown names says that the first was left."""
    found = apart(" ".join(new.value), " ".join(known.value))
    if found != "unknown":
        return found == "apart"
    names = new.is_name and known.is_name
    return new.is_news and names and _unknown(new) and _unknown(known)


def _unknown(claim: Claim) -> bool:
    return not is_known(" ".join(claim.value))


def _other_workplace(new: Claim, known: Claim) -> bool:
    """Two names, or something that is told to be new."""
    if _tells_more(new.value, known.value):
        return False
    return (new.is_name and known.is_name) or (new.is_news and new.is_name == known.is_name)


def _replaced(new: Claim, known: Claim) -> bool:
    """What one may have several of: only where the new is told to be new."""
    return new.is_news and not _tells_more(new.value, known.value)


def _other_name(new: Claim, known: Claim) -> bool:
    """Two values of one sort: both written as names, or neither."""
    return new.is_name == known.is_name and not _tells_more(new.value, known.value)


def _swapped(new: Claim, known: Claim) -> bool:
    """("tea", "over", "coffee") after ("coffee", "over", "tea")."""
    one, other = " ".join(new.value).split(" over "), " ".join(known.value).split(" over ")
    return one == other[::-1]


_NUMBER: Final = re.compile(r"[-+\d.,:/]*\d[-+\d.,:/]*")
_DAYS: Final = (
    "monday tuesday wednesday thursday friday saturday sunday montag dienstag mittwoch donnerstag"
    " freitag samstag sonntag 月曜日 火曜日 水曜日 木曜日 金曜日 土曜日 日曜日"
)
_MONTHS: Final = (
    "january february march april may june july august september october november december"
    " januar februar märz mai juni juli oktober dezember"
)
_SORTS: Final = dict.fromkeys(_DAYS.split(), "day") | dict.fromkeys(_MONTHS.split(), "month")


def _other_figure(new: Claim, known: Claim) -> bool:
    """Two figures of one unit, two days, two dates; words beside them must be the same."""
    return (
        _shape(new.value) == _shape(known.value)
        and _shape(new.value) != new.value
        and set(new.value) != set(known.value)
    )


def _shape(value: Words) -> Words:
    return tuple("#" if _NUMBER.fullmatch(word) else _SORTS.get(word, word) for word in value)


_EXCLUDES: Final[Mapping[str, Callable[[Claim, Claim], bool]]] = {
    "residence": _elsewhere,
    "employer": _other_workplace,
    "occupation": _replaced,
    "spouse": _other_name,
    "favourite": _other_name,
    "preference": _swapped,
    "attribute": _other_figure,
}
"""Relations of which one holds at a time, and what makes two values different. A relation that is
not here is one of opposite words, and any other value is another."""
