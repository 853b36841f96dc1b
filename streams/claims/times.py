"""When something is: the time that stands at the end of a clause, and the date that it means. Pure.

Relative words become the date: "last month" becomes "in February 2026". What may mean two days
stays as it was.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Final, Literal, NamedTuple, get_args

from palimpsest.streams.claims.language import expression, fragment
from palimpsest.streams.text.dates import DAY_NAMES, MONTHS

NUMBERS: Final = {
    word: number
    for number, word in enumerate(
        "one two three four five six seven eight nine ten eleven twelve".split(), start=1
    )
}
_COUNTS: Final = NUMBERS | {"a": 1, "an": 1, "a couple of": 2}
_ABBREVIATED: Final = {day[:3]: day for day in DAY_NAMES} | {"tues": "tuesday", "thurs": "thursday"}
_SEASONS: Final = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The month with which each begins."""

TimeKind = Literal["since", "until", "span", "frequency", "now", "point"]


class Time(NamedTuple):
    """A time: `point` is when something happened or will, `now` says only that it is so today,
    `since` tells its beginning, `span` how long, `frequency` how often,
    `until` when it ends."""

    kind: TimeKind
    words: str


_PATTERNS: Final[tuple[tuple[TimeKind, re.Pattern[str]], ...]] = tuple(
    (kind, re.compile(rf"(?:^|,? )(?P<words>{fragment(kind)})$", re.IGNORECASE))
    for kind in get_args(TimeKind)
)
MAX_TAIL: Final = 60
"""Characters at the end in which a time is looked for."""


def _is_in_a_name(words: str) -> bool:
    """Whether a time within a sentence is a name by its capital: "saw the film Yesterday"."""
    return words[0].isupper() and expression("always_capital").match(words) is None


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
    try:
        match time.kind:
            case "now":
                return ""
            case "point":
                return _dated_point(words, today, ahead)
            case "since":
                return _dated_since(words, today)
            case "span":
                lasting = words.removesuffix(" now").removesuffix(" already")
                return f"{lasting} (as of {_month_of(today)})"
    except (ValueError, OverflowError):
        return words
    return words


def _dated_since(words: str, today: date) -> str:
    found = expression("since_named").fullmatch(words.lower())
    if found is None:
        return words
    if found["month"]:
        return f"since {_month_and_year(found['month'], today, False)}"
    point = _dated_point(found["last"], today, False)
    return "since " + point.removeprefix("in ").removeprefix("on ")


_OFFSETS: Final = {
    "the day before yesterday": -2,
    "yesterday": -1,
    "last night": -1,
    **dict.fromkeys(("today", "tonight", "earlier today"), 0),
    **dict.fromkeys(("this morning", "this afternoon", "this evening"), 0),
    "tomorrow": 1,
    "the day after tomorrow": 2,
}


def _dated_point(words: str, today: date, ahead: bool) -> str:
    lowered = words.lower()
    if lowered in _OFFSETS:
        return f"on {today + timedelta(days=_OFFSETS[lowered])}"
    if lowered == "earlier this month":
        return f"in {_month_of(today)}"
    if lowered == "recently" or lowered.startswith("earlier this"):
        return f"around {today}"
    if (ago := expression("ago").fullmatch(lowered)) is not None:
        return _away(ago["count"], ago["unit"], today, -1)
    if (later := expression("ahead").fullmatch(lowered)) is not None:
        return _away(later["count"], later["unit"], today, 1)
    if (which := expression("which").fullmatch(lowered)) is not None:
        step = {"last": -1, "this past": -1, "this": 0}.get(which["which"], 1)
        return _which(_ABBREVIATED.get(which["what"], which["what"]), step, today) or words
    if (month := expression("bare_month").fullmatch(lowered)) is not None:
        part = re.sub("mid-?", "mid-", month["part"] or "")
        return f"in {part}{_month_and_year(month['month'], today, ahead)}"
    if (season := expression("bare_season").fullmatch(lowered)) is not None:
        begun = _SEASONS[season["season"]] <= today.month
        return f"in the {season['season']} of {today.year - (not (ahead or begun))}"
    if (day := expression("month_day").fullmatch(lowered)) is not None:
        month_name, number = day["month"] or day["month_"], int(day["day"] or day["day_"])
        return f"on {_month_day(month_name, number, today, ahead)}"
    if (weekday := expression("bare_day").fullmatch(lowered)) is not None:
        name = _ABBREVIATED.get(weekday["day"], weekday["day"])
        return f"on {_weekday(name, today, 0 if ahead else -1)}"
    return words


def _away(count: str, unit: str, today: date, sign: int) -> str:
    if count in ("a few", "few", "several"):
        return f"a few {unit}s {'before' if sign < 0 else 'after'} {today}"
    number = int(count) if count.isdigit() else _COUNTS[count]
    if unit in ("day", "week"):
        day = today + sign * timedelta(days=number * (7 if unit == "week" else 1))
        return f"on {day}" if unit == "day" else f"around {day}"
    if unit == "decade":
        return f"around {today.year + sign * number * 10}"
    return _shifted(unit, sign * number, today)


def _which(what: str, step: int, today: date) -> str:
    if what in DAY_NAMES:
        return f"on {_weekday(what, today, step)}"
    if what in MONTHS:
        return f"in {_month_and_year(what, today, step >= 0)}"
    if what in _SEASONS:
        begun = _SEASONS[what] <= today.month
        return f"in the {what} of {today.year + (step > 0 and begun) - (step < 0 and not begun)}"
    return _shifted(what, step, today)


def _shifted(unit: str, step: int, today: date) -> str:
    """The week, weekend, month or year that lies so many after today's; "" for another word."""
    match unit:
        case "week" | "weekend":
            monday = today - timedelta(days=today.weekday()) + timedelta(weeks=step)
            if unit == "week":
                return f"in the week of {monday}"
            return f"on the weekend of {monday + timedelta(days=5)}"
        case "month":
            months = today.year * 12 + today.month - 1 + step
            return f"in {_month_of(date(months // 12, months % 12 + 1, 1))}"
        case "year":
            return f"in {today.year + step}"
    return ""


def _weekday(name: str, today: date, step: int) -> date:
    ahead = (DAY_NAMES.index(name) - today.weekday()) % 7
    if step < 0:
        return today - timedelta(days=7 - ahead)
    return today + timedelta(days=ahead or (7 if step else 0))


def _month_day(month: str | None, day: int, today: date, ahead: bool) -> date:
    """The next such day or the last one; today's where it is today."""
    number = today.month if month is None else MONTHS.index(month) + 1
    found = date(today.year, number, day)
    if (found >= today) if ahead else (found <= today):
        return found
    if month is not None:
        return found.replace(year=today.year + (1 if ahead else -1))
    return (today.replace(day=1) + timedelta(days=32 if ahead else -1)).replace(day=day)


def _month_and_year(month: str, today: date, ahead: bool) -> str:
    number = MONTHS.index(month) + 1
    year = today.year + (number < today.month if ahead else -(number > today.month))
    return f"{month.capitalize()} {year}"


def _month_of(day: date) -> str:
    return f"{MONTHS[day.month - 1].capitalize()} {day.year}"
