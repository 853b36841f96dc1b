"""WhatsApp's "Export chat": a text with a date, a time, a speaker and a message per line.

Every phone writes dates in the format of its language, and names neither the format nor the time
zone. The order of day and month is therefore inferred from the whole file and reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Final

from palimpsest.ops.ingest.parsers import DateOrder
from palimpsest.ops.ingest.parsers.base import (
    Bad,
    Document,
    Item,
    Keys,
    LeftOut,
    Naming,
    Note,
    ReadOptions,
    Unreadable,
    Utterance,
    named,
    said,
    with_offset,
)
from palimpsest.ops.ingest.parsers.stamps import OLDEST, Stamp, moment, stamp_of
from palimpsest.schemas.envelope import derived_id
from palimpsest.streams.text.tables import Lexicon

_LEXICON: Final = Lexicon(__name__, "whatsapp.toml")
expression = _LEXICON.expression
_MARKS: Final = dict.fromkeys(
    map(ord, "\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
)
"""Bidirectional marks that WhatsApp inserts; they carry no text."""
_OWN: Final = "\u200e"
"""Begins what WhatsApp itself writes in the place of words, and lines with a file."""
_LABEL: Final = re.compile(rf"{_OWN}\w{{2,20}}(?: \w{{2,20}})?:\s")
"""Before what somebody sent that is no text, but has words: a poll, a place."""
_MARKED_EDIT: Final = re.compile(rf" ?{_OWN}<[^<>\n:：]{{3,80}}>$")
"""At the end of an edited message, in any language; a file's has a name after a colon."""
_MARKED_FILE: Final = re.compile(rf"{_OWN}[^\n]{{1,255}}\.\w{{1,5}} \([^()\n]{{2,60}}\)(?:\n|$)")
"""A file as phones with Android write it, in any language."""
_PAGES: Final = re.compile(rf"^[^\n•]{{1,255}} • {_OWN}\d{{1,6}} [^\s{_OWN}]{{1,20}}")
"""Name and number of pages of a document, before its caption."""
_FILE_NAME: Final = re.compile(
    r"_?(?:WhatsApp[ -]+Chat|(?:Chat|Conversa|Discussion|Чат|Czat)(?: d[eo])? WhatsApp)"
    r"(?: (?:with|mit|con|com|avec|met|с|z)(?= ))?[ -]*",
    re.I,
)
"""What phones write before the name of a chat in that of its file."""
_SPACES: Final = dict.fromkeys(map(ord, "\u202f\u00a0\u2009"), " ")
_KOREAN: Final = re.compile(r"\d\d\. ?\d{1,2}\. ?\d{1,2}\.,? 오[전후]")
"""A stamp whose year comes first and has two digits."""
_SPEAKER: Final = re.compile(r"(?P<name>[^:\n\"“”„«»「」『』]{1,80}?): ?(?P<text>.*)", re.DOTALL)
_KINDS: Final = {
    "files": "media",
    "calls": "calls",
    "deleted messages": "deleted",
    "notices of WhatsApp": "encrypted",
}
"""Expressions by the kind of entries that they tell."""
MUCH_LONGER: Final = 7
"""How many times as long a chat becomes by a wrong number for the year, at least."""
LEAST_DATES: Final = 3
"""Dates that tell that."""
NAMES: Final[dict[DateOrder, str]] = {
    "dmy": "day/month/year",
    "mdy": "month/day/year",
    "ymd": "year/month/day",
}


@dataclass(slots=True)
class _Entry:
    """A raw message: its line, its stamp, and its words."""

    line: int
    stamp: Stamp
    lines: list[str]
    has_file: bool
    newest: int
    """The last year that it can be of."""


def is_whatsapp(text: str) -> bool:
    """Whether one of the first lines begins like a message."""
    return any(stamp is not None and stamp.clock for stamp, _ in map(_match, text.split("\n")[:20]))


def read_whatsapp(document: Document, options: ReadOptions) -> Iterator[Item]:
    """Yields the messages in order; a line that begins no message continues the previous one.
    Raises Unreadable if there is none."""
    entries = list(_entries(document.text, options.now.year + 1))
    readable = [entry for entry in entries if entry.stamp.clock is not None]
    if not readable:
        raise Unreadable("no WhatsApp chat: no line begins with a date, a time and a speaker")
    order, why, is_sure = options.date_order, "as told by --date-order", True
    if order is None:
        order, why, is_sure = date_order(readable)
    yield Note(f"dates are read as {NAMES[order]} ({why}), times as those of {options.zone.key}")
    chat, keys = _chat(document.stem), (Keys(), Keys())
    found = (_said(entry, f"{document.name}:{entry.line}", order, options) for entry in entries)
    yield from said(
        item if not isinstance(item, Utterance) else _named(item, chat, keys, options, is_sure)
        for item in found
    )


