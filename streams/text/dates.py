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
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dateparser.date import DateData

MOST_CHARACTERS: Final = 64
MOST_YEARS: Final = 200
"""Before or after the turn: what lies further away was not read as it was meant."""
LANGUAGES: Final = ("en", "de", "fr", "es", "it", "pt", "nl", "ru")
"""In the order in which they are tried; Japanese is put into English first."""

MONTHS: Final = (
    "january february march april may june july august september october november december".split()
)
WEEKDAYS: Final = {
    name: number
    for names in (
        "monday tuesday wednesday thursday friday saturday sunday",
        "montag dienstag mittwoch donnerstag freitag samstag sonntag",
    )
    for number, name in enumerate(names.split())
} | {"sonnabend": 5}
DAY_NAMES: Final = tuple(WEEKDAYS)[:7]
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


# --- Japanese -------------------------------------------------------------------------------
# Put into English, which dateparser knows better: by itself it takes 3月15日 for a Monday in
# another century. Only what is wholly one of the forms is taken.

_JAPANESE_WEEKDAYS: Final = dict(zip("月火水木金土日", DAY_NAMES, strict=True))
_JAPANESE_DAYS: Final = {
    "今日": "today", "本日": "today", "明日": "tomorrow", "あした": "tomorrow",
    "明後日": "in 2 days", "あさって": "in 2 days",
}  # fmt: skip
_WHICH: Final = {"今": "this {}", "本": "this {}", "来": "next {}", "再来": "next {} after next"}
_JAPANESE_SPANS: Final = {"週": "week", "月": "month", "年": "year"}
_COUNTED: Final = {
    "日": "days",
    "週間": "weeks",
    "月": "months",
    "年": "years",
    "時間": "hours",
}
_DIGITS: Final = {digit: number for number, digit in enumerate("一二三四五六七八九", start=1)}
_KANJI: Final = re.compile(r"[一二三四五六七八九十]{1,3}(?=日後|週間後|[かヶカヵ箇]月後|年後)")

_DAY_FORMS: Final = (
    r"今日|本日|明日|あした|明後日|あさって"
    r"|(?:今|来|再来)週の?[月火水木金土日]曜日?"
    r"|(?:次の|今度の)?[月火水木金土日]曜日?"
    r"|(?:今|本|来|再来)[週月年](?:末|の終わり|いっぱい|中)?|[週月年]末"
    r"|(?:\d{4}年)?\d{1,2}月(?:\d{1,2}日|末|いっぱい|中)?|\d{4}年(?:末|いっぱい|中)?"
    r"|(?:\d{1,3}|[一二三四五六七八九十]{1,3})(?:日|週間|[かヶカヵ箇]月|年)後"
)
"""What may stand before まで, after NFKC."""
_Reading = Callable[[re.Match[str]], str]


def _dated(match: re.Match[str]) -> str:
    year = f" {match['year']}" if match["year"] else ""
    number = int(match["month"])
    if not 1 <= number <= 12:
        return "nothing"
    day = f"{int(match['day'])} " if match["day"] else ""
    return f"{day}{MONTHS[number - 1]}{year}"


_FORMS: Final[tuple[tuple[re.Pattern[str], _Reading], ...]] = (
    (re.compile("|".join(_JAPANESE_DAYS)), lambda m: _JAPANESE_DAYS[m.group()]),
    (
        re.compile(r"(?P<which>再来|今|来)週の?(?P<day>[月火水木金土日])曜日?"),
        lambda m: f"{_JAPANESE_WEEKDAYS[m['day']]} {_WHICH[m['which']].format('week')}",
    ),
    (
        re.compile(r"(?:次の|今度の)?(?P<day>[月火水木金土日])曜日?"),
        lambda m: _JAPANESE_WEEKDAYS[m["day"]],
    ),
    (
        re.compile(r"(?P<which>再来|今|本|来)(?P<span>[週月年])(?:末|の終わり|いっぱい|中)?"),
        lambda m: _WHICH[m["which"]].format(_JAPANESE_SPANS[m["span"]]),
    ),
    (re.compile(r"(?P<span>[週月年])末"), lambda m: f"end of {_JAPANESE_SPANS[m['span']]}"),
    (
        re.compile(
            r"(?:(?P<year>\d{4})年)?(?P<month>\d{1,2})月(?:(?P<day>\d{1,2})日|末|いっぱい|中)?"
        ),
        _dated,
    ),
    (re.compile(r"(?P<year>\d{4})年(?:末|いっぱい|中)?"), lambda m: m["year"]),
    (
        re.compile(r"(?P<count>\d{1,3})(?:[かヶカヵ箇])?(?P<unit>日|週間|月|年|時間)後"),
        lambda m: f"in {m['count']} {_COUNTED[m['unit']]}",
    ),
)
_TO: Final = re.compile(r"まで(?:に)?$")


