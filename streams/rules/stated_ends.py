"""Sentences that say until when something is so: "until Friday", "bis Ende März", 3月末まで. Pure.

What is no date for sure gives none: a memory that is taken for over is worse than one that stays.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime
from typing import Final

from palimpsest.streams.text.end_dates import WEEKDAYS, end_of
from palimpsest.streams.text.japanese_dates import DAY_FORMS

_DAY: Final = "|".join(WEEKDAYS)
_MONTH: Final = (
    "january|february|march|april|may|june|july|august|september|october|november|december"
    "|januar|jänner|februar|märz|mai|juni|juli|oktober|dezember"
)
_YEAR: Final = r"(?:20|21)\d\d"
_COUNT: Final = (
    r"\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten"
    "|eine[mr]|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn"
)
_UNIT: Final = "days?|weeks?|months?|years?|tag(?:en)?|wochen?|monat(?:en)?|jahr(?:en)?"
_SPAN: Final = "day|week(?:end)?|month|quarter|year"
_SPANNE: Final = "(?:tage|wochenende|monat|quartal|jahre)s|woche"
_WORDED: Final = (
    rf"(?:(?:next|this|coming|nächste[nrm]?|kommende[nrm]?) )?(?:{_DAY})"
    r"(?: (?:next|this) week| nächster woche)?"
    r"|today|tonight|tomorrow|the day after tomorrow|heute|morgen|übermorgen"
    rf"|(?:the )?end of (?:(?:the|this|next) )?(?:{_SPAN}|(?:{_MONTH})(?: {_YEAR})?|{_YEAR})"
    rf"|ende (?:(?:des|der|dieser|dieses|nächster|nächsten) )?"
    rf"(?:{_SPANNE}|(?:{_MONTH})(?: {_YEAR})?|{_YEAR})|monatsende|jahresende"
    rf"|(?:this|next) (?:{_SPAN})|nächste[nrs]? (?:woche|monat|jahr)"
)
_NAMED_DAY: Final = (
    r"\d{4}-\d\d-\d\d"
    rf"|(?:{_MONTH}) \d{{1,2}}(?:st|nd|rd|th)?(?:,? {_YEAR})?"
    rf"|(?:the )?\d{{1,2}}(?:st|nd|rd|th|\.)? (?:of )?(?:{_MONTH})(?:,? {_YEAR})?"
    rf"|\d{{1,2}}\. ?\d{{1,2}}\. ?{_YEAR}"
)
_AT_THE_END: Final = rf"(?:{_MONTH})(?: {_YEAR})?|{_YEAR}"
"""Names and numbers too: a time only where nothing follows that makes them the subject or more of
a number."""
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
    rf"(?<![\d一二三四五六七八九十今毎])(?P<when>{DAY_FORMS})まで(?!に(?:は)?ない)"
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
_YEAR_TOLD: Final = re.compile(_YEAR)


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
