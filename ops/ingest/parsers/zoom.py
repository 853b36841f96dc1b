"""The chat that Zoom saves of a meeting: a line with the time of day and the names of sender and
receiver before each message, or, from the cloud, the time since the recording began.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import PurePosixPath
from typing import Final

from palimpsest.ops.ingest.parsers.base import (
    Bad,
    Document,
    Item,
    Keys,
    LeftOut,
    Note,
    ReadOptions,
    Unreadable,
    Utterance,
    later,
    named,
    said,
    told_time,
    with_offset,
)

_CLOCK: Final = (
    r"(?:(?P<date>\d{4}-\d{2}-\d{2}) )?(?P<hour>\d{1,2}):(?P<minute>\d{2}):(?P<second>\d{2})"
)
_FROM: Final = "|".join(
    "From Von De Da Van Från Fra Od От Dari Từ Kimden 自 来自 來自 寄件者 開始 发件人".split()
)
_TO: Final = "|".join(
    "to To an An à À a A para Para aan till til do кому для kepada đến 到 至 に 수신자".split()
)
_HEAD: Final = re.compile(
    rf"{_CLOCK}[ \t]+(?:{_FROM})[ \t]+(?P<name>[^\t\n:]{{1,100}}?)"
    rf"(?:[ \t]+(?:{_TO})[ \t]+(?P<whom>[^\t\n:]{{1,200}}?))?[ \t]*[:：](?P<text>.*)"
)
_CLOUD: Final = re.compile(rf"{_CLOCK}\t(?P<name>[^\t\n]{{1,100}}?):\t(?P<text>.*)")
_COLON_IN_NAME: Final = re.compile(
    rf"{_CLOCK}[ \t]+(?:{_FROM})[ \t]+(?P<name>[^\t\n:]{{1,60}}(?<![ \t]):[^\t\n:]{{1,60}}?)"
    rf"[ \t]+(?:{_TO})[ \t]+(?P<whom>[^\t\n:]{{1,200}}?)[ \t]*[:：](?P<text>)"
)
"""The line of a sender and a receiver with a colon in the sender's name."""
_REACTION: Final = re.compile(
    r"\s*(?:Reacted to \".*\" with .{1,40}|Removed an? .{1,40} reaction from \".*\")", re.DOTALL
)
_REPLY: Final = re.compile(r"Replying to \"[^\n]{0,300}\"[^\S\n]*+\n\s*+")
"""Before an answer: the beginning of what it answers."""
_PRIVATE: Final = re.compile(r"[(（][^()（）]{1,40}[)）]$")
"""After the name of the only receiver: (Direct Message), (Privately)."""
_FOLDER: Final = re.compile(r"(?:^|/)(\d{4}-\d{2}-\d{2})[ _]\d{2}[.:_]\d{2}")
"""Date in the name of the folder of a meeting."""
_USUAL: Final = re.compile(r"(?:meeting_saved_(?:new_)?)?chat(?: ?\(\d{1,3}\))?")
"""What Zoom calls the file of every meeting."""
_LINES: Final = 30
"""Number of lines by which a chat is recognised."""


@dataclass(slots=True)
class _Entry:
    """A message as it stands in the file. `day` is None where only its time is told; `is_offset`:
    that is counted from the beginning of the recording."""

    line: int
    day: date | None
    clock: timedelta
    is_offset: bool
    speaker: str
    is_private: bool
    lines: list[str]


def is_zoom(text: str) -> bool:
    """Whether the first line with words begins a message, or the file has several that do."""
    lines = [line.rstrip("\r") for line in text.split("\n")[:_LINES] if line.strip()]
    found = [_begins(line) is not None for line in lines]
    return bool(found) and (found[0] or sum(found) > 1)


def read_zoom(document: Document, options: ReadOptions) -> Iterator[Item]:
    """Yields the messages in order. A line that begins none continues the one before it. Raises
    Unreadable if there is none."""
    yield from said(_found(document, options))


