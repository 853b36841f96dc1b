"""Whether a new statement ends what is known: by slot, or by denying it word for word. Pure.

A hit may overwrite a true memory and a miss keeps two statements of which the dates tell the
newer, so silence is preferred. Two statements compete only when each is one claim, taken whole, of
the same holder in the same slot of one value, and no other word stands in either: no condition,
time, place, frequency or reporter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from functools import lru_cache
from typing import Final

from palimpsest.streams.claims.addresses import is_other_attribute
from palimpsest.streams.claims.claim import Claim
from palimpsest.streams.claims.denial import CACHED_STATEMENTS, denies
from palimpsest.streams.claims.exclusion import COUNTED, Stated, excludes
from palimpsest.streams.claims.grammar import claim_of
from palimpsest.streams.text.dates import MONTHS

_ANYWHERE: Final = frozenset("is are was now just recently again has have been become 's".split())
_FRAMES: Final[Mapping[str, frozenset[str]]] = {
    "home": frozenset(
        "live lives living reside resides based moved relocated home in to back permanently out of"
        " from away".split()
    ),
    "work": frozenset(
        "work works working worked employed job started hired got left quit lost new a at for by my"
        " his her their".split()
    ),
    "occupation": frozenset("work works working as a an".split()),
    "relationship": frozenset(
        "married engaged divorced single widowed dating newly to in a with relationship got"
        " remarried broke up".split()
    ),
    "age": frozenset("years year old turned".split()),
    "birthday": frozenset("birthday born on the".split()),
    "name": frozenset("last name surname".split()),
    "diet": frozenset("a an eats eat eating became went turned".split()),
    "favourite": frozenset("favourite favorite the colour color".split()),
    "possession": frozenset("has have got sold my our his her their a an".split()),
    "count": frozenset("has have got".split()),
}
"""The words that may stand with a claim's holder, key and value: any other tells more."""
_EVENTS: Final = {"marriage": "relationship", "breakup": "relationship", "turned": "age"}
_DATED_SLOTS: Final = ("home", "work", "relationship", "possession")
_DATED: Final = re.compile(
    rf" (?:in|on|in the week of|on the weekend of|around) (?:(?P<month>{'|'.join(MONTHS)}) )?"
    r"(?P<year>\d{4})(?:-(?P<number>\d\d)-(?P<day>\d\d))?$"
)
_RECENT: Final = re.compile(
    r" (?:yesterday|today|recently|last (?:week|weekend|month)|this (?:week|month)|earlier this"
    r" month)$"
)
_AS_OF: Final = re.compile(r" \(as of [A-Z][a-z]+ \d{4}\)")
_LATELY: Final = re.compile(r" (?:now|again)[.!]?$")
_NOT_INSIDE: Final = re.compile(r" (?:near|outside|at|with|on) ")


def contradicts(new: str, known: str, known_on: date | None = None) -> bool:
    """Whether `known`, stated on `known_on`, cannot stand once `new` is true."""
    return denies(new, known) or is_other_attribute(new, known) or _competes(new, known, known_on)


def is_ambiguous(statement: str, others: Iterable[str]) -> bool:
    """Whether the first name with which the statement begins may be that of two people: one of
    `others` tells of a relative or a colleague of that name."""
    first = re.match(r"[^\W\d_]{1,40}(?=['’ ])", statement)
    if first is None or first[0].casefold() in ("the", "i", "my"):
        return False
    name = re.escape(first[0])
    another = re.compile(
        rf"['’]s (?:[\w-]{{1,30}} ){{1,3}}{name}\b|^{name}(?: from |,? (?:who|the|his|her|my)\b|"
        rf" \()"
    )
    return any(another.search(text) is not None for text in others)


def _competes(new: str, known: str, known_on: date | None) -> bool:
    one = _stated(new)
    other = None if one is None else _stated(known)
    if one is None or other is None or not other.claim.holds:
        return False
    if (one.slot, one.holder) != (other.slot, other.holder) or not _is_later(one.when, known_on):
        return False
    return excludes(one, other) if one.claim.holds else one.value == other.value


@lru_cache(CACHED_STATEMENTS)
def _stated(statement: str) -> Stated | None:
    """The claim that is all of the statement, where its slot has one value at a time."""
    claim = claim_of(statement)
    lately = _LATELY.search(statement) if claim is None else None
    if lately is not None:
        without = claim_of(statement[: lately.start()])
        claim = None if without is None else without._replace(is_news=True)
    slot = None if claim is None or claim.qualified else _slot_of(claim)
    if claim is None or slot is None:
        return None
    said = " ".join(
        _AS_OF.sub("", claim.text).replace("\u2019", "'").casefold().rstrip(".!").split()
    )
    recent = _RECENT.search(said)
    dated = recent or _DATED.search(said)
    if dated is not None:
        if slot not in _DATED_SLOTS:
            return None
        said = said[: dated.start()]
    holder, value = claim.holder.casefold(), claim.value.casefold()
    if not _is_all(said, slot, (holder, value, claim.key)):
        return None
    when = () if dated is None or recent else _date_of(dated)
    return Stated(slot, claim, holder, value, said, when)


def _slot_of(claim: Claim) -> str | None:
    """The slot of one value in which a claim competes."""
    if claim.slot == "event":
        return _EVENTS.get(claim.key)
    if claim.slot in ("pet", "family"):
        return "count" if COUNTED.fullmatch(claim.value) else None
    if claim.slot == "name" and claim.key != "last":
        return None
    if claim.slot == "home" and _NOT_INSIDE.search(claim.text.partition(claim.value)[0]):
        return None
    return claim.slot if claim.slot in _FRAMES else None


def _is_all(said: str, slot: str, parts: tuple[str, ...]) -> bool:
    """Whether nothing stands in the statement but the parts and the words of the slot's frame."""
    rest = _spaced(said)
    for part in parts:
        rest = rest.replace(_spaced(part), " ", 1)
    return all(word in _ANYWHERE or word in _FRAMES[slot] for word in rest.split())


def _spaced(text: str) -> str:
    return f" {text} ".replace("'s ", " 's ")


def _date_of(found: re.Match[str]) -> tuple[int, ...]:
    if found["day"]:
        return int(found["year"]), int(found["number"]), int(found["day"])
    if found["month"]:
        return int(found["year"]), MONTHS.index(found["month"]) + 1
    return (int(found["year"]),)


def _is_later(when: tuple[int, ...], known_on: date | None) -> bool:
    """Whether what happened `when` came after what was stated on a day; a year alone must be a
    later one, since it may mean its first day."""
    if not when:
        return True
    if known_on is None:
        return False
    day = (known_on.year, known_on.month, known_on.day)
    return when > day[:1] if len(when) == 1 else when >= day[: len(when)]
