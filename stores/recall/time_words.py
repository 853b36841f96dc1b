"""Time filters read from a query: "what did Ana do last week", "since June", 2023-05..2023-07; and
which statements tell a time.

An own small grammar (`stores.recall.time_grammar`), one table, tested word by word, and not the
`dateparser` package: it gives points in time where a filter needs spans ("last week" is a day),
finds a time in "what may I march for", and takes 9 ms a query instead of .4 (decision 108).

What is ambiguous is left alone: a plain month or year needs a word such as "in" or "since" before
it (May and March are verbs, April, June and August people), and in lower case "may 8" and
"march 3" do, too; abbreviated weekdays, dates such as 5/8/2023, seasons and the future are not
read.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from palimpsest.stores.recall.time_grammar import (
    LEADS,
    LINKS,
    OPEN_AFTER,
    OPEN_BEFORE,
    SHAPES,
    TAILS,
    TOLD,
    TOLD_UNSPACED,
    Shape,
    Span,
)

MAX_QUERY_CHARACTERS = 2_000
"""What lies beyond is not read for times."""

_WORD = re.compile(r"[^\W_]")
_WORDS = re.compile(r"[^\W_]+")
_VERBS = re.compile(r"may|march|mar")


@dataclass(frozen=True, slots=True)
class TimeFilter:
    """Times from `since` on and before `until`, both UTC, None where open; `words` are those of
    the query that say so, in order, and `rest` is the query without them, both after NFKC. Without
    words there is no filter. `strict`: they are written as a filter (`last_week`, a range with two
    dots) or are all there is, and not part of a sentence."""

    since: datetime | None = None
    until: datetime | None = None
    words: tuple[str, ...] = ()
    rest: str = ""
    strict: bool = False

    def __bool__(self) -> bool:
        return bool(self.words)


@dataclass(frozen=True, slots=True)
class _Found:
    """A time where it stands in the text, with the little words around it. `kind` is a key of
    LEADS or TAILS, or `plain`."""

    match: re.Match[str]
    shape: Shape
    start: int
    end: int
    kind: str


def read_times(query: str, now: datetime) -> TimeFilter:
    """The time filter that a query asks for, reckoned from `now`.

    Days begin at midnight in the zone of `now`, weeks on Monday. Several times: the span from the
    first to the last of plain ones ("in May or June"), cut by those with "since", "before"... A
    filter that would leave nothing ("after 2023 and before 2020") is none. Raises ValueError for a
    `now` without a zone.
    """
    if now.tzinfo is None:
        raise ValueError("now must have a time zone")
    text = unicodedata.normalize("NFKC", query[:MAX_QUERY_CHARACTERS])
    bounds = _Bounds(text, now.replace(tzinfo=None, microsecond=0), now.tzinfo)
    left = _times_in(text)
    while left:
        time, *left = left
        if left and _is_range(text, time, left[0]) and bounds.add_range(time, left[0]):
            del left[0]
        else:
            bounds.add(time)
    return bounds.result(query[MAX_QUERY_CHARACTERS:])


def tells_time(text: str) -> bool:
    """Whether a text says when something was or will be, by single words: far quicker than
    `read_times`, and for statements, of which there are hundreds a query. Linear time."""
    text = text[:MAX_QUERY_CHARACTERS]
    if not TOLD.isdisjoint(_WORDS.findall(text.casefold())):
        return True
    return not text.isascii() and TOLD_UNSPACED.search(text) is not None


class _Bounds:
    """The spans and limits found so far, in UTC; `now` is the time in the zone."""

    def __init__(self, text: str, now: datetime, zone: tzinfo) -> None:
        self._text = text
        self._now = now
        self._zone = zone
        self._spans: list[Span] = []
        self._since: list[datetime] = []
        self._until: list[datetime] = []
        self._places: list[tuple[int, int]] = []

    def add(self, time: _Found) -> None:
        try:
            start, end = map(self._utc, time.shape.read(time.match, self._now, None))
        except (ValueError, OverflowError):
            return  # 31 June and the year 9999 are no times to search for
        match time.kind:
            case "since" | "after":
                self._since.append(start if time.kind == "since" else end)
            case "before" | "until":
                self._until.append(start if time.kind == "before" else end)
            case _:
                self._spans.append((start, end))
        self._places.append((time.start, time.end))

    def add_range(self, first: _Found, last: _Found) -> bool:
        """From the start of one to the end of the other; False when that is no range."""
        try:
            end = last.shape.read(last.match, self._now, None)[1]
            start = first.shape.read(first.match, self._now, None)[0]
            if not first.match.groupdict().get("year"):
                # "from May to July 2023": the first has the year of the last.
                start = first.shape.read(first.match, self._now, end.year)[0]
            span = self._utc(start), self._utc(end)
        except (ValueError, OverflowError):
            return False
        if span[0] >= span[1]:
            return False
        self._spans.append(span)
        self._places.append((first.start, last.end))
        return True

    def result(self, unread: str) -> TimeFilter:
        """The filter; `unread` is what follows the text."""
        since, until = list(self._since), list(self._until)
        if self._spans:
            since.append(min(start for start, _ in self._spans))
            until.append(max(end for _, end in self._spans))
        low, high = max(since, default=None), min(until, default=None)
        is_empty = low is not None and high is not None and low >= high
        if is_empty or not self._places:
            return TimeFilter()
        words = tuple(self._text[start:end].strip() for start, end in self._places)
        starts, ends = zip(*self._places, strict=True)
        rest = zip((0, *ends), (*starts, len(self._text)), strict=True)
        kept = " ".join(self._text[start:end].strip() for start, end in rest)
        left = f"{kept} {unread}".strip()
        strict = not _WORD.search(left) or any("_" in word or ".." in word for word in words)
        return TimeFilter(low, high, words, left, strict)

    def _utc(self, time: datetime) -> datetime:
        aware = time if time.tzinfo is not None else time.replace(tzinfo=self._zone)
        return aware.astimezone(UTC)


def _times_in(text: str) -> list[_Found]:
    """The times of a text in order; of overlapping ones the first, then the longest."""
    matches = [(match, shape) for shape in SHAPES for match in shape.pattern.finditer(text)]
    matches.sort(key=lambda pair: (pair[0].start(), -pair[0].end()))
    found: list[_Found] = []
    end = 0
    for match, shape in matches:
        if match.start() < end:
            continue
        time = _with_little_words(text, match, shape, found[-1] if found else None)
        if time is not None:
            found.append(time)
            end = match.end()
    return found


def _with_little_words(
    text: str, match: re.Match[str], shape: Shape, previous: _Found | None
) -> _Found | None:
    """The time with its lead or tail; None where it is no time without one."""
    begin = previous.end if previous is not None else 0
    before, after = text[begin : match.start()], text[match.end() :]
    linked = previous is not None and LINKS.fullmatch(before) is not None
    if OPEN_AFTER.match(after):
        return _Found(match, shape, match.start(), match.end() + 2, "since")
    if OPEN_BEFORE.search(before):
        return _Found(match, shape, match.start() - 2, match.end(), "until")
    kind, start, end = "plain", match.start(), match.end()
    if not linked:
        kind, start = _lead(before, match, begin)
    if kind in ("plain", "from", "in"):
        for tail_kind, pattern in TAILS.items():
            tail = pattern.match(after)
            if tail is not None:
                kind, end = tail_kind, match.end() + tail.end()
                break
    if kind != "plain":
        return _Found(match, shape, start, end, kind)
    listed = previous is not None and re.fullmatch(r",?\s*(?:or|oder|или)\s+", before) is not None
    if (shape.needs_lead or _may_be_verb(match)) and not (linked or listed):
        return None
    return _Found(match, shape, start, end, "plain")


def _lead(before: str, match: re.Match[str], begin: int) -> tuple[str, int]:
    """The kind of the little word before a time, and where it begins."""
    for kind, pattern in LEADS.items():
        lead = pattern.search(before)
        if lead is not None:
            # What names its last day is a span whatever stands before it: Russian "s 1 po 31 maya".
            spans = kind == "since" and "last_day" in match.re.groupindex
            return "from" if spans else kind, begin + lead.start()
    return "plain", match.start()


def _may_be_verb(match: re.Match[str]) -> bool:
    """Whether it is a lower-case "may 8" or "march 3" without year and ordinal."""
    groups = match.groupdict()
    said = groups.get("month") or ""
    return (
        _VERBS.fullmatch(said) is not None
        and not groups.get("year")
        and match[0].startswith(said)
        and match[0][-1:].isdecimal()
    )


def _is_range(text: str, first: _Found, last: _Found) -> bool:
    """Whether a word or sign that makes a range stands between two times."""
    if first.kind in ("before", "until", "after"):
        return False
    link = LINKS.fullmatch(text[first.match.end() : last.match.start()])
    return link is not None and (link["and"] is None or first.kind == "between")