def _in_english(text: str) -> str | None:
    """The words of a day after NFKC, with or without まで, in English; None for all else."""
    if text.isascii():
        return None
    plain = _KANJI.sub(lambda m: str(_number(m.group())), _TO.sub("", text.replace(" ", "")))
    for form, read in _FORMS:
        match = form.fullmatch(plain)
        if match is not None:
            return read(match)
    return None


def _number(kanji: str) -> int:
    tens, ten, ones = kanji.rpartition("十")
    return (_DIGITS.get(tens, 1) * 10 if ten else 0) + _DIGITS.get(ones, 0)


# --- sentences ------------------------------------------------------------------------------

_MONTH: Final = f"{'|'.join(MONTHS)}|januar|jänner|februar|märz|mai|juni|juli|oktober|dezember"
_IN_YEAR: Final = r"(?:20|21)\d\d"
_COUNT: Final = (
    r"\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten"
    "|eine[mr]|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn"
)
_UNIT: Final = "days?|weeks?|months?|years?|tag(?:en)?|wochen?|monat(?:en)?|jahr(?:en)?"
_PERIOD: Final = "day|week(?:end)?|month|quarter|year"
_SPANNE: Final = "(?:tage|wochenende|monat|quartal|jahre)s|woche"
_AT_THE_END: Final = rf"(?:{_MONTH})(?: {_IN_YEAR})?|{_IN_YEAR}"
"""Names and numbers too: a time only where nothing follows that makes them the subject or more of
a number."""
_WORDED: Final = (
    rf"(?:(?:next|this|coming|nächste[nrm]?|kommende[nrm]?) )?(?:{_DAY})"
    r"(?: (?:next|this) week| nächster woche)?"
    r"|today|tonight|tomorrow|the day after tomorrow|heute|morgen|übermorgen"
    rf"|(?:the )?end of (?:(?:the|this|next) )?(?:{_PERIOD}|{_AT_THE_END})"
    rf"|ende (?:(?:des|der|dieser|dieses|nächster|nächsten) )?"
    rf"(?:{_SPANNE}|{_AT_THE_END})|monatsende|jahresende"
    rf"|(?:this|next) (?:{_PERIOD})|nächste[nrs]? (?:woche|monat|jahr)"
)
_NAMED_DAY: Final = (
    r"\d{4}-\d\d-\d\d"
    rf"|(?:{_MONTH}) \d{{1,2}}(?:st|nd|rd|th)?(?:,? {_IN_YEAR})?"
    rf"|(?:the )?\d{{1,2}}(?:st|nd|rd|th|\.)? (?:of )?(?:{_MONTH})(?:,? {_IN_YEAR})?"
    rf"|\d{{1,2}}\. ?\d{{1,2}}\. ?{_IN_YEAR}"
)
_STOP: Final = r"(?![\w'’-])(?!\.\d)"
_CLOSED: Final = (
    rf"{_STOP}(?=\s*(?:$|[.,;:!?)]|and\b|but\b|because\b|und\b|aber\b|weil\b|gültig\b))"
)
_UNTIL: Final = (
    r"until|till|(?:valid|good|runs?|lasts?|open|closed) through"
    "|bis(?: spätestens)?(?: zum| zur| einschließlich)?"
)
_VERB: Final = r"(?:expires?|ends?|runs out|is over|endet|verfällt|läuft)"
_ENDING: Final = rf"{_VERB}(?: on| by| at| am| bis(?: zum)?| zum)?"
_DATE: Final = rf"(?:(?:{_NAMED_DAY}|{_WORDED}){_STOP}|(?:{_AT_THE_END}){_CLOSED})"
_STATED: Final = re.compile(
    rf"\b(?:(?P<until>{_UNTIL}|{_ENDING}) (?:the )?(?P<when>{_DATE})"
    rf"|{_VERB} (?P<after>in (?:{_COUNT}) (?:{_UNIT})){_STOP})",
    re.IGNORECASE,
)
_JAPANESE: Final = re.compile(
    rf"(?<![\d一二三四五六七八九十今毎])(?P<when>{_DAY_FORMS})まで(?!に(?:は)?ない)"
)
_HINTS: Final = ("until", "till", "through", "expire", "end", "runs out", "over", "bis", "läuft",
                 "verfällt")  # fmt: skip