def _begins(line: str) -> re.Match[str] | None:
    return _COLON_IN_NAME.fullmatch(line) or _HEAD.fullmatch(line) or _CLOUD.fullmatch(line)


def _found(document: Document, options: ReadOptions) -> Iterator[Item | LeftOut]:
    entries: list[_Entry] = []
    before = 0
    for number, raw in enumerate(document.text.split("\n"), 1):
        line = raw.rstrip("\r")
        begins = _begins(line)
        if begins is not None:
            entries.append(_entry(number, begins))
        elif entries:
            entries[-1].lines.append(line.removeprefix("\t"))
        elif line.strip():
            before += 1
    if not entries:
        raise Unreadable("no chat of Zoom: no line with a time and `From`")
    yield from (LeftOut("lines before the first message") for _ in range(before))
    day, why = _day(document, options)
    if entries[0].is_offset:
        began = f"{options.now:%Y-%m-%d %H:%M:%S} UTC"
        yield Note(f"the chat tells times from its beginning only; it is taken to begin at {began}")
    elif entries[0].day is None:
        yield Note(f"the chat tells times of day only; its date is taken as {day} ({why})")
    session = options.session or _session(document)
    keys = Keys("zoom", session)
    for entry in entries:
        text = "\n".join(entry.lines).strip()
        if _REACTION.fullmatch(text):
            yield LeftOut("reactions")
            continue
        text = _REPLY.sub("", text, count=1).strip()
        if not text:
            yield LeftOut("messages without words")
            continue
        place = f"{document.name}:{entry.line}"
        at = _moment(entry, day, options)
        if at is None:
            yield Bad(place, f"a time that does not exist: {entry.clock}")
            continue
        parts = (str(entry.clock), entry.speaker, text)
        named_so = keys.of_content(*parts, told=_told(entry, options), is_dated=False)
        naming = replace(named_so, is_relative=entry.day is None)
        yield Utterance(
            place=place,
            key=naming.key_as(session),
            naming=naming.fixed() if options.session else naming,
            text=text,
            at=at,
            session=session[:256],
            speaker=entry.speaker,
            metadata={"private": True} if entry.is_private else {},
        )


def _entry(number: int, begins: re.Match[str]) -> _Entry:
    parts = begins.groupdict()
    clock = timedelta(
        hours=int(parts["hour"]), minutes=int(parts["minute"]), seconds=int(parts["second"])
    )
    day = date.fromisoformat(parts["date"]) if parts["date"] and _is_day(parts["date"]) else None
    is_private = _PRIVATE.search(parts.get("whom") or "") is not None
    name = named(parts["name"])
    return _Entry(number, day, clock, begins.re is _CLOUD, name, is_private, [parts["text"]])


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _day(document: Document, options: ReadOptions) -> tuple[date, str]:
    """Returns the day of the meeting, and how it is known: by the folder that Zoom made for it, or
    by the time of the file."""
    found = _FOLDER.findall(document.name)
    if found and _is_day(found[-1]):
        return date.fromisoformat(found[-1]), "as its folder is called"
    why = "as --since says" if options.since else "the file's own"
    return options.now.astimezone(options.zone).date(), why


def _moment(entry: _Entry, day: date, options: ReadOptions) -> datetime | None:
    if entry.is_offset:
        return later(options.now, entry.clock)
    midnight = datetime.combine(entry.day or day, datetime.min.time())
    return with_offset(later(midnight, entry.clock), options.zone)


def _told(entry: _Entry, options: ReadOptions) -> str:
    """Returns what is told of the day of a message, or of the beginning that it counts from."""
    if entry.day is not None:
        return entry.day.isoformat()
    if options.since is None:
        return ""
    if entry.is_offset:
        return told_time(options.since)
    return options.since.astimezone(options.zone).date().isoformat()


def _session(document: Document) -> str:
    """Returns the name of the meeting: that of the folder where the file has the name of all."""
    folder = PurePosixPath(document.name.rpartition(": ")[2]).parent.name
    return f"{folder} chat" if folder and _USUAL.fullmatch(document.stem) else document.stem
