"""Whether a statement tells of something that probably takes the place of what is known. Pure.

Wider than what `conflict` finds sure, and no denial as in `polarity`: another value of what most
people have one of at a time, told with "now"; a move to a place that is in no list; another number
of what is counted or measured. What is found here is for a person to judge.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from palimpsest.streams.claims.claim import Claim
from palimpsest.streams.claims.conflict import (
    CACHED_STATEMENTS,
    COUNTED,
    are_two_names,
    base_form,
    time_beside,
)
from palimpsest.streams.claims.grammar import claim_of
from palimpsest.streams.claims.language import word_set
from palimpsest.streams.claims.subjects import PLURALS
from palimpsest.streams.claims.values import apart, is_known, is_name
from palimpsest.streams.text.dates import MONTHS
from palimpsest.streams.text.entity_names import name_evidence

_ONE_AT_A_TIME: Final = word_set("one_at_a_time")
_ONE_PERSON: Final = word_set("one_person")
_NEVER_TWO: Final = frozenset(("boss", "husband", "wife"))
_LATELY: Final = re.compile(r" (?:now|again)$")
_MOVED: Final = re.compile(r" (?:moved|relocated) to ")
_NOW: Final = re.compile(r"(?i)\bnow\b|'s new employer is ")
_ALONGSIDE: Final = re.compile(
    r" (?:teaches|volunteers|volunteering|coaches|coaching) | (?:part|member) of | part-time"
    r"|\b(?:lesson|class|classes|course|workshop)s?\b"
)
"""What somebody does beside their work or studies, or as a part of them."""
_TITLE: Final = re.compile(r"(?i)^(?:dr|prof|mr|mrs|ms|miss)\b\.? ")
_MIN_SIMILAR: Final = 0.6
"""Of two names, from which they are hardly two: Frank and Dana are, Jon and John not."""
_NUMBER: Final = re.compile(r"\d[\d,.:]*")
_BIRTH: Final = re.compile(r" was born (?:in|on) ")
_AGE: Final = re.compile(
    r"(?P<holder>[^\W\d_].{0,60}) is (?P<age>\d{1,3})(?: years old)?"
    rf" \(as of (?P<month>(?i:{'|'.join(MONTHS)})) (?P<year>\d{{4}})\)[.!]?"
)
_NATIVE: Final = re.compile(r" (?:is from|is originally from|comes from) | born in ")


def succeeds(new: str, known: str) -> bool:
    """Whether `new` probably tells what came after `known`; both are about one holder."""
    one, other = _claim(new), _claim(known)
    if one is not None and other is not None and _follows(one, other):
        return True
    return _is_younger(new, known) or _is_born_otherwise(new, known)


def may_succeed(one: str, other: str) -> bool:
    """Whether either would take the place of the other, were it told with "now"."""
    claims = (_claim(one), _claim(other))
    return any(
        new is not None and known is not None and _follows(new._replace(is_news=True), known)
        for new, known in (claims, claims[::-1])
    )


def _follows(one: Claim, other: Claim) -> bool:
    if one.slot != other.slot or not (one.holds and other.holds):
        return False
    return one.holder.casefold() == other.holder.casefold() and (
        _is_next(one, other)
        or _is_moved(one, other)
        or _is_recounted(one, other)
        or _is_from_elsewhere(one, other)
        or _is_renamed(one, other)
    )


def is_single(statement: str) -> bool:
    """Whether the statement tells something that another one may take the place of."""
    claim = _claim(statement)
    if claim is None:
        return _BIRTH.search(statement) is not None
    return (
        _matter(claim) in _ONE_AT_A_TIME
        or claim.slot in ("home", "figure", "origin", "name", "age")
        or _last_word(claim.key) in _ONE_PERSON
        or _count(claim) is not None
    )


@lru_cache(CACHED_STATEMENTS)
def _claim(statement: str) -> Claim | None:
    """The claim that is all of the statement, with whether it is told with "now": what somebody
    "started" may go on beside what they did before."""
    plain, _ = time_beside(statement.rstrip(" .!"))
    without = _LATELY.sub("", plain)
    claim = claim_of(without)
    if claim is None or claim.qualified:
        return None
    return claim._replace(is_news=_NOW.search(plain) is not None or claim.key.startswith("new "))


def _matter(claim: Claim) -> str:
    return f"{claim.slot}_{claim.key}" if claim.key else claim.slot


def _last_word(text: str) -> str:
    return text.rpartition(" ")[2]


def _is_next(new: Claim, known: Claim) -> bool:
    """ "Studies law now", where "studies biology" is known; another boss, also without "now"."""
    relations = {_last_word(each.key) for each in (new, known)}
    if not new.is_news and not relations <= _NEVER_TWO:
        return False
    if new.slot in ("family", "people"):
        names = (new.value, known.value)
        return (
            len(relations) == 1
            and relations <= _ONE_PERSON
            and all(map(is_name, names))
            and are_two_names(
                *(_TITLE.sub("", name).casefold() for name in names), least=_MIN_SIMILAR
            )
        )
    if any(_ALONGSIDE.search(each.text) for each in (new, known)):
        return False
    matters = {_matter(new), _matter(known)}
    return len(matters) == 1 and matters <= _ONE_AT_A_TIME and _share_nothing(new, known)


def _share_nothing(new: Claim, known: Claim) -> bool:
    values = [{base_form(word) for word in each.value.casefold().split()} for each in (new, known)]
    return values[0].isdisjoint(values[1])


def _is_moved(new: Claim, known: Claim) -> bool:
    """A move between places of which one is in no list: one may still lie in the other. With "now"
    alone ("lives in Neukölln now") between places of which none is."""
    if new.slot != "home" or new.key or known.key:
        return False
    values = [each.value.casefold() for each in (new, known)]
    is_told = _MOVED.search(new.text) is not None
    return (is_told or (new.is_news and not any(map(is_known, values)))) and (
        is_name(new.value)
        and is_name(known.value)
        and not all(map(is_known, values))
        and are_two_names(*values)
    )


def _is_recounted(new: Claim, known: Claim) -> bool:
    """Another number of what somebody has, or of what is measured in one unit."""
    if new.slot == "figure":
        return (
            new.key == known.key
            and _NUMBER.sub("#", new.value) == _NUMBER.sub("#", known.value)
            and _NUMBER.findall(new.value) != _NUMBER.findall(known.value)
        )
    if new.slot not in ("pet", "family"):
        return False
    one, other = _count(new), _count(known)
    return one is not None and other is not None and one[1] == other[1] and one[0] != other[0]


def _count(claim: Claim) -> tuple[str, str] | None:
    """ "Two kids": how many, and of what; "one kid" is counted, "a kid" is not."""
    only = _ONE.fullmatch(claim.value)
    if only is not None:
        return only["one"], _MANY.get(only["what"], f"{only['what']}s")
    found = COUNTED.fullmatch(claim.value)
    if found is None or found[2] not in PLURALS:
        return None
    return found[1], "children" if found[2] == "kids" else found[2]


_ONE: Final = re.compile(r"(?P<one>one|1) (?P<what>[a-z]+)")
_MANY: Final = {"child": "children", "kid": "children", "puppy": "puppies"}


def _is_from_elsewhere(new: Claim, known: Claim) -> bool:
    if new.slot != "origin" or new.key or known.key:
        return False
    verbs = [_NATIVE.search(each.text) for each in (new, known)]
    one, other = verbs
    return (
        one is not None
        and other is not None
        and one.group() == other.group()
        and apart(new.value.casefold(), known.value.casefold())
    )


def _is_younger(new: str, known: str) -> bool:
    """A lower age that is told later: one of the two is wrong."""
    one, other = _AGE.fullmatch(new), _AGE.fullmatch(known)
    if one is None or other is None or one["holder"].casefold() != other["holder"].casefold():
        return False
    then = [(int(each["year"]), MONTHS.index(each["month"].casefold())) for each in (one, other)]
    return int(one["age"]) < int(other["age"]) and then[0] >= then[1]


def _is_born_otherwise(new: str, known: str) -> bool:
    """Another day, month or year of birth of one person."""
    (one, then), (other, before) = (time_beside(each.rstrip(" .!")) for each in (new, known))
    is_birth = one.endswith(" was born") and one.casefold() == other.casefold()
    return is_birth and any(a != b for a, b in zip(then, before, strict=False))


def _is_renamed(new: Claim, known: Claim) -> bool:
    """Another name, or another spelling, that is no short form of the known one."""
    if new.slot != "name" or new.key or known.key:
        return False
    return name_evidence(new.value, known.value) in (None, "spelling")
