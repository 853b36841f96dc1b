"""Reads turns in JSON Lines: each line is the body of a turn or a whole message."""

from __future__ import annotations

import contextlib
import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from pydantic import TypeAdapter, ValidationError

from palimpsest.ops.ingest.parsers.base import (
    UTC_ZONE,
    Bad,
    ReadOptions,
    Twice,
    later,
    members,
    no_constant,
    with_offset,
)
from palimpsest.ops.ingest.records import DEFAULT_SCOPE, checked
from palimpsest.schemas.codec import written_offset_minutes
from palimpsest.schemas.envelope import UtcTime
from palimpsest.schemas.failures import describe
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.normal_forms import storage_content
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import Outgoing

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
UNTIMED_STEP: Final = timedelta(milliseconds=1)
"""Interval between turns without a time, which keeps their order."""

_TIME = TypeAdapter[datetime](UtcTime)
_BESIDE: Final = ("scope", "occurred_at", "schema")
"""Further fields of a line, next to those of a turn."""
FIELDS: Final = (*ConversationTurn.model_fields, "scope", "occurred_at")
OTHER_NAMES: Final = {
    **dict.fromkeys(("timestamp", "time", "date", "created_at", "ts"), "occurred_at"),
    **dict.fromkeys(("text", "message", "body"), "content"),
    **dict.fromkeys(("user", "author", "name", "from"), "speaker"),
    **dict.fromkeys(("session", "conversation_id"), "session_id"),
    **dict.fromkeys(("id", "message_id"), "turn_id"),
    **dict.fromkeys(("namespace", "scope_id", "user_id"), "scope"),
}
"""Names that other programs give to a field; suggested if the field itself is missing."""
_LIKENESS: Final = 0.8


class Lines(Protocol):
    """A file that can be read by lines."""

    def readline(self, limit: int = -1, /) -> bytes: ...


class Watch:
    """Collects observations to report once: fields that are probably misnamed, and turns without a
    time."""

    def __init__(self) -> None:
        self.near: Counter[tuple[str, str]] = Counter()
        self.first: dict[tuple[str, str], str] = {}
        self.untimed = 0

    def look(self, raw: dict[str, object], place: str) -> None:
        for name in raw:
            meant = None if name in FIELDS or name == "schema" else near_miss(name, raw)
            if meant is not None:
                self.near[name, meant] += 1
                self.first.setdefault((name, meant), place)

    def warnings(self) -> Iterator[str]:
        for (name, meant), count in self.near.items():
            more = f" (and in {count - 1} more lines)" if count > 1 else ""
            yield (
                f"{self.first[name, meant]}: did you mean `{meant}`? `{name}` is kept as a field of"
                f" your own and has no effect{more}"
            )


def without_effect(name: str, meant: str) -> str:
    """Why a field is refused that probably stands for another."""
    return f"did you mean `{meant}`? `{name}` is no field that has an effect"


def near_miss(name: str, present: Iterable[str]) -> str | None:
    """Returns the field that `name` probably stands for, unless that field is present."""
    plain = name.lower().replace("-", "_")
    if plain in FIELDS:
        likely: str | None = plain
    else:
        close = difflib.get_close_matches(plain, FIELDS, 1, _LIKENESS)
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
        likely = (
            snake if snake in FIELDS else OTHER_NAMES.get(plain) or (close[0] if close else None)
        )
    return None if likely is None or likely in present else likely


def read_turns(
    file: Lines, name: str, options: ReadOptions, watch: Watch | None = None
) -> Iterator[tuple[Outgoing | Bad, int]]:
    """Yields a record, or Bad, for every non-empty line, and the bytes read for it.

    A line is the body of a turn, with `scope` and `occurred_at` next to its fields if they differ
    from the defaults; or a whole message with its envelope.
    """
    watch = watch or Watch()
    number = 0
    while line := file.readline(MAX_LINE_BYTES):
        number += 1
        size = len(line)
        place = f"{name}:{number}"
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if size == MAX_LINE_BYTES and not line.endswith(b"\n"):
            while rest := file.readline(MAX_LINE_BYTES):
                size += len(rest)
                if rest.endswith(b"\n"):
                    break
            yield Bad(place, f"a line of {size} bytes is no turn"), size
        elif line.strip():
            yield _line(line, place, options, watch), size