def _said(
    entry: _Entry, place: str, order: DateOrder, options: ReadOptions
) -> Utterance | Bad | LeftOut:
    """Returns what somebody said in an entry, without its key and session."""
    rest = "\n".join(entry.lines)
    speech = _SPEAKER.fullmatch(rest)
    if speech is None:
        return LeftOut("notices of WhatsApp")
    text, kind = _words(speech["text"], entry.has_file)
    is_edited = _is_edited(speech["text"])
    if kind:
        return LeftOut(kind)
    if entry.stamp.clock is None:
        return Bad(place, f"a time that cannot be read: {entry.stamp.text}")
    local = moment(entry.stamp, order, entry.newest)
    at = None if local is None else with_offset(local, options.zone)
    if local is None or at is None:
        return Bad(place, f"there is no such date in {NAMES[order]}: {entry.stamp.text}")
    # The order of day and month is a guess, and iPhones tell seconds, other phones not: neither may
    # make two of one message. The same words of a minute are told apart by their number.
    stamp = _minute(local)
    speaker = named(speech["name"].replace(_OWN, "").strip().removeprefix("~"))
    said_there = Utterance(place, stamp, text, at, local.date().isoformat(), speaker)
    other_at = _moment_with_another_year(entry, order)
    naming = Naming(speaker, str, is_edited=is_edited, other_at=other_at)
    return replace(said_there, naming=naming)


def _minute(local: datetime) -> str:
    low, high = sorted((local.month, local.day))
    return f"{local.year}-{low:02}-{high:02} {local:%H:%M}"


def _named(
    item: Utterance, chat: str, keys: tuple[Keys, Keys], options: ReadOptions, is_sure: bool
) -> Utterance:
    """Returns an utterance of `_said` with its key and session; `is_sure`: its date is not
    assumed. `keys` are those as it is read, and as it is with another number for the year."""
    words = " ".join(item.text.split())
    minute, number = item.key, keys[0].count(item.key, item.speaker, words)
    other_at = item.naming.other_at if item.naming is not None else None
    other = _minute(other_at) if other_at else ""
    other_number = keys[1].count(other, item.speaker, words) if other else 0

    def key_as(speaker: str) -> str:
        return derived_id("whatsapp", minute, speaker, words, number)

    def other_as(speaker: str) -> str:
        return derived_id("whatsapp", other, speaker, words, other_number)

    return replace(
        item,
        key=key_as(item.speaker),
        naming=Naming(
            item.speaker,
            key_as,
            is_anywhere=True,
            is_dated=is_sure,
            is_edited=item.naming is not None and item.naming.is_edited,
            other_as=other_as if other else None,
            other_at=other_at,
        ),
        session=options.session or f"{chat} {item.session}".strip(),
    )


def _is_edited(raw: str) -> bool:
    """Whether an entry ends with the mark of an edit."""
    raw = raw.strip()
    return _MARKED_EDIT.search(raw) is not None or (
        expression("edited").search(raw.replace(_OWN, "")) is not None
    )


def _words(raw: str, has_file: bool) -> tuple[str, str]:
    """Returns what a person wrote, or else of what kind the entry is."""
    raw = raw.strip()
    if (unmarked := _MARKED_EDIT.sub("", raw)).strip(_OWN + " "):
        raw = unmarked
    text = expression("edited").sub("", raw.replace(_OWN, "")).strip()
    for kind, name in _KINDS.items():
        if expression(name).fullmatch(text):
            return "", kind
    if not text:
        return "", "messages without words"
    is_file = _MARKED_FILE.match(raw) is not None
    first, _, caption = (part.strip() for part in text.partition("\n"))
    if caption and (is_file or expression("file").fullmatch(first)):
        # Some phones repeat the name of a document.
        return ("", "files") if first.startswith(f"{caption} (") else (caption, "")
    if raw.startswith(_OWN) and not _LABEL.match(raw):
        return "", "files" if has_file or is_file else "notices of WhatsApp"
    if (
        has_file and _OWN in raw and not _LABEL.match(raw)
    ):  # a caption, and what stands for the file
        text = _PAGES.sub("", raw.rpartition(_OWN)[0]).replace(_OWN, "").strip()
    return (text, "") if text else ("", "files")


def _chat(stem: str) -> str:
    """Returns the name of the chat from the name of its file."""
    found = _FILE_NAME.match(stem)
    stem = stem[found.end() :] if found else stem
    return re.sub(r" ?\(\d+\)$", "", stem).strip("_ ")[:200]


def _match(line: str) -> tuple[Stamp | None, str]:
    """Returns the stamp of a line, and the line without marks but those of WhatsApp's own words."""
    clean = line.translate(_MARKS | _SPACES).rstrip("\r")
    return stamp_of(clean.replace(_OWN, "")), clean


