"""The date and time before a message of a chat export, in the notations of its phones: digits of
any script, the words of languages for the halves of a day (those of CLDR), other calendars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from palimpsest.ops.ingest.parsers import DateOrder
from palimpsest.streams.text.tables import Lexicon

if TYPE_CHECKING:
    from babel import Locale

_LEXICON: Final = Lexicon(__name__, "whatsapp.toml")
_DATE: Final = r"(?P<date>\d{1,4} ?[./年-] ?\d{1,2} ?[./月-] ?\d{1,4}[.日]?)"
_TIME: Final = (
    r"(?P<time>\d{1,2}(?::\d{1,2}|(?:\.| ?h ?)\d{2})(?:[:.]\d{1,2}| ?min ?\d{1,2} ?s\b)?)"
)
_WORDS: Final = r"[^\d:\[\]/–\n-]{0,24}?"
_END: Final = r"(?:\] ?| [-–] )(?P<rest>.*)"
_DATE_FIRST: Final = re.compile(
    rf"\[?{_DATE}(?P<before>{_WORDS}){_TIME}(?P<after>{_WORDS}){_END}", re.DOTALL
)
_TIME_FIRST: Final = re.compile(
    rf"\[?(?P<before>{_WORDS}){_TIME}(?P<after>{_WORDS}){_DATE}{_END}", re.DOTALL
)
_CAPITALS: Final = re.compile(r"\d ?[AP]M\b")
_APART: Final = re.compile(r"[\s,،、()]+")
OLDEST: Final = 2009
"""The year of the first message that WhatsApp can have carried."""
_NEW_YEAR_1403: Final = date(2024, 3, 20)
"""The first day of a Persian year."""


@dataclass(slots=True)
class Stamp:
    """The numbers of a date in their order, the time of day (None if its words are unknown), and
    what follows. `text` is the stamp as it was written."""

    text: str
    date: tuple[int, int, int]
    clock: tuple[int, int, int] | None
    rest: str
    capitals: bool
    """Whether the time has AM or PM in capitals, as American phones write it."""


def stamp_of(line: str) -> Stamp | None:
    """Returns the stamp at the beginning of a line without marks; None if there is none."""
    if not any(char.isdecimal() for char in line[:32]):
        return None
    match = _DATE_FIRST.fullmatch(line) or _TIME_FIRST.fullmatch(line)
    if match is None:
        return None
    hour, minute, second, *_ = (*map(int, re.findall(r"\d+", match["time"])), 0)
    try:
        half = _half(match["before"]) or _half(match["after"])
    except LookupError:
        clock = half = None
    else:
        if half is not None and hour <= 12:
            hour = _hour(hour, half)
        clock = (hour, minute, second)
    numbers = cast("tuple[int, int, int]", tuple(map(int, re.findall(r"\d+", match["date"]))))
    text = line[: match.start("rest")].strip(" []-–")
    return Stamp(text, numbers, clock, match["rest"], bool(_CAPITALS.search(text)))


def moment(stamp: Stamp, order: DateOrder, newest: int) -> datetime | None:
    """Returns the local time of a stamp whose date has that order; None if there is no such day.
    Years of the Buddhist and the Persian calendar are converted; one of two digits is Buddhist if
    it would lie after `newest`."""
    year, month, day = (stamp.date[order.index(part)] for part in "ymd")
    if year < 100:
        year += 2000 if 2000 + year <= newest or not OLDEST <= 1957 + year <= newest else 1957
    elif year >= 2400:
        year -= 543
    elif 1430 <= year < 1500:
        return None  # the Islamic calendar: its months begin with a sighting of the moon
    try:
        found = _persian(year, month, day) if 1300 <= year < 1430 else date(year, month, day)
        return datetime(found.year, found.month, found.day, *(stamp.clock or (0, 0, 0)))
    except (ValueError, OverflowError):
        return None


def _persian(year: int, month: int, day: int) -> date:
    """Returns a day of the Persian calendar, whose leap years come eight times in 33 years. Raises
    ValueError if there is no such day."""
    if not (1 <= month <= 12 and 1 <= day <= (31 if month <= 6 else 30)):
        raise ValueError("no such day")
    found = _NEW_YEAR_1403 + timedelta(
        days=_days_before(year)
        - _days_before(1403)
        + 30 * (month - 1)
        + min(month - 1, 6)
        + day
        - 1
    )
    following = _NEW_YEAR_1403 + timedelta(days=_days_before(year + 1) - _days_before(1403))
    if found >= following:
        raise ValueError("no such day")
    return found


def _days_before(year: int) -> int:
    cycles, rest = divmod(year + 1595, 33)
    return 365 * (year + 1595) + 8 * cycles + (rest + 3) // 4


def _hour(hour: int, half: frozenset[int]) -> int:
    """Returns the hour of the day for one of a half: the earlier where both are in it; where none
    is, the later if all of it is after noon."""
    early = hour % 12
    if early in half:
        return early
    return early + 12 if early + 12 in half or min(half) >= 12 else early


def _half(words: str) -> frozenset[int] | None:
    """Returns the hours of the part of the day that words name; None if they name none. Raises
    LookupError for unknown words."""
    parts = [plain for word in _APART.split(words) if (plain := _plain(word))]
    rest = [part for part in parts if part not in _LEXICON.word_set("joining")]
    # CLDR is read only for what is not English, and whole only for a rare language.
    for table in (_latin_halves, _halves, _rare_halves):
        for joined in ("".join(parts), "".join(rest)):
            if not joined:
                return None
            if joined in table():
                return table()[joined]
    raise LookupError(words)


def _plain(word: str) -> str:
    """Returns a word as it is compared: without points, spaces and marks between them."""
    dropped = ".\u200c\u200d·"
    return "".join(c for c in word.casefold() if c not in dropped and not c.isspace())


@cache
def _latin_halves() -> dict[str, frozenset[int]]:
    return {"am": frozenset(range(12)), "pm": frozenset(range(12, 24))}


@cache
def _halves() -> dict[str, frozenset[int]]:
    """Returns the hours of each word for a part of the day, by CLDR and, for phones with an older
    one, by the words beside this module."""
    found: dict[str, frozenset[int]] = {}
    for name, half in (("before_noon", "am"), ("after_noon", "pm")):
        words = map(_plain, _LEXICON.words(name))
        found |= dict.fromkeys(words, _latin_halves()[half])
    return found | {
        word: hours
        for word, hours in _of_languages(_LEXICON.words("languages")).items()
        if word not in found
    }


@cache
def _rare_halves() -> dict[str, frozenset[int]]:
    """Returns the same by all that CLDR has, the languages before their regions."""
    from babel import localedata

    names = localedata.locale_identifiers()
    return _of_languages(sorted(names, key=lambda name: (name.count("_"), name)))


def _of_languages(names: Iterable[str]) -> dict[str, frozenset[int]]:
    """Returns the hours of each word for a part of the day in these languages. A word that several
    of them have for parts of the day has the hours of all; of a half, those of the first."""
    # It takes a second or two to read, and only chats in some languages need it.
    from babel import Locale, UnknownLocaleError

    found: dict[str, frozenset[int]] = {}
    halves = set(_latin_halves().values())
    for name in names:
        with suppress(UnknownLocaleError, ValueError):
            for word, hours in _parts_of_day(Locale.parse(name)):
                before = found.setdefault(word, hours)
                if before not in halves and hours not in halves:
                    found[word] = before | hours
    return found


def _parts_of_day(locale: Locale) -> Iterator[tuple[str, frozenset[int]]]:
    """Yields the words of a language for parts of the day, the halves first, with their hours."""
    rules = cast("dict[str, list[dict[str, int]]]", locale.day_period_rules.get(None, {}))
    hours = _latin_halves().copy()
    for part in rules:
        hours.setdefault(part, frozenset(h for rule in rules[part] for h in _hours(rule)))
    for part, named in hours.items():
        for widths in locale.day_periods.values():
            for width in ("abbreviated", "wide", "narrow"):
                word = widths.get(width, {}).get(part, "")
                if word and (len(word) > 1 or not word.isascii()):
                    yield _plain(word), named


def _hours(rule: dict[str, int]) -> Iterator[int]:
    """Yields the hours of the day of a rule of CLDR (in seconds), which may span midnight."""
    begins = rule.get("at", rule.get("from", 0)) // 3600
    ends = rule.get("before", (begins + 1) * 3600) // 3600
    for hour in range(begins, ends if ends > begins else ends + 24):
        yield hour % 24
