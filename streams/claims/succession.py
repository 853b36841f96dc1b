"""Whether a statement tells of something that probably takes the place of what is known. Pure.

Wider than what `conflict` finds sure, and no denial as in `polarity`: another value of what most
people have one of at a time, told with "now", or of what hardly anybody has two of (a mother, a
school, an employer, a blood type); a move to a place that is in no list; another number of what is
counted or measured. What is found here is for a person to judge.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from palimpsest.streams.claims.claim import Claim
from palimpsest.streams.claims.conflict import (
    CACHED_STATEMENTS,
    COUNTED,
    base_form,
    split_date,
)
from palimpsest.streams.claims.exclusive import is_exclusive, is_other_value
from palimpsest.streams.claims.grammar import claim_of
from palimpsest.streams.claims.language import PLACES, spaced_set, word_set
from palimpsest.streams.claims.subjects import PLURALS
from palimpsest.streams.claims.values import apart, are_two_names, fits, is_city, is_known, is_name
from palimpsest.streams.text.dates import MONTHS
from palimpsest.streams.text.entity_names import name_evidence


def _places(listed: str) -> frozenset[str]:
    return frozenset(name.replace("_", " ") for name in PLACES[listed].split())


FOR_LONG: Final = re.compile(
    r"(?<= has )(\w.{1,80}?) (?:for (?:[\w ]{1,30}? )?(?:years?|months?|decades?|ages|long time)"
    r"|since (?:[A-Z][a-z]+ )?\d{4}|since (?:childhood|birth))$"
)
"""For how long it has been so limits it to nothing."""
_ONE_AT_A_TIME: Final = word_set("one_at_a_time")
_ONE_PERSON: Final = spaced_set("one_person")
_NEVER_TWO: Final = frozenset(("boss", "husband", "wife", "mother", "father"))
SAME_RELATION: Final = {
    **dict.fromkeys(("mom", "mum", "mama"), "mother"),
    **dict.fromkeys(("dad", "papa"), "father"),
}
_ONE_OF_THEM: Final = re.compile(
    r"(?:oldest|eldest|youngest) (?:brother|sister|son|daughter|child|kid)"
)
_ANOTHER: Final = frozenset(
    "step half foster biological birth adoptive adopted first second third old former late".split()
)
"""Who is called so may have another beside them: a mother beside a foster mother."""
_STATES: Final = word_set("states") - {"leo", "christian"}
_BEST_FRIEND: Final = "best friend"
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
_SCHOOL: Final = re.compile(
    r" (?:(?:studies|is studying|is an? (?:[a-z-]{1,20} )?student|is enrolled) at|is enrolled in"
    r"|goes to|is going to) (?:the )?(?P<at>[^,;]{2,60})$"
)
_WORKPLACE: Final = re.compile(
    r" (?:works|is working|is employed|has worked|has been working) (?:at|by) (?P<at>[^,;]{2,60})$"
)
_ANSWERED_IN: Final = re.compile(r" prefers answers in [A-Z][a-z]+[.!]?$")
_MAJOR: Final = "'s major is "
_NO_SCHOOLS: Final = word_set("no_schools")
_KINDS_OF_SCHOOL: Final = word_set("kinds_of_school")
_REGIONS: Final = _places("regions")
_TOWNS: Final = _places("towns")
_BLOOD_TYPE: Final = "blood type"
_BLOOD: Final = re.compile(r"(?:type )?(?P<group>ab|[abo0]) ?-?(?P<sign>[+\u2212-]|pos|neg)?[a-z]*")
_NUMBER: Final = re.compile(r"\d[\d,.:]*")
_ENDS_ON: Final = re.compile(r"'s [\w' -]{2,40} (?:ends|expires|runs out)(?: (?:in|on) |$)")
_BIRTH: Final = re.compile(r" was born (?:in|on) ")
_AGE: Final = re.compile(
    r"(?P<holder>[^\W\d_].{0,60}) is (?P<age>\d{1,3})(?: years old)?"
    rf" \(as of (?P<month>(?i:{'|'.join(MONTHS)})) (?P<year>\d{{4}})\)[.!]?"
)
_NATIVE: Final = re.compile(r" (?:is from|is originally from|comes from) | born in ")


def succeeds(new: str, known: str) -> bool:
    """Whether `new` probably tells what came after `known`; both are about one holder."""
    one, other = plain_claim(new), plain_claim(known)
    if one is not None and other is not None and _follows(one, other):
        return True
    return _is_younger(new, known) or _is_born_otherwise(new, known)


def may_succeed(one: str, other: str) -> bool:
    """Whether either would take the place of the other, were it told with "now"."""
    claims = (plain_claim(one), plain_claim(other))
    return any(
        new is not None and known is not None and _follows(new._replace(is_news=True), known)
        for new, known in (claims, claims[::-1])
    )


def _follows(one: Claim, other: Claim) -> bool:
    if not (one.holds and other.holds and one.holder.casefold() == other.holder.casefold()):
        return False
    if _is_other_school(one, other):
        return True
    return one.slot == other.slot and (
        _is_next(one, other)
        or _is_moved(one, other)
        or _is_other_home(one, other)
        or _is_other_blood(one, other)
        or is_other_value(one, other)
        or _is_recounted(one, other)
        or _is_from_elsewhere(one, other)
        or _is_renamed(one, other)
    )


def is_single(statement: str) -> bool:
    """Whether the statement tells something that another one may take the place of."""
    claim = plain_claim(statement)
    if claim is None:
        return _BIRTH.search(statement) is not None or _ENDS_ON.search(statement) is not None
    return (
        _matter(claim) in _ONE_AT_A_TIME
        or claim.slot in ("home", "origin", "name", "age")
        or is_exclusive(claim)
        or claim.key == _BLOOD_TYPE
        or _SCHOOL.search(claim.text) is not None
        or _is_of_one(claim)
        or _relation(claim) in _ONE_PERSON
        or _count(claim) is not None
        or _ONE_MORE.match(claim.value) is not None
    )


@lru_cache(CACHED_STATEMENTS)
def plain_claim(statement: str) -> Claim | None:
    """The claim that is all of the statement, with whether it is told with "now": what somebody
    "started" may go on beside what they did before."""
    plain, _ = split_date(statement.rstrip(" .!"))
    without = _LATELY.sub("", plain)
    stated = FOR_LONG.sub(r"\1", without)
    claim = claim_of(stated) or claim_of(without)
    if claim is None or (claim.qualified and stated == without):
        return None
    return claim._replace(is_news=_NOW.search(plain) is not None or claim.key.startswith("new "))


def _matter(claim: Claim) -> str:
    return f"{claim.slot}_{claim.key.replace(' ', '_')}" if claim.key else claim.slot


def _last_word(text: str) -> str:
    return text.rpartition(" ")[2]


def _is_next(new: Claim, known: Claim) -> bool:
    """ "Studies law now", where "studies biology" is known; another boss, also without "now"."""
    if not (new.is_news or (_is_of_one(new) and _is_of_one(known))):
        return False
    if new.slot in ("family", "people"):
        return _is_other_person(new, known)
    if not new.is_news and _matter(new) == "work":
        return _are_other_names(new, known)
    if any(_ALONGSIDE.search(each.text) for each in (new, known)):
        return False
    matters = {_matter(new), _matter(known)}
    return len(matters) == 1 and matters <= _ONE_AT_A_TIME and _share_nothing(new, known)


def _is_of_one(claim: Claim) -> bool:
    """Whether hardly anybody has two of it: another one is the next, also without "now"."""
    if claim.slot in ("family", "people"):
        return _relation(claim) in _NEVER_TWO or _ONE_OF_THEM.fullmatch(claim.key) is not None
    if claim.slot == "likes":
        return _ANSWERED_IN.search(claim.text) is not None
    if claim.slot == "possession":
        return f"'s {claim.key} is " in claim.text
    if _matter(claim) == "study":
        return _MAJOR in claim.text
    return _matter(claim) == "work" and _named_in(_WORKPLACE, claim) != ""


def _relation(claim: Claim) -> str:
    """The relation without adjectives, but for those that tell which person ("oldest sister")."""
    tells_which = not _ANOTHER.isdisjoint(claim.key.replace("-", " ").split())
    if tells_which or claim.key == _BEST_FRIEND or _ONE_OF_THEM.fullmatch(claim.key):
        return claim.key
    relation = _last_word(claim.key)
    return SAME_RELATION.get(relation, relation)


def _is_other_person(new: Claim, known: Claim) -> bool:
    relation, names = _relation(new), (new.value, known.value)
    if relation != _relation(known) or not all(map(is_name, names)):
        return False
    if relation not in _ONE_PERSON:
        if not (_is_of_one(new) and _is_of_one(known)):
            return False
        # Of one's own family hardly anybody changes, and many have two names.
        if name_evidence(*names) is not None or any(map(_is_no_given_name, names)):
            return False
    plain = (_TITLE.sub("", name).casefold() for name in names)
    return are_two_names(*plain, least=_MIN_SIMILAR)


def _is_no_given_name(text: str) -> bool:
    """Whether it is a surname, or what somebody is in capitals ("Capricorn")."""
    folded = text.casefold()
    return _TITLE.match(text) is not None or folded in _STATES or fits("meal", folded)


def _named_in(where: re.Pattern[str], claim: Claim) -> str:
    """The name of a school or an employer; empty where it has none, or it is not the only one."""
    found = where.search(split_date(claim.text.rstrip(".!"))[0])
    if found is None or _ALONGSIDE.search(claim.text) is not None:
        return ""
    name = _LATELY.sub("", found["at"])
    return name if is_name(name) and _NO_SCHOOLS.isdisjoint(name.casefold().split()) else ""


def _is_other_school(new: Claim, known: Claim) -> bool:
    """ "Studies at Yale", where "goes to Lincoln High" or "is a student at MIT" is known."""
    if not {new.slot, known.slot} <= {"study", "occupation"}:
        return False
    return _are_two([_named_in(_SCHOOL, each) for each in (new, known)], _KINDS_OF_SCHOOL)


def _are_other_names(new: Claim, known: Claim) -> bool:
    names = [_named_in(_WORKPLACE, each) for each in (new, known)]
    return not any(is_known(name.casefold()) for name in names) and _are_two(names, frozenset())


def _are_two(names: list[str], without: frozenset[str]) -> bool:
    """Whether neither name is missing, and they share no word but those, nor are they forms of
    one another ("MIT")."""
    names = [name.replace(" & ", " ").replace("&", "") for name in names]
    words = [{*name.casefold().split()} - without for name in names]
    return (
        all(words)
        and words[0].isdisjoint(words[1])
        and name_evidence(*names) is None
        and are_two_names(*(" ".join(sorted(each)) for each in words), least=_MIN_SIMILAR)
    )


def _is_other_blood(new: Claim, known: Claim) -> bool:
    if not new.key == known.key == _BLOOD_TYPE:
        return False
    one, other = (_BLOOD.fullmatch(each.value.casefold()) for each in (new, known))
    if one is None or other is None:
        return False
    signs = ["" if each["sign"] is None else each["sign"][0] for each in (one, other)]
    are_told = [sign.replace("p", "+").replace("n", "-") for sign in signs]
    differ = all(are_told) and are_told[0] != are_told[1]
    return differ or one["group"].replace("0", "o") != other["group"].replace("0", "o")


def _share_nothing(new: Claim, known: Claim) -> bool:
    values = [{base_form(word) for word in each.value.casefold().split()} for each in (new, known)]
    if all(_ANSWERED_IN.search(each.text) for each in (new, known)):
        return values[0] != values[1]
    return values[0].isdisjoint(values[1])


def _is_moved(new: Claim, known: Claim) -> bool:
    """A move between places of which one is in no list: one may still lie in the other. With "now"
    alone ("lives in Tromsø now") not from or to a country."""
    if new.slot != "home" or new.key or known.key:
        return False
    values = [each.value.casefold() for each in (new, known)]
    is_told = _MOVED.search(new.text) is not None
    return (
        (is_told or (new.is_news and not any(map(_is_country, values))))
        and not any(map(_is_region, values))
        and is_name(new.value)
        and is_name(known.value)
        and not all(map(is_known, values))
        and are_two_names(*values, least=_MIN_SIMILAR)
    )


def _is_country(place: str) -> bool:
    return is_known(place) and not is_city(place)


def _is_region(place: str) -> bool:
    """Whether towns lie in the place, or it is a part of one."""
    return place in _REGIONS or _PART_OR_WHOLE.search(place) is not None


_PART_OR_WHOLE: Final = re.compile(
    r",|\b(?:north|south|east|west|old town|upper|lower|greater)\b|\b(?:county|province|district"
    r"|region|borough|valley|island|hills?|heights|park|village|quarter|square|side|coast|slope"
    r"|bay)$"
)
"""In the name of what a town lies in, or of a part of one."""
_LIVES: Final = re.compile(r" (?:lives|is living|resides|has lived|has been living) in ")


def _is_other_home(new: Claim, known: Claim) -> bool:
    """Two towns, also without "now": neither is in a list, or each in one, so that neither is a
    part of the other as "Neukölln" is of Berlin."""
    if new.slot != "home" or new.key or known.key:
        return False
    values = [each.value.casefold() for each in (new, known)]
    if not all(_LIVES.search(each.text) and is_name(each.value) for each in (new, known)):
        return False
    if any(map(_is_region, values)):
        return False
    if new.value.isupper() or known.value.isupper():
        return False  # "LA" is in no list
    listed = [value in _TOWNS or is_city(value) for value in values]
    are_of_a_kind = all(listed) or not any(is_known(value) for value in values)
    return are_of_a_kind and are_two_names(*values, least=_MIN_SIMILAR)


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
    more = _ONE_MORE.fullmatch(new.value)
    if more is not None and other is not None:
        return _plural(more["what"]) == other[1]
    return one is not None and other is not None and one[1] == other[1] and one[0] != other[0]


def _count(claim: Claim) -> tuple[str, str] | None:
    """ "Two kids": how many, and of what; "one kid" is counted, "a kid" is not."""
    only = _ONE.fullmatch(claim.value)
    if only is not None:
        return _ORDINALS.get(only["one"], only["one"]), _plural(only["what"])
    found = COUNTED.fullmatch(claim.value)
    if found is None or found[2] not in PLURALS:
        return None
    return found[1], "children" if found[2] == "kids" else found[2]


def _plural(animal: str) -> str:
    return _MANY.get(animal, f"{animal}s")


_ORDINALS: Final = {"second": "two", "third": "three", "fourth": "four", "fifth": "five"}
_ONE: Final = re.compile(rf"(?P<one>one|1|{'|'.join(_ORDINALS)}) (?P<what>[a-z]+)")
"""One, or the one with which there are as many."""
_ONE_MORE: Final = re.compile(r"another (?P<what>[a-z]+)")
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
    """Another day, month or year of birth of one person, or another end of their lease."""
    (one, then), (other, before) = (split_date(each.rstrip(" .!")) for each in (new, known))
    is_day = one.endswith(" was born") or _ENDS_ON.search(one) is not None
    return (is_day and one.casefold() == other.casefold()) and any(
        a != b for a, b in zip(then, before, strict=False)
    )


def _is_renamed(new: Claim, known: Claim) -> bool:
    """Another name, or another spelling, that is no short form of the known one."""
    if new.slot != "name" or new.key or known.key:
        return False
    return name_evidence(new.value, known.value) in (None, "spelling")