_HABIT: Final = re.compile(
    r"\b(?:every|each|always|usually|often|sometimes|normally|jede[nrsm]?|immer|meistens|oft"
    r"|gewöhnlich|normalerweise)\b|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days\b|毎|いつも",
    re.IGNORECASE,
)
_RANGE: Final = re.compile(
    rf"(?:\b(?:from|between|von|vom|zwischen)\b[^.;]*|\b(?:{_DAY}) ?)$|から[^。]*$", re.IGNORECASE
)
"""What stands before the end of a span: "from Monday until Friday" may begin after this Friday."""
_PAST: Final = re.compile(
    r"\b(?:was|were|had|did|didn't|got|went|came|kept|ran|lost|took|slept|left|thought|knew|said"
    r"|stayed|lasted|worked|lived|waited|used to"
    r"|(?<!\bis )(?<!\bare )(?<!\bbe )(?<!\bstay )(?<!\bstays )(?<!\bremains )[a-z]{3,}ed"
    r"|war(?:en|st)?|hatten?|wurden?|blieb(?:en)?"
    r"|ging(?:en)?|lief(?:en)?|dauerte|arbeitete|wohnte|lebte|wartete)\b",
    re.IGNORECASE,
)
_PAST_JAPANESE: Final = re.compile(r"(?:した|った|いた|んだ|きた|けた|えた|れた|だった)(?:。|$)")
_DENIED: Final = re.compile(
    r"\b(?:not|never|no longer|nicht|nie|kein\w*)\b|n['’]t\b", re.IGNORECASE
)
_IF: Final = re.compile(
    r"\b(?:if|unless|would|could|might|maybe|perhaps|wenn|falls|vielleicht|würde\w*|könnte\w*)\b"
    r"|もし|かもしれ|たら",
    re.IGNORECASE,
)
_YEAR_TOLD: Final = re.compile(_IN_YEAR)


def stated_end(text: str, said_at: datetime) -> datetime | None:
    """When what the text says ends, in UTC; None where it does not say. `said_at` has the offset
    from UTC of who says it."""
    plain = unicodedata.normalize("NFKC", text)
    if plain.isascii() and not any(map(plain.lower().__contains__, _HINTS)):
        return None
    if _HABIT.search(plain) or _IF.search(plain):
        return None
    match = _JAPANESE.search(plain) or _STATED.search(plain)
    if match is None:
        return None
    words = match["when"] or match["after"]
    before = plain[: match.start()]
    told = match.groupdict().get("until") or "ends"
    is_ending = re.match(r"(?:exp|end|run|is|verf|läuft)", told, re.IGNORECASE) is not None
    if _RANGE.search(before) or (is_ending and _DENIED.search(before)):
        return None
    if not _YEAR_TOLD.search(words) and _is_past(plain, before):
        return None
    end = end_of(words, said_at)
    return None if end is None or end < said_at else end


def _is_past(text: str, before: str) -> bool:
    """Whether it is told of what was: its Friday is one of before."""
    return bool(_PAST.search(before) or _PAST_JAPANESE.search(text))
