"""Values of which one hardly holds beside the other: the colour of somebody's eyes, the breed of a
dog, the hour at which they get up, the month of a birthday, the grade that a child is in, what
somebody wants to be called, how long something takes. Pure.

In doubt both may hold: "hazel" beside "green", "a lab" beside "a labrador retriever", "about six"
beside "6:15".
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from palimpsest.streams.claims.claim import Claim
from palimpsest.streams.claims.language import ENGLISH, word_set
from palimpsest.streams.claims.times import NUMBERS
from palimpsest.streams.claims.values import fits
from palimpsest.streams.text.dates import MONTHS


def is_other_value(new: Claim, known: Claim) -> bool:
    """Whether two claims of one holder and slot give different values of which one holds."""
    if new.key != known.key:
        return False
    match new.slot:
        case "trait":
            return new.key == "looks" and _other_colour(new.value, known.value)
        case "pet":
            return new.key == "breed" and _other_breed(new.value, known.value)
        case "birthday":
            return _other_day(new.value, known.value)
        case "name":
            return new.key == "nickname" and new.value.casefold() != known.value.casefold()
        case "study":
            grades = [_grade(each.value) for each in (new, known)]
            return None not in grades and grades[0] != grades[1]
        case "hobby" | "work":
            if _before_value(new) != _before_value(known):
                return False
            hours = [_hours(each.value) for each in (new, known)]
            if any(hours):
                return _other_hours(*hours)
            return _other_number(new.value, known.value)
        case "language" | "figure":
            return _other_duration(new.value, known.value) or _other_number(new.value, known.value)
    return False


def is_exclusive(claim: Claim) -> bool:
    """Whether another value may exclude this one."""
    if claim.slot in ("birthday", "figure"):
        return True
    return (claim.slot, claim.key) in _EXCLUSIVE


_EXCLUSIVE: Final = (
    ("trait", "looks"),
    ("pet", "breed"),
    ("hobby", "habit"),
    ("work", "hours"),
    ("language", "count"),
    ("name", "nickname"),
    ("study", "grade"),
)


def _before_value(claim: Claim) -> str:
    return claim.text.casefold().partition(claim.value.casefold())[0]


# --- colours, breeds, months ------------------------------------------------------------------

_PARTS: Final = re.compile(r",? and |, ")
_COLOURS: Final = {
    **{
        each: each
        for each in "blue green brown hazel grey amber black blond red auburn white".split()
    },
    **{"gray": "grey", "blonde": "blond", "ginger": "red"},
}
_MAY_BE_ONE: Final = frozenset(
    map(
        frozenset,
        (
            *(("hazel", "green"), ("hazel", "brown"), ("hazel", "amber"), ("amber", "brown")),
            *(("grey", "blue"), ("auburn", "red"), ("auburn", "brown"), ("grey", "white")),
        ),
    )
)
"""Colours that some call by the name of the other."""


def _other_colour(new: str, known: str) -> bool:
    colours, others = _colours(new), _colours(known)
    pairs = (frozenset((colours[what], others[what])) for what in colours.keys() & others.keys())
    return any(len(pair) == 2 and pair not in _MAY_BE_ONE for pair in pairs)


def _colours(value: str) -> dict[str, str]:
    """The colour of the eyes and of the hair, as far as one is told."""
    found: dict[str, str] = {}
    for part in _PARTS.split(value.casefold()):
        *looks, what = part.split() or [""]
        colours = {_COLOURS[look] for look in looks if look in _COLOURS}
        if len(colours) == 1:
            found[what] = colours.pop()
    return found


_CALLED: Final = ENGLISH["breeds_called"]
_MIXED: Final = word_set("mixed_breeds")
_NO_BREED: Final = word_set("said_of_breeds")


def _other_breed(new: str, known: str) -> bool:
    one, other = (_breed(each) for each in (new, known))
    return bool(one and other) and not (one <= other or other <= one)


def _breed(value: str) -> frozenset[str]:
    """The words of a breed; none of an animal that is of several, or of any."""
    words = frozenset(value.casefold().replace("-", " ").split()) - _NO_BREED
    if not words.isdisjoint(_MIXED):
        return frozenset()
    return frozenset(" ".join(_CALLED.get(word, word) for word in words).split())


_ISO: Final = re.compile(r"\b\d{4}-(\d\d)-(\d\d)\b")
_DAY: Final = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)?\b")


def _other_day(new: str, known: str) -> bool:
    """Whether the month is another one, or the day where both are told."""
    (month, day), (other, others) = _day_of(new), _day_of(known)
    if month is None or other is None:
        return False
    return month != other or (None not in (day, others) and day != others)


def _day_of(value: str) -> tuple[int | None, int | None]:
    iso = _ISO.search(value)
    if iso is not None:
        return int(iso[1]), int(iso[2])
    words = value.casefold().split()
    month = next((number for number, name in enumerate(MONTHS, 1) if name in words), None)
    day = _DAY.search(value)
    return month, None if day is None else int(day[1])


_GRADE: Final = re.compile(r"(?P<number>\d{1,2}|[a-z]+?)(?:st|nd|rd|th)? grade")
_ORDINALS: Final = {
    name: str(number)
    for number, name in enumerate(
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split(),
        start=1,
    )
}


def _grade(value: str) -> str | None:
    """The number of a child's year at school; what comes before school counts, too."""
    said = value.casefold().removeprefix("the ")
    if said in ("kindergarten", "preschool"):
        return said
    found = _GRADE.fullmatch(said)
    if found is None:
        return None
    number = found["number"]
    return number if number.isdigit() else _ORDINALS.get(said.removesuffix(" grade"))


