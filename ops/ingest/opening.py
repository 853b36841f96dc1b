"""Turns a name on the command line into records, for all formats."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Final, TypeAlias
from zoneinfo import ZoneInfo

from palimpsest.ops.errors import RequestError
from palimpsest.ops.ingest.formats import FORMATS, PARSERS, format_of_text, members
from palimpsest.ops.ingest.lines import MAX_LINE_BYTES, UNTIMED_STEP, Watch, read_turns, turn_of
from palimpsest.ops.ingest.locomo import read_locomo
from palimpsest.ops.ingest.parsers.base import (
    Bad,
    Document,
    Item,
    Note,
    ReadOptions,
    Unreadable,
    Utterance,
    decoded,
    later,
    parsed,
)
from palimpsest.ops.ingest.parsers.discord_package import (
    describes_package,
    package_files,
    read_package,
)
from palimpsest.ops.ingest.parsers.mail import read_mail
from palimpsest.ops.ingest.parsers.slack import DAY_FILE, read_slack
from palimpsest.ops.ingest.records import record_of
from palimpsest.ops.ingest.requests import Reading
from palimpsest.ops.ingest.sources import (
    Bundle,
    Replayed,
    Source,
    bounded,
    refuse_binary,
    source_of,
)
from palimpsest.ops.settings.sections import Settings
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.text.counts import counted

Found: TypeAlias = tuple[Outgoing | Bad | Note, int]
"""An item, and the bytes of the source that it took."""
CHANNELS: Final = ("channels.json", "groups.json", "mpims.json", "dms.json")
"""Files of a Slack export that list channels, groups and conversations."""
_UNNAMED: Final = re.compile(r"_?chat(?: ?\(\d{1,3}\))?", re.IGNORECASE)
_NAMED: Final = 5
"""How many files that are not read a note names."""


@dataclass(slots=True)
class OpenedSource:
    """A source that is being read: its format and its records."""

    source: Source
    format: str
    items: Iterator[Found] = field(repr=False)


def options_of(
    settings: Settings,
    asked: Reading,
    now: datetime,
    since: datetime | None = None,
    captions: bool = False,
) -> ReadOptions:
    """The options as a person chooses them. Raises RequestError for a time zone that is none."""
    try:
        zone = ZoneInfo(asked.timezone)
    except (ValueError, OSError, LookupError):
        raise RequestError(
            f"there is no time zone {asked.timezone!r}; write it as Europe/Lisbon or UTC"
        ) from None
    return ReadOptions(
        scope=asked.scope,
        max_bytes=settings.log.max_record_bytes,
        now=since or now,
        captions=captions,
        policy=Policy.of(settings.pii),
        zone=zone,
        me=" ".join(asked.me.split()),
        date_order=asked.date_order,
        session=asked.session_id,
        form=asked.format,
        since=since,
    )


@contextmanager
def open_source(name: str | Source, options: ReadOptions) -> Iterator[OpenedSource]:
    """Opens `name` for reading inside the context. Raises Unreadable, also while reading, and
    OSError."""
    source = source_of(name, options.now) if isinstance(name, str) else name
    options = replace(options, now=options.since or source.time)
    if source.kind in ("zip", "folder"):
        bundle = source.bundle()
        form, names = members(bundle)
        if options.form not in (None, form):
            raise Unreadable(f"there is {FORMATS[form]} in it, not {FORMATS[str(options.form)]}")
        items = _bundled(source, form, names, bundle, options)
        yield OpenedSource(source, form, _records(items, form, source, options))
        return
    with source.opened() as file:
        first = file.readline(MAX_LINE_BYTES)
        refuse_binary(first[:64])
        content = _Content(source, first, file)
        form = options.form or format_of_text(first, content.whole)
        yield OpenedSource(source, form, _found(content, form, options))


class _Content:
    """A file whose first line is already read: by lines, or whole if necessary."""

    def __init__(self, source: Source, first: bytes, file: IO[bytes]) -> None:
        self.source = source
        self.first = first
        self._file = file
        self._whole: bytes | None = None

    def whole(self) -> bytes:
        if self._whole is None:
            if self.source.path is not None:
                self._whole = bounded(self.source.path)
            else:
                self._whole = self.first + self._file.read()
        return self._whole

    def lines(self) -> Replayed:
        if self.first[:2] in (b"\xff\xfe", b"\xfe\xff"):  # UTF-16, whose lines end otherwise
            return Replayed(decoded(self.whole()).encode(), io.BytesIO())
        if self._whole is not None:
            return Replayed(self._whole, io.BytesIO())
        return Replayed(self.first, self._file)

    def document(self) -> Document:
        return Document(self.source.name, self.source.stem, decoded(self.whole()))


def _found(content: _Content, form: str, options: ReadOptions) -> Iterator[Found]:
    source = content.source
    if form == "turns":
        return _turns(content, options)
    if form == "locomo":
        name, stem = source.name, source.stem or "stdin"
        found = read_locomo(io.BytesIO(content.whole()), name, stem, options)
        return _shared(found, source.size)
    if form == "slack":
        return _records(_slack_day(source, content.whole()), form, source, options)
    if form == "mail":
        mails = read_mail(source.name, [(source.name, content.whole)], options)
        return _records(mails, form, source, options)
    return _records(PARSERS[form](content.document(), options), form, source, options)


def _turns(content: _Content, options: ReadOptions) -> Iterator[Found]:
    watch, source = Watch(), content.source
    if content.first.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        value = parsed(content.document())
        turns = enumerate(value if isinstance(value, list) else [value])
        places = ((f"{source.name}[{number}]", raw) for number, raw in turns)
        yield from _shared((turn_of(raw, at, options, watch) for at, raw in places), source.size)
    else:
        yield from read_turns(content.lines(), source.name, options, watch)
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


def _untimed(count: int, source: Source, options: ReadOptions) -> Note:
    whose = (
        "as --since says"
        if options.since
        else "the time of reading"
        if source.kind == "stdin"
        else "the file's own time"
    )
    return Note(
        f"{counted(count, 'turns tell no time')} (occurred_at): taken as"
        f" {options.now:%Y-%m-%d %H:%M:%S} UTC, {whose}, in their order"
    )


def _records(
    items: Iterator[Item], form: str, source: Source, options: ReadOptions
) -> Iterator[Found]:
    """Yields utterances as records. One without a time is placed between its neighbours in its
    session; where the session has no time at all, it gets the source's own. Notes say so."""
    return _shared(_dated(items, form, source, options), source.size)


