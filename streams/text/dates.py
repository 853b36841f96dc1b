"""When something ends, and the sentences that say so: "until next Friday", "bis Ende März",
来週の金曜日まで. Pure.

A day lasts to its last second where the speaker is, a week to its Sunday, a month to its last day.
Words are read by dateparser, with all that it would else take from the clock, the machine or the
locale given. What may mean two days (03/04/2025) or is longer than a date gives none: a memory that
is taken for over is worse than one that stays.
"""

from __future__ import annotations

import re
import unicodedata
from calendar import monthrange
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final, TypedDict, cast

from palimpsest.streams.text.tables import Lexicon

if TYPE_CHECKING:
    from dateparser.date import DateData

_LEXICON: Final = Lexicon(__name__, "dates.toml")
expression = _LEXICON.expression
MOST_CHARACTERS: Final = 64
MOST_YEARS: Final = 200
"""Before or after the turn: what lies further away was not read as it was meant."""
LANGUAGES: Final = ("en", "de", "fr", "es", "it", "pt", "nl", "ru")
"""In the order in which they are tried; Japanese is put into English first."""

MONTHS: Final = (
    "january february march april may june july august september october november december".split()
)
DAY_NAMES: Final = tuple(_LEXICON.words("english_days"))
WEEKDAYS: Final = {
    name: number
    for names in (DAY_NAMES, _LEXICON.words("german_days"))
    for number, name in enumerate(names)
} | {"sonnabend": 5}
_SPANS: Final = {
    word: span
    for span in ("day", "week", "month", "quarter", "year")
    for word in _LEXICON.words(f"a_{span}")
}
_COMPOUND: Final = {"monatsende": "month", "jahresende": "year"}
_YEAR: Final = re.compile(r"^(?:19|20|21)\d\d$")
_TWO_WAYS: Final = re.compile(r"\b(\d{1,2})[/-](\d{1,2})(?:[/-]\d{2,4})?\b")
_DAY_ONLY: Final = re.compile(r"\d{4}-?\d{2}-?\d{2}|\d{4}-?W\d{2}-?\d")
_WORD: Final = re.compile(r"[^\W\d_]")


def end_of(words: str, said_at: datetime) -> datetime | None:
    """The end of the time that the words name, in UTC; None where they name none.

    `said_at` has the offset from UTC of who said it: a day, or a time without a zone, is theirs.
    """
    text = " ".join(unicodedata.normalize("NFKC", words[: 4 * MOST_CHARACTERS]).split())
    text = text.rstrip(".!,;。、").strip()
    if not text or len(text) > MOST_CHARACTERS:
        return None
    now = said_at.replace(tzinfo=None)
    try:
        end = _iso(text)
        if end is None:
            end = _worded(_in_english(text) or text.lower(), now)
        if end is None:
            return None
        local = end if end.tzinfo else end.replace(tzinfo=said_at.tzinfo)
        found = local.astimezone(UTC)
        return found if abs(found.year - said_at.year) <= MOST_YEARS else None
    except (OverflowError, ValueError):
        return None


def _iso(text: str) -> datetime | None:
    if not text[:4].isdigit() or len(text) < 8:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _last_second(moment.date()) if _DAY_ONLY.fullmatch(text) else moment


def _worded(text: str, now: datetime) -> datetime | None:
    """The end at the speaker's clock; with a zone where the words tell one."""
    text = expression("lead").sub("", text)
    text, ends = expression("end").subn("", text, count=1)
    span = expression("span").match(text)
    if text in _COMPOUND:
        return _last_second(_end_of_span(_COMPOUND[text], 0, now.date()))
    if span is not None and (ends or span["this"] or span["next"]):
        step = 2 if span["after"] else 1 if span["next"] else 0
        return _last_second(_end_of_span(_SPANS[span["span"]], step, now.date()))
    in_week = expression("day_of_week").match(text)
    if in_week is not None:
        which = in_week["which"] or in_week["which_"]
        weeks = 2 if in_week["after"] else 0 if which in ("this", "dieser", "diese") else 1
        monday = now.date() - timedelta(days=now.weekday()) + timedelta(weeks=weeks)
        return _last_second(monday + timedelta(days=WEEKDAYS[in_week["day"] or in_week["day_"]]))
    if _YEAR.match(text):
        return _last_second(date(int(text), 12, 31))
    return _read(expression("next_day").sub("", text), now)


def _read(text: str, now: datetime) -> datetime | None:
    """By dateparser, where the text can mean one day only."""
    ways = _TWO_WAYS.search(text)
    if ways is not None and max(map(int, ways.groups())) <= 12 and ways[1] != ways[2]:
        return None
    if not (_WORD.search(text) or expression("numbers").match(text)):
        return None
    # What has no word for a time is relative to nothing: the two readings never both succeed.
    for parser in ("relative-time", "absolute-time"):
        found = _data(text, now, parser)
        if found.date_obj is not None:
            moment: datetime = found.date_obj
            return moment if found.period == "time" else _last_second(moment.date())
    return None