def _line(line: bytes, place: str, options: ReadOptions, watch: Watch) -> Outgoing | Bad:
    try:
        raw = json.loads(
            line.decode("utf-8"), parse_constant=no_constant, object_pairs_hook=members
        )
    except UnicodeDecodeError as error:
        return Bad(place, f"not UTF-8 (byte {error.start + 1} of the line)")
    except Twice as error:
        return Bad(place, str(error))
    except ValueError as error:
        return Bad(place, f"not JSON: {error}")
    except RecursionError:
        return Bad(place, "not a turn: nested too deeply")
    return turn_of(raw, place, options, watch)


def turn_of(raw: object, place: str, options: ReadOptions, watch: Watch) -> Outgoing | Bad:
    """Returns the record of one parsed line, or Bad."""
    if not isinstance(raw, dict):
        return Bad(place, "not a JSON object; write one turn a line")
    try:
        return _record(raw, place, options, watch)
    except ValidationError as error:
        return Bad(place, f"{describe(error)}{_hint(raw)}")
    except ValueError as error:
        return Bad(place, str(error))


def _hint(raw: dict[str, object]) -> str:
    meant = {name: near_miss(name, raw) for name in raw if name not in FIELDS}
    told = ", ".join(f"`{found}` for `{name}`" for name, found in meant.items() if found)
    return f"; did you mean {told}?" if told else ""


def _record(raw: dict[str, object], place: str, options: ReadOptions, watch: Watch) -> Outgoing:
    expected = CONVERSATION_TURNS.schemas
    enveloped = isinstance(raw.get("body"), dict) and ("schema" in raw or "content" not in raw)
    if (enveloped or "schema" in raw) and raw.get("schema") not in expected:
        found = f"unknown schema {raw['schema']!r}" if "schema" in raw else "schema is missing"
        raise ValueError(f"{found}; expected {' or '.join(expected)}")
    if enveloped:
        body, message_id = raw["body"], raw.get("id")
    else:
        body = {name: raw[name] for name in raw if name not in _BESIDE}
        message_id = None
    turn = ConversationTurn.model_validate(body)
    for name in ("turn_id", "content"):
        if not storage_content(getattr(turn, name)):
            raise ValueError(f"{name}: must not be blank")
    if turn.speaker and not storage_content(turn.speaker):
        raise ValueError("speaker: must not be blank; leave it out if there is none")
    at = raw.get("occurred_at")
    if at is None:
        at = later(options.now, watch.untimed * UNTIMED_STEP)
    else:
        try:
            at = _told_at(at, options.zone)
        except ValidationError as error:
            why = describe(error).removeprefix("record: ")
            raise ValueError(f"occurred_at: {why}") from None
    record = checked(
        turn,
        options.scope or _scope(raw.get("scope")),
        at,
        None if message_id is None else str(message_id),
        options,
    )
    watch.untimed += raw.get("occurred_at") is None
    if isinstance(body, dict):
        watch.look(body if enveloped else raw, place)
    return record


def _told_at(value: object, zone: ZoneInfo) -> datetime:
    """Returns the time of a turn with its written offset. Raises ValidationError for an invalid
    time, and for one without a zone if none was chosen."""
    if isinstance(value, str) and zone != UTC_ZONE:
        with contextlib.suppress(ValueError):
            value = with_offset(datetime.fromisoformat(value.strip()), zone) or value
    at = _TIME.validate_python(value)
    offset = timedelta()
    if isinstance(value, str):
        offset = timedelta(minutes=written_offset_minutes(value))
    elif isinstance(value, datetime):
        offset = value.utcoffset() or offset
    return at.astimezone(timezone(offset))


def _scope(value: object) -> str:
    """Returns the scope of a line; null means the default."""
    if value is None:
        return DEFAULT_SCOPE
    if not isinstance(value, str):
        raise ValueError(f"scope: {value!r} is no text")
    return value