# --- hours, durations, numbers ----------------------------------------------------------------

_ROUGHLY: Final = re.compile(r"^(?:about|around|almost|nearly|over|just over|just under) ")
_HOUR: Final = re.compile(
    r"(?P<half>half past )?(?P<hour>[a-z]+|\d{1,2})(?:[:.](?P<minutes>\d\d))? ?(?P<part>[ap]m)?"
)
_NAMED_HOURS: Final = {"noon": (0, "pm"), "midnight": (0, "am")}
_BETWEEN_HOURS: Final = re.compile(r" ?(?:\bto\b|\btill\b|\buntil\b|-|\u2013) ?")
_SAME_HOUR: Final = 30
"""Minutes; two times that are nearer may be one, told roughly."""
_HALF_DAY: Final = 12 * 60


class _Hour(NamedTuple):
    minutes: int
    part: str
    is_rough: bool


def _hours(value: str) -> list[_Hour]:
    """The times in a value, its beginning and its end; none where it is no time of the day."""
    found = [_hour(each) for each in _BETWEEN_HOURS.split(value)]
    return [each for each in found if each is not None] if None not in found else []


def _other_hours(new: list[_Hour], known: list[_Hour]) -> bool:
    """Whether one of the times, or of the beginning and the end, is another."""
    return len(new) == len(known) and any(map(_is_apart, new, known))


def _hour(text: str) -> _Hour | None:
    said = text.casefold().strip()
    plain = _ROUGHLY.sub("", said)
    found = _HOUR.fullmatch(plain) if fits("clock", said) else None
    if found is None:
        return None
    is_rough = plain != said
    if plain in _NAMED_HOURS:
        return _Hour(*_NAMED_HOURS[plain], is_rough)
    name = found["hour"]
    hour = int(name) if name.isdigit() else NUMBERS.get(name, 0)
    minutes = 30 if found["half"] else int(found["minutes"] or 0)
    return _Hour(hour % 12 * 60 + minutes, found["part"] or "", is_rough)


def _is_apart(one: _Hour, other: _Hour) -> bool:
    if one.part and other.part and one.part != other.part:
        return True
    apart = abs(one.minutes - other.minutes)
    least = 2 * _SAME_HOUR if one.is_rough or other.is_rough else _SAME_HOUR
    return min(apart, _HALF_DAY - apart) >= least


_DURATION: Final = re.compile(
    r"(?P<count>half an|an?|\d{1,3}|[a-z]+) (?P<unit>hour|minute)s?(?P<half> and a half)?"
)


def _other_duration(new: str, known: str) -> bool:
    """ "An hour" and "20 minutes"; of two that are told roughly the one is a quarter longer."""
    (one, rest, rough), (other, others, roughly) = _minutes(new), _minutes(known)
    if one is None or other is None or rest != others:
        return False
    return abs(one - other) > (max(one, other) / 4 if rough or roughly else 0)


def _minutes(value: str) -> tuple[float | None, str, bool]:
    """The minutes, what stands after them, and whether they are told roughly."""
    said = value.casefold()
    plain = _ROUGHLY.sub("", said)
    found = _DURATION.match(plain)
    if found is None:
        return None, plain, False
    name = found["count"]
    counts: dict[str, float] = {"half an": 0.5, "an": 1, "a": 1, **NUMBERS}
    count = float(name) if name.isdigit() else counts.get(name)
    if count is None:
        return None, plain, False
    unit = 60 if found["unit"] == "hour" else 1
    return (count + bool(found["half"]) / 2) * unit, plain[found.end() :], plain != said


_COUNT: Final = re.compile(r"[a-z]+|\d[\d,.:]*")


def _other_number(new: str, known: str) -> bool:
    """Whether both values begin with a number, and but for that are the same."""
    (one, rest), (other, others) = _counted(new), _counted(known)
    return one is not None and other is not None and rest == others and one != other


def _counted(value: str) -> tuple[str | None, str]:
    said = _ROUGHLY.sub("", value.casefold())
    found = _COUNT.match(said)
    if found is None:
        return None, said
    name = found.group()
    is_number = name[0].isdigit() or name in NUMBERS
    count = str(NUMBERS.get(name, name)) if is_number else None
    return count, said[found.end() :].replace(" different", "")