def _dated(
    items: Iterator[Item], form: str, source: Source, options: ReadOptions
) -> Iterator[Outgoing | Bad | Note]:
    found = list(items)
    said = [item for item in found if isinstance(item, Utterance)]
    placed = iter(_placed(said))
    untimed = 0
    for item in found:
        if not isinstance(item, Utterance):
            yield item
            continue
        at = next(placed)
        if at is None:
            at = later(options.now, untimed * UNTIMED_STEP)
            untimed += 1
        yield record_of(item, at, form, options)
    unread = [item for item in said if item.unread]
    if unread:
        yield Note(
            f"{counted(len(unread), 'times')} cannot be read (the first at {unread[0].place}:"
            f" {unread[0].unread[:40]!r}); their turns are placed like those without a time"
        )
    between = sum(item.at is None for item in said) - untimed
    if between:
        yield Note(
            f"{counted(between, 'turns tell no time')}: they are placed between those around them"
        )
    if untimed:
        yield _untimed(untimed, source, options)


def _placed(said: Sequence[Utterance]) -> list[datetime | None]:
    """Returns the times of the utterances; one without a time lies between the neighbours of its
    session: UNTIMED_STEP after the previous one, or closer if the next one is near. None where a
    session has no time at all."""
    times = [item.at for item in said]
    sessions: dict[str, list[int]] = {}
    for number, item in enumerate(said):
        sessions.setdefault(item.session, []).append(number)
    for numbers in sessions.values():
        waiting: list[int] = []
        before: datetime | None = None
        for number in numbers:
            at = times[number]
            if at is None:
                waiting.append(number)
                continue
            step = UNTIMED_STEP
            if before is not None and waiting:
                step = min(step, max((at - before) / (len(waiting) + 1), timedelta()))
            for place, each in enumerate(waiting):
                first = later(at, -UNTIMED_STEP * len(waiting)) if before is None else before
                times[each] = later(first, step * (place + (before is not None)))
            waiting, before = [], at
        if before is not None:
            for place, each in enumerate(waiting, 1):
                times[each] = later(before, UNTIMED_STEP * place)
    return times