def _data(text: str, now: datetime, parser: str) -> DateData:
    # It takes 50 ms, and most processes read no date in words.
    from dateparser.date import DateDataParser

    settings = {
        "RELATIVE_BASE": now,
        "TIMEZONE": "UTC",  # as "local" it would be the machine's; what is told without is naive
        "PREFER_DATES_FROM": "future",
        "PREFER_DAY_OF_MONTH": "last" if parser == "absolute-time" else "current",
        "PREFER_MONTH_OF_YEAR": "current",
        "DATE_ORDER": "DMY",
        "PREFER_LOCALE_DATE_ORDER": False,
        "RETURN_TIME_AS_PERIOD": True,
        "PARSERS": [parser],
    }
    reader = DateDataParser(languages=[*LANGUAGES], use_given_order=True, settings=settings)
    return reader.get_date_data(text)


def _end_of_span(span: str, step: int, today: date) -> date:
    """The last day of this (0), the next (1) … day, week, month, quarter or year."""
    if span == "day":
        return today + timedelta(days=step)
    if span == "week":
        return today + timedelta(days=6 - today.weekday(), weeks=step)
    months = {"month": 1, "quarter": 3, "year": 12}[span]
    index = (today.year * 12 + today.month - 1) // months * months + months * (step + 1) - 1
    year, month = index // 12, index % 12 + 1
    return date(year, month, monthrange(year, month)[1])


def _last_second(day: date) -> datetime:
    return datetime.combine(day, time(23, 59, 59))


# --- Japanese -------------------------------------------------------------------------------


class _Japanese(TypedDict):
    forms: list[list[str]]
    which: dict[str, str]
    after: dict[str, str]
    span: dict[str, str]
    unit: dict[str, str]


_TABLE: Final = cast("_Japanese", _LEXICON.tables["japanese"])
_FORMS: Final = [(re.compile(form), english) for form, english in _TABLE["forms"]]
_ENGLISH: Final[dict[str, dict[str, str]]] = {
    "day": dict(zip("月火水木金土日", DAY_NAMES, strict=True)),
    "month": {str(number): name for number, name in enumerate(MONTHS, start=1)},
    **{name: _TABLE[name] for name in ("which", "after", "span", "unit")},
}
"""What the groups of a form match, in English; numbers stay."""
_DIGITS: Final = {digit: number for number, digit in enumerate("一二三四五六七八九", start=1)}
_TO: Final = re.compile(r"まで(?:に)?$")


def _in_english(text: str) -> str | None:
    """The words of a day after NFKC, with or without まで, in English; None for all else."""
    if text.isascii():
        return None
    plain = _TO.sub("", text.replace(" ", ""))
    plain = expression("kanji").sub(lambda match: str(_number(match.group())), plain)
    for form, english in _FORMS:
        match = form.fullmatch(plain)
        if match is not None:
            said = {name: value or "" for name, value in match.groupdict().items()}
            words = {name: _ENGLISH.get(name, {}).get(each, each) for name, each in said.items()}
            return english.format(**words).strip()
    return None


def _number(kanji: str) -> int:
    tens, ten, ones = kanji.rpartition("十")
    return (_DIGITS.get(tens, 1) * 10 if ten else 0) + _DIGITS.get(ones, 0)


# --- sentences ------------------------------------------------------------------------------

_HINTS: Final = ("until", "till", "through", "expire", "end", "runs out", "over", "bis", "läuft",
                 "verfällt")  # fmt: skip

_YEAR_TOLD: Final = expression("in_year")


def stated_end(text: str, said_at: datetime) -> datetime | None:
    """When what the text says ends, in UTC; None where it does not say. `said_at` has the offset
    from UTC of who says it."""
    plain = unicodedata.normalize("NFKC", text)
    if plain.isascii() and not any(map(plain.lower().__contains__, _HINTS)):
        return None
    if expression("habit").search(plain) or expression("if").search(plain):
        return None
    match = expression("japanese").search(plain) or expression("stated").search(plain)
    if match is None:
        return None
    words = match["when"] or match["after"]
    before = plain[: match.start()]
    told = match.groupdict().get("until") or "ends"
    is_ending = re.match(r"(?:exp|end|run|is|verf|läuft)", told, re.IGNORECASE) is not None
    if expression("range").search(before) or (is_ending and expression("denied").search(before)):
        return None
    if not _YEAR_TOLD.search(words) and _is_past(plain, before):
        return None
    end = end_of(words, said_at)
    return None if end is None or end < said_at else end


def _is_past(text: str, before: str) -> bool:
    """Whether it is told of what was: its Friday is one of before."""
    return bool(expression("past").search(before) or expression("past_japanese").search(text))
