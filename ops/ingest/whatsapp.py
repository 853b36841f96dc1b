"""WhatsApp's "Export chat": a text with a date, a time, a speaker and a message per line.

Every phone writes dates in the format of its language, and names neither the format nor the time
zone. The order of day and month is therefore inferred from the whole file and reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final, cast, get_args

from palimpsest.ops.ingest.base import (
    Bad,
    Document,
    Item,
    Keys,
    Note,
    ReadOptions,
    Unreadable,
    Utterance,
    named,
    with_offset,
)
from palimpsest.ops.ingest.requests import DateOrder
from palimpsest.streams.text.tables import Lexicon

_LEXICON: Final = Lexicon(__name__, "whatsapp.toml")
expression = _LEXICON.expression
_MARKS: Final = dict.fromkeys(
    map(ord, "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2069\ufeff")
)
"""Bidirectional marks that WhatsApp inserts; they carry no text."""
_SPACES: Final = dict.fromkeys(map(ord, "\u202f\u00a0\u2009"), " ")
_LINE: Final = re.compile(
    r"\[?(?P<date>\d{1,4}[./-]\d{1,2}[./-]\d{1,4})\.?,? +(?:at |um )?"
    r"(?P<time>\d{1,2}[:.]\d{2}(?:[:.]\d{2})?)"
    r"(?: ?(?P<half>[APap])\.? ?[Mm]\.?)?(?:\] ?| [-–] )(?P<rest>.*)",
    re.DOTALL,
)
_SPEAKER: Final = re.compile(r"(?P<name>[^:\n\"“”„«»]{1,80}?): ?(?P<text>.*)", re.DOTALL)
NAMES: Final[dict[DateOrder, str]] = {
    "dmy": "day/month/year",
    "mdy": "month/day/year",
    "ymd": "year/month/day",
}


@dataclass(slots=True)
class _Entry:
    """A raw message: the numbers of its date, its time, and the rest."""

    line: int
    stamp: str
    date: tuple[int, int, int]
    clock: tuple[int, int, int]
    rest: str


def is_whatsapp(text: str) -> bool:
    """Whether one of the first lines begins like a message."""
    return any(_match(line) for line in text.split("\n")[:20])


def read_whatsapp(document: Document, options: ReadOptions) -> Iterator[Item]:
    """Yields the messages in order; a line that begins no message continues the previous one.
    Raises Unreadable if there is none."""
    entries = list(_entries(document.text))
    if not entries:
        raise Unreadable("no WhatsApp chat: no line begins with a date, a time and a speaker")
    order, why = options.date_order, "as told by --date-order"
    if order is None:
        order, why = date_order(entries)
    yield Note(f"dates are read as {NAMES[order]} ({why}), times as those of {options.zone.key}")
    keys = Keys("whatsapp")
    system = media = 0
    for entry in entries:
        place = f"{document.name}:{entry.line}"
        said = _SPEAKER.fullmatch(entry.rest)
        if said is None:
            system += 1
            continue
        text = expression("edited").sub("", said["text"]).strip()
        if not text or expression("notice").fullmatch(text):
            media += 1
            continue
        local = _moment(entry, order)
        at = None if local is None else with_offset(local, options.zone)
        if local is None or at is None:
            yield Bad(place, f"there is no such date in {NAMES[order]}: {entry.stamp}")
            continue
        speaker = named(said["name"].removeprefix("~"))
        yield Utterance(
            place=place,
            # The raw stamp: a longer export may be read in another date order, with the same keys.
            key=keys.key(entry.stamp, speaker, text),
            text=text,
            at=at,
            session=options.session or f"{_chat(document.stem)} {local.date().isoformat()}".strip(),
            speaker=speaker,
        )
    if system or media:
        yield Note(
            f"{system + media} entries without words are left out: {system} of WhatsApp itself,"
            f" {media} of media or deleted"
        )


def _chat(stem: str) -> str:
    """Returns the name of the chat from the name of its file."""
    stem = re.sub(r"^_?WhatsApp[ -]+Chat( with|( -))?[ -]*", "", stem, flags=re.I)
    return re.sub(r" ?\(\d+\)$", "", stem).strip("_ ")[:200]


def _match(line: str) -> re.Match[str] | None:
    return _LINE.fullmatch(line.translate(_MARKS | _SPACES).rstrip("\r"))


def _entries(text: str) -> Iterator[_Entry]:
    entry: _Entry | None = None
    for number, line in enumerate(text.split("\n"), 1):
        match = _match(line)
        if match is None:
            if entry is not None:
                entry.rest += "\n" + line.translate(_MARKS).rstrip("\r")
            continue
        if entry is not None:
            yield entry
        date = cast("tuple[int, int, int]", tuple(map(int, re.split(r"[./-]", match["date"]))))
        parts = [*map(int, re.split(r"[:.]", match["time"])), 0]
        half = (match["half"] or "").lower()
        hour = parts[0] % 12 + (12 if half == "p" else 0) if half else parts[0]
        stamp = f"{match['date']} {match['time']}{' ' + half + 'm' if half else ''}"
        entry = _Entry(number, stamp, date, (hour, parts[1], parts[2]), match["rest"])
    if entry is not None:
        yield entry


def _moment(entry: _Entry, order: DateOrder) -> datetime | None:
    year, month, day = (entry.date[order.index(part)] for part in "ymd")
    try:
        return datetime(year + 2000 if year < 100 else year, month, day, *entry.clock)
    except ValueError:
        return None


def date_order(entries: Sequence[_Entry]) -> tuple[DateOrder, str]:
    """Returns the order in which all dates exist and time runs back least, and how it was
    inferred."""
    possible = [order for order in _orders(entries) if all(_moment(e, order) for e in entries)]
    if len(possible) == 1:
        return possible[0], "no other order gives dates that exist"
    orders = possible or _orders(entries)
    steps = {order: _steps_back(entries, order) for order in orders}
    fewest = [order for order in orders if steps[order] == min(steps.values())]
    if len(fewest) == 1:
        return fewest[0], "in any other order time would run back"
    by_form, why = _by_form(entries[0].stamp)
    likely = by_form or fewest[0]
    if by_form not in fewest:
        spans = {order: _span(entries, order) for order in fewest}
        likely = min(fewest, key=lambda order: spans[order])
        shorter = spans[likely] < max(spans.values())
        why = "assumed: the chat is then the shorter" if shorter else "assumed"
    others = ", ".join(f"--date-order {order}" for order in fewest if order != likely)
    return likely, f"{why}; {others} reads them otherwise"


def _by_form(stamp: str) -> tuple[DateOrder | None, str]:
    """Infers the order from the notation: languages with points or dashes put the day first; a
    12-hour clock next to numbers without a leading zero is American."""
    if re.match(r"\d+[.-]", stamp):
        return "dmy", "as dates with points or dashes are"
    if stamp.endswith("m") and not re.match(r"0\d|\d+/0", stamp):
        return "mdy", "assumed from the 12-hour clock"
    return None, ""


def _span(entries: Sequence[_Entry], order: DateOrder) -> float:
    first, last = _moment(entries[0], order), _moment(entries[-1], order)
    return abs((last - first).total_seconds()) if first and last else 0.0


def _orders(entries: Sequence[_Entry]) -> list[DateOrder]:
    if any(entry.date[0] > 31 for entry in entries):
        return ["ymd"]
    return [order for order in get_args(DateOrder) if order != "ymd"]


def _steps_back(entries: Sequence[_Entry], order: DateOrder) -> int:
    moments = [moment for entry in entries if (moment := _moment(entry, order))]
    return sum(later < earlier for earlier, later in pairwise(moments))
