"""When something is: the time that stands at the end of a clause, and the date that it means. Pure.

Relative words become the date: "last month" becomes "in February 2026". What may mean two days
stays as it was.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Final, Literal, NamedTuple

from palimpsest.streams.claims.language import expression, fragment
from palimpsest.streams.text.dates import DAY_NAMES, MONTHS

_SEASONS: Final = ("spring", "summer", "autumn", "fall", "winter")
_COUNTS: Final = {
    word: number
    for number, word in enumerate(
        "one two three four five six seven eight nine ten eleven twelve".split(), start=1
    )
} | {"a": 1, "an": 1, "a couple of": 2}
_MONTH: Final = fragment("month")
_ABBREVIATED: Final = {day[:3]: day for day in DAY_NAMES} | {"tues": "tuesday", "thurs": "thursday"}
_SEASON: Final = fragment("season")

TimeKind = Literal["point", "now", "since", "span", "frequency", "until"]


class Time(NamedTuple):
    """A time: `point` is when something happened or will, `now` says only that it is so today,
    `since` tells its beginning, `span` how long, `frequency` how often,
    `until` when it ends."""

    kind: TimeKind
    words: str


_NOW: Final = fragment("now")
_POINT: Final = fragment("point")
_SPAN: Final = fragment("span")
CALENDAR: Final = fragment("calendar")
_SINCE: Final = fragment("since")
_UNTIL: Final = fragment("until")
_FREQUENCY: Final = fragment("frequency")
_PATTERNS: Final[tuple[tuple[TimeKind, re.Pattern[str]], ...]] = tuple(
    (kind, re.compile(rf"(?:^|,? )(?P<words>{words})$", re.IGNORECASE))  # type: ignore[misc]
    for kind, words in (
        ("since", _SINCE),
        ("until", _UNTIL),
        ("span", _SPAN),
        ("frequency", _FREQUENCY),
        ("now", _NOW),
        ("point", _POINT),
    )
)
_ALWAYS_CAPITAL: Final = expression("always_capital")
MAX_TAIL: Final = 60
"""Characters at the end in which a time is looked for."""


def _is_in_a_name(words: str) -> bool:
    """Whether a time within a sentence is a name by its capital: "saw the film Yesterday"."""
    return words[0].isupper() and _ALWAYS_CAPITAL.match(words) is None


def time_at_end(text: str) -> tuple[str, Time | None]:
    """`text` without the time that it ends with, and that time."""
    begin = max(0, len(text) - MAX_TAIL)
    tail = text[begin:]
    best: tuple[int, Time] | None = None
    for kind, pattern in _PATTERNS:
        found = pattern.search(tail)
        if found is None or (_is_in_a_name(found["words"]) and begin + found.start()):
            continue
        if best is None or found.start() < best[0]:
            best = found.start(), Time(kind, found["words"])
    if best is None:
        return text, None
    return text[: begin + best[0]].rstrip(" ,"), best[1]


def dated(time: Time, today: date, *, ahead: bool) -> str:
    """The words of `time` with the date in them, seen from `today`.

    `ahead`: a bare month or weekday is the next one, else the last.
    """
    words = time.words
    lowered = words.lower()
    try:
        if time.kind == "now":
            return ""
        if time.kind == "point":
            return _dated_point(words, lowered, today, ahead)
        if time.kind == "since":
            return _dated_since(words, lowered, today)
        if time.kind == "span":
            return (
                f"{words.removesuffix(' now').removesuffix(' already')} (as of {_month_of(today)})"
            )
    except (ValueError, OverflowError):
        return words
    return words


def _dated_since(words: str, lowered: str, today: date) -> str:
    last = re.fullmatch(rf"since (last (?:{_MONTH}|{_SEASON}|year|month|week))", lowered)
    month = re.fullmatch(rf"since (?:early |late )?({_MONTH})", lowered)
    if month is not None:
        return f"since {month[1].capitalize()} {_year_of(month[1], today, False)}"
    if last is None:
        return words
    point = _dated_point(last[1], last[1], today, False)
    return "since " + point.removeprefix("in ").removeprefix("on ")


_AGO: Final = expression("ago")
_AHEAD: Final = expression("ahead")
_WHICH: Final = expression("which")
_BARE_MONTH: Final = expression("bare_month")
_BARE_SEASON: Final = expression("bare_season")
_MONTH_DAY: Final = expression("month_day")
_BARE_DAY: Final = expression("bare_day")
_OFFSETS: Final = {
    "the day before yesterday": -2,
    "yesterday": -1,
    "last night": -1,
    "today": 0,
    "tonight": 0,
    "earlier today": 0,
    "this morning": 0,
    "this afternoon": 0,
    "this evening": 0,
    "tomorrow": 1,
    "the day after tomorrow": 2,
}


def _dated_point(words: str, lowered: str, today: date, ahead: bool) -> str:
    if lowered in _OFFSETS:
        return f"on {today + timedelta(days=_OFFSETS[lowered])}"
    if lowered == "recently" or lowered.startswith("earlier this"):
        return f"in {_month_of(today)}" if lowered == "earlier this month" else f"around {today}"
    if (ago := _AGO.fullmatch(lowered)) is not None:
        return _away(ago["count"], ago["unit"], today, -1)
    if (later := _AHEAD.fullmatch(lowered)) is not None:
        return _away(later["count"], later["unit"], today, 1)
    if (which := _WHICH.fullmatch(lowered)) is not None:
        return _which(which["which"], which["what"], today, words)
    if (month := _BARE_MONTH.fullmatch(lowered)) is not None:
        name, part = month["month"], re.sub("mid-?", "mid-", month["part"] or "")
        return f"in {part}{name.capitalize()} {_year_of(name, today, ahead)}"
    if (season := _BARE_SEASON.fullmatch(lowered)) is not None:
        begun = _season_month(season["season"]) <= today.month
        year = today.year - (not (ahead or begun))
        return f"in the {season['season']} of {year}"
    if (day := _MONTH_DAY.fullmatch(lowered)) is not None:
        return _month_day(
            day["month"] or day["month_"], int(day["day"] or day["day_"]), today, ahead
        )
    if (weekday := _BARE_DAY.fullmatch(lowered)) is not None:
        return f"on {_weekday(weekday['day'], today, 0 if ahead else -1)}"
    return words


def _away(count: str, unit: str, today: date, sign: int) -> str:
    if count in ("a few", "several"):
        return f"a few {unit}s {'before' if sign < 0 else 'after'} {today}"
    number = int(count) if count.isdigit() else _COUNTS[count]
    if unit == "decade":
        return f"around {today.year + sign * number * 10}"
    if unit == "year":
        return f"in {today.year + sign * number}" if number < 1000 else ""
    if unit == "month":
        return f"in {_shifted(today, sign * number)}"
    day = today + sign * timedelta(days=number * (7 if unit == "week" else 1))
    return f"on {day}" if unit == "day" else f"around {day}"


def _which(which: str, what: str, today: date, words: str) -> str:
    what = _ABBREVIATED.get(what, what)
    step = {"last": -1, "this past": -1, "this": 0}.get(which, 1)
    if what in DAY_NAMES:
        return f"on {_weekday(what, today, step)}"
    if what in MONTHS:
        return f"in {what.capitalize()} {_year_of(what, today, step >= 0)}"
    if what in _SEASONS:
        begun = _season_month(what) <= today.month
        year = today.year + (step > 0 and begun) - (step < 0 and not begun)
        return f"in the {what} of {year}"
    if what == "year":
        return f"in {today.year + step}"
    if what == "month":
        return f"in {_shifted(today, step)}"
    monday = today - timedelta(days=today.weekday()) + timedelta(weeks=step)
    if what == "week":
        return f"in the week of {monday}"
    if what == "weekend":
        return f"on the weekend of {monday + timedelta(days=5)}"
    return words


def _weekday(name: str, today: date, step: int) -> date:
    ahead = (DAY_NAMES.index(_ABBREVIATED.get(name, name)) - today.weekday()) % 7
    if step < 0:
        return today - timedelta(days=7 - ahead)
    return today + timedelta(days=ahead or (7 if step else 0))


def _month_day(month: str | None, day: int, today: date, ahead: bool) -> str:
    if month is not None:
        number = MONTHS.index(month) + 1
        found = date(today.year, number, day)
        if (found < today) if ahead else (found > today):
            found = date(today.year + (1 if ahead else -1), number, day)
        return f"on {found}"
    found = today.replace(day=day)
    if ahead and found < today:
        found = (today.replace(day=1) + timedelta(days=32)).replace(day=day)
    elif not ahead and found > today:
        found = (today.replace(day=1) - timedelta(days=1)).replace(day=day)
    return f"on {found}"


def _year_of(month: str, today: date, ahead: bool) -> int:
    number = MONTHS.index(month) + 1
    if ahead:
        return today.year + (number < today.month)
    return today.year - (number > today.month)


def _season_month(season: str) -> int:
    return {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}[season]


def _month_of(day: date) -> str:
    return f"{MONTHS[day.month - 1].capitalize()} {day.year}"


def _shifted(today: date, step: int) -> str:
    months = today.year * 12 + today.month - 1 + step
    return _month_of(date(months // 12, months % 12 + 1, 1))
