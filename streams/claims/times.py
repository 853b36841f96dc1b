"""When something is: the time that stands at the end of a clause, and the date that it means. Pure.

Relative words become the date: "last month" becomes "in February 2026". What may mean two days
stays as it was.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Final, Literal, NamedTuple

from palimpsest.streams.text.dates import DAY_NAMES, MONTHS

_SEASONS: Final = ("spring", "summer", "autumn", "fall", "winter")
_COUNTS: Final = {
    word: number
    for number, word in enumerate(
        "one two three four five six seven eight nine ten eleven twelve".split(), start=1
    )
} | {"a": 1, "an": 1, "a couple of": 2}
_MONTH: Final = "|".join(MONTHS)
_ABBREVIATED: Final = {day[:3]: day for day in DAY_NAMES} | {"tues": "tuesday", "thurs": "thursday"}
_DAY: Final = "|".join((*DAY_NAMES, "thurs", "tues", *(day[:3] for day in DAY_NAMES)))
_SEASON: Final = "|".join(_SEASONS)
_COUNT: Final = r"\d{1,3}|" + "|".join(sorted(_COUNTS, key=len, reverse=True))
_UNIT: Final = "days?|weeks?|months?|years?|decades?"
_ROUGHLY: Final = (
    r"(?:about |around |over |almost |nearly |more than |just over |just under |at least )?"
)
_MANY: Final = (
    rf"(?:{_COUNT}|a few|several|many|some|the (?:past|last) (?:few|couple of|{_COUNT})|a while)"
)

TimeKind = Literal["point", "now", "since", "span", "frequency", "until"]


class Time(NamedTuple):
    """A time: `point` is when something happened or will, `now` says only that it is so today,
    `since` tells its beginning, `span` how long, `frequency` how often,
    `until` when it ends."""

    kind: TimeKind
    words: str


_NOW: Final = (
    r"(?:right )?now|these days|nowadays|currently|lately|at this point|anymore|any more|as of"
    r" (?P<asof>[A-Z][a-z]+ \d{4})"
)
_POINT: Final = (
    r"the day before yesterday|the day after tomorrow|yesterday|today|tonight|tomorrow|last night"
    r"|this (?:morning|afternoon|evening)|recently|earlier (?:today|this (?:week|month|year))"
    rf"|(?:(?:just|earlier|later) )?(?:on )?(?:last|next|this|this past|this coming) (?:{_DAY}"
    rf"|week(?:end)?|month|year|{_SEASON}|{_MONTH})|(?:{_ROUGHLY}(?:{_COUNT}|a few|several)"
    rf" (?:{_UNIT}) ago)|(?:back |early |late )?in (?:early |late |mid-?)?(?:{_MONTH})(?:,? (?:of"
    rf" )?\d{{4}})?|(?:back )?in (?:the )?(?:{_SEASON})(?: (?:of )?\d{{4}})?|(?:back )?in \d{{4}}"
    rf"|in the \d{{4}}s|in (?:{_COUNT}) (?:{_UNIT})|on (?:the )?(?:{_DAY}|\d{{4}}-\d\d-\d\d)|on"
    rf" (?:{_DAY},? )?(?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?: (?:of )?(?:{_MONTH}))?(?:,? \d{{4}})?"
    rf"|on (?:{_MONTH}) \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|in the week of \d{{4}}-\d\d-\d\d"
    rf"|on the weekend of \d{{4}}-\d\d-\d\d|as an? (?:kid|child|teenager)|when I was (?:an?"
    rf" )?(?:kid|child|teenager|younger|young|little)|in (?:high|middle|elementary|grad) school|in"
    rf" college|in [A-Z][a-z]+ \d{{4}}|around \d{{4}}-\d\d-\d\d"
)
_SPAN: Final = (
    rf"for {_ROUGHLY}{_MANY}(?: (?:more|good))?(?: (?:{_UNIT}))?(?: now| already)?|(?:for"
    rf" )?(?:almost |nearly )?(?:all|most of) (?:my|her|his|their) life|(?:in|over) the (?:past"
    rf"|last) (?:few|couple of|{_COUNT}) (?:{_UNIT})|for the (?:whole |rest of the |entire"
    rf" )?(?:{_SEASON}|semester|term|school year|year|month|week"
    r"|weekend|holidays|time being)|at the moment|at present|for now"
)
CALENDAR: Final = (
    rf"\d{{4}}-\d\d-\d\d|(?:the )?\d{{1,2}}(?:st|nd|rd|th)? (?:of )?(?:{_MONTH})(?:,? \d{{4}})?"
    rf"|(?:{_MONTH}) \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?"
)
_SINCE: Final = (
    rf"(?:since|from) (?:{CALENDAR})|from (?:(?:{_MONTH}) )?\d{{4}}|since (?:(?:early |late"
    rf" )?(?:{_MONTH})(?: (?:of )?\d{{4}})?|\d{{4}}|last (?:{_MONTH}|{_SEASON}|year|month|week)"
    rf"|childhood|birth|college|university|high school|the (?:pandemic|{_SEASON})"
    r"|(?:I|she|he|they) (?:was|were) (?:\d{1,2}|an? (?:kid|child|teenager|baby)|little|young"
    r"|born))"
)
_UNTIL: Final = (
    rf"(?:until|till) (?:{CALENDAR})|(?:until|till) (?:the )?(?:end of )?(?:the )?(?:(?:next|this)"
    rf" )?(?:{_DAY}|{_MONTH}|{_SEASON}"
    r"|tomorrow|week(?:end)?|month|year|\d{4})(?: \d{1,2}(?:st|nd|rd|th)?)?(?:,? \d{4})?"
)
_SPAN_ONE: Final = (
    r"day|night|morning|afternoon|evening|week|weekend|month|year|summer|winter|spring|fall"
)
_FREQUENCY: Final = (
    rf"(?:almost |nearly )?every (?:other |single |second |few )?(?:{_SPAN_ONE}s?|{_DAY}s?)(?:"
    rf" (?:morning|evening|night|afternoon)s?)?|on (?:{_DAY})s(?:(?:, and|,| and)"
    rf" (?:{_DAY})s){{0,5}}|on weekends|on the weekends?|at weekends|on weekdays|(?:once|twice"
    rf"|(?:{_COUNT}) times) (?:an?|per|each) (?:{_SPAN_ONE})|daily|weekly|monthly"
    r"|in the (?:morning|afternoon|evening)s?|at night|(?:in the morning, )?(?:at|around)"
    r" \d{1,2}(?::\d\d)?(?:-\d{1,2})? ?[ap]\.?m\.?|before bed|before work|after work|all the time"
    r"|regularly|sometimes|occasionally|from time to time|on occasion|a lot|often|most days"
)
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
_ALWAYS_CAPITAL: Final = re.compile(rf"(?:{_DAY}|{_MONTH})\b", re.IGNORECASE)
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


_AGO: Final = re.compile(
    rf"{_ROUGHLY}(?P<count>{_COUNT}|a few|several) (?P<unit>day|week|month|year|decade)s? ago"
)
_AHEAD: Final = re.compile(rf"in (?P<count>{_COUNT}) (?P<unit>day|week|month|year)s?")
_WHICH: Final = re.compile(
    r"(?:(?:just|earlier|later) )?(?:on )?(?P<which>last|next|this past|this coming|this)"
    r" (?P<what>\w+)"
)
_BARE_MONTH: Final = re.compile(
    rf"(?:back |early |late )?in (?P<part>early |late |mid-?)?(?P<month>{_MONTH})"
)
_BARE_SEASON: Final = re.compile(rf"(?:back )?in (?:the )?(?P<season>{_SEASON})")
_MONTH_DAY: Final = re.compile(
    rf"on (?:{_DAY},? )?(?:(?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: (?:of"
    rf" )?(?P<month>{_MONTH}))?|(?P<month_>{_MONTH}) (?P<day_>\d{{1,2}})(?:st|nd|rd|th)?)"
)
_BARE_DAY: Final = re.compile(rf"(?:on )?(?P<day>{_DAY})")
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