def _bundled(
    source: Source, form: str, names: list[str], bundle: Bundle, options: ReadOptions
) -> Iterator[Item]:
    if form == "slack":
        days = [(name, _channel(name, source.stem)) for name in names]
        users = next((n for n in bundle.names if PurePosixPath(n).name == "users.json"), None)
        people = bundle.read(users) if users else _beside(source.path, "users.json")
        described = [name for name in bundle.names if _describes(name)]
        lists = [bundle.read(n) for n in described if PurePosixPath(n).name in CHANNELS]
        lists = lists or _channels_beside(source.path)
        yield from read_slack(source.name, days, people, bundle.read, lists)
        names = [*names, *described]
    elif form == "discord" and package_files(names):
        yield from read_package(source.name, names, bundle.names, bundle.read, options)
        names = [*names, *filter(describes_package, bundle.names)]
    elif form == "mail":
        files = [(f"{source.name}: {name}", partial(bundle.read, name)) for name in names]
        yield from read_mail(source.name, files, options)
    else:
        for name in names:
            place = f"{source.name}: {name}"
            try:
                document = Document(place, _stem(name, source), decoded(bundle.read(name)))
                for item in PARSERS[form](document, options):
                    if isinstance(item, Note) and len(names) > 1:
                        item = Note(f"{name}: {item.text}")  # noqa: PLW2901
                    yield item
            except Unreadable as error:
                yield Bad(place, str(error))
    taken = set(names)
    others = [name for name in bundle.names if name not in taken]
    if others:
        some = ", ".join(others[:_NAMED]) + (", …" if len(others) > _NAMED else "")
        yield Note(f"{counted(len(others), 'other files in it are not read')}: {some}")


def _stem(name: str, source: Source) -> str:
    """Returns the name of a chat in a folder or archive. One that is called _chat.txt, as on
    iPhones, has that of its folder or of the archive."""
    path = PurePosixPath(name)
    return path.stem if not _UNNAMED.fullmatch(path.stem) else (path.parent.name or source.stem)


def _describes(name: str) -> bool:
    """Whether a file of a Slack export describes people and channels, not messages."""
    return PurePosixPath(name).name in ("users.json", *CHANNELS)


def _channel(name: str, otherwise: str) -> str:
    match = DAY_FILE.match(name)
    return (match[1] if match else None) or otherwise


def _slack_day(source: Source, data: bytes) -> Iterator[Item]:
    channel = "" if source.path is None else source.path.resolve().parent.name
    days = [(source.name, channel)]
    people, lists = _beside(source.path, "users.json"), _channels_beside(source.path)
    return read_slack(source.name, days, people, lambda _: data, lists)


def _channels_beside(path: Path | None) -> list[bytes]:
    return [data for name in CHANNELS if (data := _beside(path, name)) is not None]


def _beside(path: Path | None, name: str) -> bytes | None:
    """Reads a file of an export from a file's folder or the folder above it; None if there is
    none."""
    if path is None:
        return None
    for folder in path.resolve().parents[:2]:
        if (folder / name).is_file():
            return bounded(folder / name)
    return None
