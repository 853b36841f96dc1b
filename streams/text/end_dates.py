"""When something ends that a text tells in words: "next Friday", "Ende März", "来週の金曜日". Pure.

A day lasts to its last second where the speaker is, a week to its Sunday, a month to its last day.
Words are read by dateparser, with all that it would else take from the clock, the machine or the
locale given. What may mean two days (03/04/2025) or is longer than a date gives none.
"""

from __future__ import annotations

import re
import unicodedata
from calendar import monthrange
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

from palimpsest.streams.text.japanese_dates import in_english

if TYPE_CHECKING:
    from dateparser.date import DateData

MOST_CHARACTERS: Final = 64
MOST_YEARS: Final = 200
"""Before or after the turn: what lies further away was not read as it was meant."""
LANGUAGES: Final = ("en", "de", "fr", "es", "it", "pt", "nl", "ru")
"""In the order in which they are tried; Japanese is put into English first."""

WEEKDAYS: Final = {
    name: number
    for names in (
        "monday tuesday wednesday thursday friday saturday sunday",
        "montag dienstag mittwoch donnerstag freitag samstag sonntag",
    )
    for number, name in enumerate(names.split())
} | {"sonnabend": 5}
_DAY: Final = "|".join(WEEKDAYS)
_SPANS: Final = {
    "day": "day", "tag": "day", "tages": "day", "week": "week", "woche": "week",
    "weekend": "week", "wochenende": "week", "wochenendes": "week", "month": "month",
    "monat": "month", "monats": "month", "quarter": "quarter", "quartal": "quarter",
    "quartals": "quarter", "year": "year", "jahr": "year", "jahres": "year",
}  # fmt: skip
_LEAD: Final = re.compile(
    r"^(?:(?:valid |good )?(?:until|till|through|thru|up to|no later than|by|on)"
    r"|(?:gültig )?bis(?: spätestens)?(?: zum| zur| am)?|am|spätestens)\s+(?=\S)"
)
_END: Final = re.compile(
    r"^(?:the )?(?:very )?end of |^(?:zum |am )?ende (?:von )?|^(?=(?:monats|jahres|wochen)ende$)"
)
_COMPOUND: Final = {"monatsende": "month", "jahresende": "year"}
_THIS: Final = r"this|the|current|des|der|dieser|dieses|diesen|diese"
_NEXT: Final = r"next|coming|(?:des |der )?(?:nächste[nrs]?|kommende[nrs]?)|(?:in der|im) nächsten"
_SPAN: Final = re.compile(
    rf"^(?:(?:(?P<this>{_THIS})|(?P<next>{_NEXT})) )?(?P<span>{'|'.join(_SPANS)})"
    r"(?P<after> after next)?$"
)
_DAY_OF_WEEK: Final = re.compile(
    rf"^(?P<day>{_DAY}),? (?:of |in )?(?P<which>this|next|dieser|nächster|der nächsten) "
    r"(?:week|woche)(?P<after> after next)?$"
    rf"|^(?P<which_>this|next|diese|nächste) (?:week|woche),? (?:on |am )?(?P<day_>{_DAY})$"
)
_NEXT_DAY: Final = re.compile(
    r"^(?:this coming|this|next|coming|nächste[nrm]?|kommende[nrm]?|diese[nrm])"
    rf" (?=(?:{_DAY})\b)"
)
_YEAR: Final = re.compile(r"^(?:19|20|21)\d\d$")
_TWO_WAYS: Final = re.compile(r"\b(\d{1,2})[/-](\d{1,2})(?:[/-]\d{2,4})?\b")
_NUMBERS: Final = re.compile(
    r"^\d{1,2}\. ?\d{1,2}\. ?\d{4}$|^\d{4}[./]\d{1,2}[./]\d{1,2}$|^\d{1,2}/\d{1,2}/\d{4}$|^\d.*:"
)
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
            end = _worded(in_english(text) or text.lower(), now)
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
    text = _LEAD.sub("", text)
    text, ends = _END.subn("", text, count=1)
    span = _SPAN.match(text)
    if text in _COMPOUND:
        return _last_second(_end_of_span(_COMPOUND[text], 0, now.date()))
    if span is not None and (ends or span["this"] or span["next"]):
        step = 2 if span["after"] else 1 if span["next"] else 0
        return _last_second(_end_of_span(_SPANS[span["span"]], step, now.date()))
    in_week = _DAY_OF_WEEK.match(text)
    if in_week is not None:
        which = in_week["which"] or in_week["which_"]
        weeks = 2 if in_week["after"] else 0 if which in ("this", "dieser", "diese") else 1
        monday = now.date() - timedelta(days=now.weekday()) + timedelta(weeks=weeks)
        return _last_second(monday + timedelta(days=WEEKDAYS[in_week["day"] or in_week["day_"]]))
    if _YEAR.match(text):
        return _last_second(date(int(text), 12, 31))
    return _read(_NEXT_DAY.sub("", text), now)


def _read(text: str, now: datetime) -> datetime | None:
    """By dateparser, where the text can mean one day only."""
    ways = _TWO_WAYS.search(text)
    if ways is not None and max(map(int, ways.groups())) <= 12 and ways[1] != ways[2]:
        return None
    if not (_WORD.search(text) or _NUMBERS.match(text)):
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
