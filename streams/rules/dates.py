"""Simple English words for a day, resolved against the time of the turn. Pure.

"Yesterday" is the day before the speaker's own: give the time with the speaker's offset from UTC.

The words stay and the date follows in parentheses: "yesterday (2023-05-07)". So nothing that was
said is lost should the reckoning be wrong.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Final

_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS: Final = {
    word: number
    for number, word in enumerate(
        ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), start=1
    )
} | {"a": 1, "an": 1, "a couple of": 2}
_DAY: Final = "|".join(_WEEKDAYS)
_COUNT: Final = "|".join(sorted(_NUMBERS, key=len, reverse=True))

# Without ASCII a long s and a dotless i count as s and i in another case, and are in no table.
_PLAIN: Final = re.IGNORECASE | re.ASCII

_HINTS: Final = ("day", "night", "week", "month", "year", "ago", "tomorrow", "this ")
_RELATIVE: Final = re.compile(
    r"\b(?:(?P<word>the day before yesterday|the day after tomorrow|yesterday|today|tonight|"
    r"tomorrow|last night|this (?:morning|afternoon|evening))"
    rf"|(?P<which>last|next|this) (?:(?P<day>{_DAY})|(?P<span>week(?:end)?|month|year))"
    rf"|(?P<count>\d{{1,3}}|{_COUNT}) (?P<unit>day|week|month|year)s? ago)\b(?! \()",
    _PLAIN,
)
_OFFSETS: Final = {
    "the day before yesterday": -2,
    "the day after tomorrow": 2,
    "yesterday": -1,
    "last night": -1,
    "tomorrow": 1,
}


def with_dates(text: str, occurred_at: datetime) -> str:
    """`text` with the date after each simple relative day, for example "last week"."""
    lowered = text.lower()
    if not any(map(lowered.__contains__, _HINTS)):
        return text
    today = occurred_at.date()

    def dated(match: re.Match[str]) -> str:
        try:
            return f"{match.group()} ({_resolve(match, today)})"
        except (OverflowError, ValueError):
            return match.group()

    return _RELATIVE.sub(dated, text)


def _resolve(match: re.Match[str], today: date) -> str:
    if match["word"]:
        days = _OFFSETS.get(match["word"].lower(), 0)
        return (today + timedelta(days=days)).isoformat()
    if match["unit"]:
        count = match["count"].lower()
        return _ago(int(count) if count.isdigit() else _NUMBERS[count], match["unit"], today)
    step = {"last": -1, "this": 0, "next": 1}[match["which"].lower()]
    if match["day"]:
        return _weekday(_WEEKDAYS.index(match["day"].lower()), step, today).isoformat()
    return _period(match["span"].lower(), step, today)


def _ago(count: int, unit: str, today: date) -> str:
    unit = unit.lower()
    if unit == "year":
        return _year(today.year - count)
    if unit == "month":
        return _month(today, -count)
    return (today - timedelta(days=count * (7 if unit == "week" else 1))).isoformat()


def _weekday(index: int, step: int, today: date) -> date:
    ahead = (index - today.weekday()) % 7
    if step < 0:
        return today - timedelta(days=7 - ahead)
    return today + timedelta(days=ahead or (7 if step else 0))


def _period(span: str, step: int, today: date) -> str:
    if span == "year":
        return _year(today.year + step)
    if span == "month":
        return _month(today, step)
    monday = today - timedelta(days=today.weekday()) + timedelta(weeks=step)
    if span == "weekend":
        return f"weekend of {(monday + timedelta(days=5)).isoformat()}"
    return f"week of {monday.isoformat()}"


def _month(today: date, step: int) -> str:
    months = today.year * 12 + today.month - 1 + step
    return f"{_year(months // 12)}-{months % 12 + 1:02d}"


def _year(year: int) -> str:
    """Four digits. Raises ValueError outside the calendar."""
    return f"{date(year, 1, 1).year:04d}"
