"""What every parser takes and gives: a source in, utterances out, and errors as values.

A parser is a pure generator of Utterance, Bad and Note; the only error it raises is Unreadable.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import JsonValue

from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.messages import Role

DateOrder = Literal["dmy", "mdy", "ymd"]
MAX_NAME_CHARACTERS: Final = 256


class Unreadable(Exception):
    """A source that no parser can read; the text says what it is and what to do."""


@dataclass(frozen=True, slots=True)
class Bad:
    """What could not be taken: where it stands and why."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """What a person should know about how the source was read: how times were understood, what
    was left out."""

    text: str


@dataclass(frozen=True, slots=True)
class Utterance:
    """One utterance as its source has it.

    `key` identifies it within its scope for ever: the same utterance of the same source, read
    again, also from a longer export, has the same. `at` is UTC; None where the source tells no
    time.
    """

    place: str
    key: str
    text: str
    at: datetime | None
    session: str
    speaker: str = ""
    role: Role = "user"
    source_id: str | None = None
    metadata: dict[str, JsonValue] = field(default_factory=dict)
    scope: str | None = None


Item: TypeAlias = Utterance | Bad | Note


@dataclass(frozen=True, slots=True)
class Document:
    """A text with the names that it goes by: `name` for people, `stem` for sessions."""

    name: str
    stem: str
    text: str


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user decided. `me` names the person whose export it is; `zone` is that
    of times without one; `since` the moment at which offsets from the beginning begin."""

    since: datetime
    me: str = ""
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    date_order: DateOrder | None = None
    session: str | None = None


class Keys:
    """Keys for utterances without an id of their own: from what was said, and for the same said
    again, how often before. What is appended to a source changes no key of what was there."""

    def __init__(self, *prefix: str) -> None:
        self._prefix = prefix
        self._seen: Counter[tuple[str, ...]] = Counter()

    def key(self, *parts: str) -> str:
        self._seen[parts] += 1
        return derived_id(*self._prefix, *parts, self._seen[parts])


def parsed(document: Document) -> object:
    """The JSON of a document. Raises Unreadable."""
    try:
        found: object = json.loads(document.text, parse_constant=_no_constant)
    except ValueError as error:
        raise Unreadable(f"not JSON: {error}") from None
    except RecursionError:
        raise Unreadable("JSON that is nested too deeply") from None
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def decoded(data: bytes) -> str:
    """Text in UTF-8, with or without a mark, or UTF-16 with one. Raises Unreadable."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise Unreadable(
            f"not text in UTF-8 (byte {error.start + 1}); save or export it as UTF-8"
        ) from None


def objects(value: object, place: str) -> Iterator[tuple[str, dict[str, object]] | Bad]:
    """The objects of a list, each with its place; what is no object as Bad."""
    for number, each in enumerate(value if isinstance(value, list) else []):
        at = f"{place}[{number}]"
        yield (at, each) if isinstance(each, dict) else Bad(at, "not a JSON object")


def named(value: object) -> str:
    """A name from a source: one line, of a bounded length, or nothing."""
    return " ".join(value.split())[:MAX_NAME_CHARACTERS] if isinstance(value, str) else ""


def unix_time(value: object) -> datetime | None:
    """Seconds or milliseconds since 1970, as a number or its text, as UTC; None for anything
    else, also for what would lie before 1973 or after 5138: that is no time but a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        seconds = float(value)
        seconds = seconds / 1000 if seconds >= 1e11 else seconds
        return datetime.fromtimestamp(seconds, UTC) if 1e8 <= seconds < 1e11 else None
    except (ValueError, OverflowError, OSError):
        return None


def iso_time(value: object, zone: ZoneInfo) -> datetime | None:
    """An ISO 8601 text as a moment, taken in `zone` where it names none; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        return with_offset(datetime.fromisoformat(value.strip()), zone)
    except ValueError:
        return None


def with_offset(at: datetime, zone: ZoneInfo) -> datetime | None:
    """A moment with its offset, taken in `zone` where it names none or is in UTC; None for one that
    UTC has not. The offset tells which day "yesterday" was."""
    try:
        moment = at.replace(tzinfo=at.tzinfo or zone)
        there = moment if moment.utcoffset() else moment.astimezone(UTC).astimezone(zone)
        moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return there.replace(tzinfo=timezone(there.utcoffset() or timedelta()))


def later(at: datetime, by: timedelta) -> datetime:
    """A moment after `at`; `at` itself where the calendar ends."""
    try:
        return at + by
    except OverflowError:
        return at
