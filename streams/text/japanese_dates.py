"""Japanese words for a day in English, which the readers of dates know better. Pure.

Only what is wholly one of the forms below is taken: dateparser by itself takes 3月15日 for a Monday
in another century.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_WEEKDAYS: Final = dict(
    zip(
        "月火水木金土日",
        ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
        strict=True,
    )
)
_MONTHS: Final = (
    "january february march april may june july august september october november december".split()
)
_DAYS: Final = {
    "今日": "today", "本日": "today", "明日": "tomorrow", "あした": "tomorrow",
    "明後日": "in 2 days", "あさって": "in 2 days",
}  # fmt: skip
_WHICH: Final = {"今": "this {}", "本": "this {}", "来": "next {}", "再来": "next {} after next"}
_SPANS: Final = {"週": "week", "月": "month", "年": "year"}
_UNITS: Final = {"日": "days", "週間": "weeks", "月": "months", "年": "years", "時間": "hours"}
_DIGITS: Final = {digit: number for number, digit in enumerate("一二三四五六七八九", start=1)}
_KANJI: Final = re.compile(r"[一二三四五六七八九十]{1,3}(?=日後|週間後|[かヶカヵ箇]月後|年後)")

DAY_FORMS: Final = (
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
    return f"{day}{_MONTHS[number - 1]}{year}"


_FORMS: Final[tuple[tuple[re.Pattern[str], _Reading], ...]] = (
    (re.compile("|".join(_DAYS)), lambda m: _DAYS[m.group()]),
    (
        re.compile(r"(?P<which>再来|今|来)週の?(?P<day>[月火水木金土日])曜日?"),
        lambda m: f"{_WEEKDAYS[m['day']]} {_WHICH[m['which']].format('week')}",
    ),
    (
        re.compile(r"(?:次の|今度の)?(?P<day>[月火水木金土日])曜日?"),
        lambda m: _WEEKDAYS[m["day"]],
    ),
    (
        re.compile(r"(?P<which>再来|今|本|来)(?P<span>[週月年])(?:末|の終わり|いっぱい|中)?"),
        lambda m: _WHICH[m["which"]].format(_SPANS[m["span"]]),
    ),
    (re.compile(r"(?P<span>[週月年])末"), lambda m: f"end of {_SPANS[m['span']]}"),
    (
        re.compile(
            r"(?:(?P<year>\d{4})年)?(?P<month>\d{1,2})月(?:(?P<day>\d{1,2})日|末|いっぱい|中)?"
        ),
        _dated,
    ),
    (re.compile(r"(?P<year>\d{4})年(?:末|いっぱい|中)?"), lambda m: m["year"]),
    (
        re.compile(r"(?P<count>\d{1,3})(?:[かヶカヵ箇])?(?P<unit>日|週間|月|年|時間)後"),
        lambda m: f"in {m['count']} {_UNITS[m['unit']]}",
    ),
)
_TO: Final = re.compile(r"まで(?:に)?$")


def in_english(text: str) -> str | None:
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
