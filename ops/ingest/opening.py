"""Turns a name on the command line into records, for all formats."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias

from palimpsest.ops.ingest.base import (
    Bad,
    Choices,
    Document,
    Item,
    Note,
    Unreadable,
    decoded,
    later,
    parsed,
)
from palimpsest.ops.ingest.formats import FORMATS, PARSERS, format_of_text, members
from palimpsest.ops.ingest.lines import MAX_LINE_BYTES, UNTIMED_STEP, Watch, read_turns, turn_of
from palimpsest.ops.ingest.locomo import read_locomo
from palimpsest.ops.ingest.records import RecordOptions, record_of
from palimpsest.ops.ingest.slack import DAY_FILE, read_slack
from palimpsest.ops.ingest.sources import (
    Bundle,
    Replayed,
    Source,
    bounded,
    refuse_binary,
    source_of,
)
from palimpsest.streams.logs.base import Outgoing

Found: TypeAlias = tuple[Outgoing | Bad | Note, int]
"""An item, and the bytes of the source that it took."""


@dataclass(slots=True)
class OpenedSource:
    """A source that is being read: its format and its records."""

    source: Source
    format: str
    items: Iterator[Found] = field(repr=False)


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """The caller's choices for all sources; None if each source decides."""

    records: RecordOptions
    form: str | None = None
    since: datetime | None = None
    choices: Choices | None = None


@contextmanager
def open_source(name: str, options: IngestOptions) -> Iterator[OpenedSource]:
    """Opens `name` for reading inside the context. Raises Unreadable, also while reading, and
    OSError."""
    source = source_of(name, options.records.now)
    since = options.since or source.time
    choices = replace(options.choices or Choices(since), since=since)
    if source.kind in ("zip", "folder"):
        bundle = source.bundle()
        form, names = members(bundle)
        if options.form not in (None, form):
            raise Unreadable(f"there is {FORMATS[form]} in it, not {FORMATS[str(options.form)]}")
        items = _bundled(source, form, names, bundle, choices)
        yield OpenedSource(source, form, _records(items, form, source, options))
        return
    with source.opened() as file:
        first = file.readline(MAX_LINE_BYTES)
        refuse_binary(first[:64])
        content = _Content(source, first, file)
        form = options.form or format_of_text(first, content.whole)
        yield OpenedSource(source, form, _found(content, form, choices, options))


class _Content:
    """A file whose first line is already read: by lines, or whole if necessary."""

    def __init__(self, source: Source, first: bytes, file: IO[bytes]) -> None:
        self.source = source
        self.first = first
        self._file = file
        self._whole: bytes | None = None

    def whole(self) -> bytes:
        if self._whole is None:
            if self.source.kind == "file":
                self._whole = bounded(Path(self.source.name))
            else:
                self._whole = self.first + self._file.read()
        return self._whole

    def lines(self) -> Replayed:
        if self._whole is not None:
            return Replayed(self._whole, io.BytesIO())
        return Replayed(self.first, self._file)

    def document(self) -> Document:
        return Document(self.source.name, self.source.stem, decoded(self.whole()))


def _found(
    content: _Content, form: str, choices: Choices, options: IngestOptions
) -> Iterator[Found]:
    source = content.source
    if form == "turns":
        return _turns(content, options)
    if form == "locomo":
        name, stem = source.name, source.stem or "stdin"
        found = read_locomo(io.BytesIO(content.whole()), name, stem, options.records)
        return _shared(found, source.size)
    if form == "slack":
        return _records(_slack_day(source, content.whole()), form, source, options)
    return _records(PARSERS[form](content.document(), choices), form, source, options)


def _turns(content: _Content, options: IngestOptions) -> Iterator[Found]:
    watch, source = Watch(), content.source
    records = replace(options.records, now=options.since or source.time)
    if content.first.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        value = parsed(content.document())
        turns = enumerate(value if isinstance(value, list) else [value])
        places = ((f"{source.name}[{number}]", raw) for number, raw in turns)
        yield from _shared((turn_of(raw, at, records, watch) for at, raw in places), source.size)
    else:
        yield from read_turns(content.lines(), source.name, records, watch)
    for warning in watch.warnings():
        yield Note(warning), 0
    if watch.untimed:
        yield _untimed(watch.untimed, source, options), 0


def _shared(items: Iterator[Outgoing | Bad | Note], size: int) -> Iterator[Found]:
    """Reads all items, then yields each with its share of the source's bytes."""
    found = list(items)
    given = 0
    for number, item in enumerate(found, 1):
        upto = size * number // len(found)
        yield item, upto - given
        given = upto


def _untimed(count: int, source: Source, options: IngestOptions) -> Note:
    since = options.since or source.time
    whose = (
        "as --since says"
        if options.since
        else "the time of reading"
        if source.kind == "stdin"
        else "the file's own time"
    )
    return Note(
        f"{count} turns tell no time (occurred_at): taken as {since:%Y-%m-%d %H:%M:%S} UTC,"
        f" {whose}, in their order"
    )


def _records(
    items: Iterator[Item], form: str, source: Source, options: IngestOptions
) -> Iterator[Found]:
    """Yields utterances as records. One without a time follows the previous one of its session by
    UNTIMED_STEP; the first of a session gets the source's own time, and a note says so."""
    return _shared(_dated(items, form, source, options), source.size)


def _dated(
    items: Iterator[Item], form: str, source: Source, options: IngestOptions
) -> Iterator[Outgoing | Bad | Note]:
    begin = options.since or source.time
    last: dict[str, datetime] = {}
    untimed = following = 0
    for item in items:
        if isinstance(item, Bad | Note):
            yield item
            continue
        at, before = item.at, last.get(item.session)
        if at is None and before is not None:
            at = later(before, UNTIMED_STEP)
            following += 1
        elif at is None:
            at = later(begin, untimed * UNTIMED_STEP)
            untimed += 1
        if item.at is not None or before is not None:
            last[item.session] = at
        yield record_of(item, at, form, options.records)
    if following:
        yield Note(f"{following} turns tell no time: they follow those before them")
    if untimed:
        yield _untimed(untimed, source, options)


def _bundled(
    source: Source, form: str, names: list[str], bundle: Bundle, choices: Choices
) -> Iterator[Item]:
    if form == "slack":
        days = [(name, _channel(name, source.stem)) for name in names]
        users = next((n for n in bundle.names if PurePosixPath(n).name == "users.json"), None)
        people = bundle.read(users) if users else _beside(Path(source.name))
        yield from read_slack(source.name, days, people, bundle.read)
        return
    for name in names:
        # A chat in an archive is often called _chat.txt: only the archive's name identifies it.
        document = Document(f"{source.name}: {name}", source.stem, decoded(bundle.read(name)))
        try:
            yield from PARSERS[form](document, choices)
        except Unreadable as error:
            yield Bad(document.name, str(error))


def _channel(name: str, otherwise: str) -> str:
    match = DAY_FILE.match(name)
    return (match[1] if match else None) or otherwise


def _slack_day(source: Source, data: bytes) -> Iterator[Item]:
    path = Path(source.name).resolve()
    channel = "" if source.kind == "stdin" else path.parent.name
    users = None if source.kind == "stdin" else _beside(path)
    days = [(source.name, channel)]
    return read_slack(source.name, days, users, lambda _: data)


def _beside(path: Path) -> bytes | None:
    """Reads users.json from a file's folder or the folder above it; None if there is none."""
    for folder in path.resolve().parents[:2]:
        if (folder / "users.json").is_file():
            return bounded(folder / "users.json")
    return None