def _entries(text: str, newest: int) -> Iterator[_Entry]:
    entry: _Entry | None = None
    for number, line in enumerate(text.split("\n"), 1):
        stamp, clean = _match(line)
        if stamp is None:
            if entry is not None:
                entry.lines.append(clean)
            continue
        if entry is not None:
            yield entry
        entry = _Entry(number, stamp, [_tail(clean, stamp.rest)], clean.startswith(_OWN), newest)
    if entry is not None:
        yield entry


def _tail(line: str, rest: str) -> str:
    """Returns the end of a line that is `rest` without WhatsApp's marks, with them."""
    if _OWN not in line:
        return rest
    left, start = len(rest), len(line)
    while start and (left or line[start - 1] == _OWN):
        start -= 1
        left -= line[start] != _OWN
    return line[start:]


def _moment(entry: _Entry, order: DateOrder) -> datetime | None:
    return moment(entry.stamp, order, entry.newest)


def date_order(entries: Sequence[_Entry]) -> tuple[DateOrder, str, bool]:
    """Returns the order in which all dates exist and time runs back least, how it was inferred,
    and whether something in the chat excludes all others."""
    possible = [order for order in _orders(entries) if all(_moment(e, order) for e in entries)]
    if "ymd" in possible and len(possible) > 1:  # a year of two digits is not told from a day
        possible = [order for order in possible if all(_is_likely(e, order) for e in entries)]
    if len(possible) == 1:
        return possible[0], "no other order gives dates that exist", True
    orders = possible or _orders(entries)
    steps = {order: _steps_back(entries, order) for order in orders}
    fewest = [order for order in orders if steps[order] == min(steps.values())]
    if len(fewest) == 1:
        return fewest[0], "in any other order time would run back", True
    if "ymd" in fewest:
        fewest = _by_length(entries, fewest)
        if len(fewest) == 1:
            return fewest[0], "in any other order the chat would be much longer", True
    by_form, why = _by_form(entries[0].stamp)
    likely = by_form or fewest[0]
    if by_form not in fewest:
        spans = {order: _span(entries, order) for order in fewest}
        usual = [order for order in fewest if order != "ymd"] or fewest
        likely = min(usual, key=lambda order: spans[order])
        shorter = spans[likely] < max(spans.values())
        why = "assumed: the chat is then the shorter" if shorter else "assumed"
    others = ", ".join(f"--date-order {order}" for order in fewest if order != likely)
    return likely, f"{why}; {others} reads them otherwise", False


def _by_length(entries: Sequence[_Entry], orders: list[DateOrder]) -> list[DateOrder]:
    """Returns the orders without the one with the year first if that makes the chat much longer, or
    that alone if all others do: of several dates, as people congratulate each other on the same day
    of each year."""
    spans = {order: _span(entries, order) for order in orders}
    others = min(spans[order] for order in orders if order != "ymd")
    if spans["ymd"] > MUCH_LONGER * others > 0:
        return [order for order in orders if order != "ymd"]
    if len({entry.stamp.date for entry in entries}) < LEAST_DATES:
        return orders
    return ["ymd"] if others > MUCH_LONGER * spans["ymd"] else orders


def _by_form(stamp: Stamp) -> tuple[DateOrder | None, str]:
    """Infers the order from the notation: languages with points or dashes put the day first; AM
    and PM next to numbers without a leading zero are American."""
    if re.match(r"\d+ ?[.-]", stamp.text):
        return "dmy", "as dates with points or dashes are"
    if stamp.capitals and not re.match(r"0\d|\d+/0", stamp.text):
        return "mdy", "assumed from the 12-hour clock"
    return None, ""


def _span(entries: Sequence[_Entry], order: DateOrder) -> float:
    first, last = _moment(entries[0], order), _moment(entries[-1], order)
    return abs((last - first).total_seconds()) if first and last else 0.0


def _orders(entries: Sequence[_Entry]) -> list[DateOrder]:
    if any(entry.stamp.date[0] > 31 for entry in entries) or _KOREAN.match(entries[0].stamp.text):
        return ["ymd"]
    orders: list[DateOrder] = ["dmy", "mdy"]
    return [*orders, "ymd"] if all(_is_likely(entry, "ymd") for entry in entries) else orders


def _is_likely(entry: _Entry, order: DateOrder) -> bool:
    """Whether WhatsApp can have carried a message on that day."""
    at = _moment(entry, order)
    return at is not None and OLDEST <= at.year < entry.newest


def _moment_with_another_year(entry: _Entry, order: DateOrder) -> datetime | None:
    """Returns the time of an entry where the first number of its date is the year and not the last,
    or the other way round; None where it cannot be."""
    for other in ("dmy", "mdy") if order == "ymd" else ("ymd",):
        if max(entry.stamp.date) < 100 and _is_likely(entry, other):
            return _moment(entry, other)
    return None


def _steps_back(entries: Sequence[_Entry], order: DateOrder) -> int:
    moments = [moment for entry in entries if (moment := _moment(entry, order))]
    return sum(later < earlier for earlier, later in pairwise(moments))
