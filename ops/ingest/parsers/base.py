"""The types of all parsers: a source in, utterances out, and errors as values.

A parser is a pure generator of Utterance, Bad and Note; the only error it raises is Unreadable.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import JsonValue

from palimpsest.ops.ingest.parsers import DateOrder
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.messages import Role
from palimpsest.schemas.surrogates import without_halves
from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.sensitive.settings import PiiSettings
from palimpsest.streams.text.counts import counted

MAX_NAME_CHARACTERS: Final = 256
TRIED: Final = 100
"""Number of messages of which one tells the format: the others may be damaged, or of a new kind."""
UTC_ZONE: Final = ZoneInfo("UTC")
DEFAULT_POLICY: Final = Policy.of(PiiSettings())


_BRACKETED_TIME: Final = re.compile(r"\s*\[\d{1,4}[:./-]")
"""[00:01:02] Ana: Hello"""
EMPTY: Final = "empty: there is nothing to publish"


class Unreadable(Exception):
    """A source that no parser can read; the text says what the source is and what to do."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A part of the source that could not be read: its place and the reason."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """A remark for users on how the source was read: how times were interpreted, what was left
    out."""

    text: str


@dataclass(frozen=True, slots=True)
class Naming:
    """A name in an utterance's key that may change between two exports: a contact's, a channel's.
    `key_as` returns the key with another name; `former` are names that the source says it had.
    `is_anywhere`: it may have been said by another name in any chat that the source has in common
    with what was published; else only in its own. `is_file`: it is that of the file, and another
    one if this and what was published under that name begin with the same utterances. `is_dated`:
    the utterance has a time, and which number of its date is the day is not just assumed.
    `is_edited`: whether it was edited at a time that is not told, which changes its key; None if
    the source does not say so.

    `untimed_as` returns the key without the time of the utterance, as it was when keys had none,
    with a name and the number of what has the same content; `number` is its own in its source.
    `is_late`: its time was not read then, and the turn got its file's. `is_relative`: times count
    from a beginning that may be another one in the next import. `other_as` returns the key that it
    has where another number of its date is read as the year, and `other_at` is its local time
    then. `root_as` returns, with a name, the key of the utterance whose session it belongs to,
    where the source says which one that is."""

    name: str
    key_as: Callable[[str], str]
    former: Sequence[str] = ()
    is_anywhere: bool = False
    is_file: bool = False
    is_dated: bool = True
    is_edited: bool | None = None
    untimed_as: Callable[[str, int], str] | None = None
    number: int = 0
    is_late: bool = False
    is_relative: bool = False
    other_as: Callable[[str], str] | None = None
    other_at: datetime | None = None
    root_as: Callable[[str], str] | None = None

    def fixed(self) -> Naming:
        """Returns the same for an utterance whose name does not change with the file's."""
        name, key_as, untimed_as = self.name, self.key_as, self.untimed_as
        return replace(
            self,
            name="",
            key_as=lambda _: key_as(name),
            untimed_as=untimed_as and (lambda _, number: untimed_as(name, number)),
            is_file=False,
            is_dated=False,
        )


@dataclass(frozen=True, slots=True)
class Utterance:
    """One utterance as its source has it.

    `key` identifies it permanently within its scope: the same utterance, read again from the same
    source or from a longer export of it, has the same key. `at` is UTC; None if the source has no
    time, or one that cannot be read: `unread` is its text then. `role` None is that of the
    speaker's name. `revised_at` is when its text was last edited, if it was.
    """

    place: str
    key: str
    text: str
    at: datetime | None
    session: str
    speaker: str = ""
    role: Role | None = None
    source_id: str | None = None
    metadata: dict[str, JsonValue] = field(default_factory=dict)
    scope: str | None = None
    unread: str = ""
    revised_at: datetime | None = None
    naming: Naming | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An entry, or a part of one, that is not taken. `kind` follows a number in the note that
    counts them: "images"."""

    kind: str


Item: TypeAlias = Utterance | Bad | Note


@dataclass(frozen=True, slots=True)
class Document:
    """A text with its names: `name` for users, `stem` for sessions."""

    name: str
    stem: str
    text: str


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read: `scope` None takes the line's own, else the default of the format. `max_bytes`
    limits a record. `now` dates turns without a time, and offsets count from it; `since` is what
    the user chose for it. `captions` appends an image's caption to the text. `policy` removes
    secrets before anything is published. `zone` applies to times that name none or are in UTC. `me`
    names the person whose export it is; `form` is the format, and `session` the name of the
    conversation, where the user chose them."""

    scope: str | None
    max_bytes: int
    now: datetime
    captions: bool = False
    policy: Policy = DEFAULT_POLICY
    zone: ZoneInfo = UTC_ZONE
    me: str = ""
    date_order: DateOrder | None = None
    session: str | None = None
    form: str | None = None
    since: datetime | None = None


class Keys:
    """Derives keys for utterances without an id: from the content and the number of its earlier
    occurrences. Appending to a source changes no existing key."""

    def __init__(self, *prefix: str) -> None:
        self._prefix = prefix
        self._seen: Counter[tuple[str, ...]] = Counter()

    def key(self, *parts: str) -> str:
        return derived_id(*self._prefix, *parts, self.count(*parts))

    def of_id(self, own: str, is_dated: bool) -> Naming:
        """Returns how an utterance is named whose key has the file's name, the last of the prefix,
        and an id of its own."""
        *form, name = self._prefix
        return Naming(
            name, lambda other: derived_id(*form, other, own), is_file=True, is_dated=is_dated
        )

    def of_content(self, *parts: str, told: str, is_dated: bool) -> Naming:
        """Returns how an utterance is named whose key has the file's name, its content and the time
        that the source tells of it, empty if none: said again later, it is another one."""
        *form, name = self._prefix
        number = self.count(*parts)

        def untimed_as(other: str, number: int) -> str:
            return derived_id(*form, other, *parts, number)

        if not told:
            return Naming(
                name, lambda other: untimed_as(other, number), is_file=True, is_dated=is_dated
            )
        then = self.count(*parts, told)
        return Naming(
            name,
            lambda other: derived_id(*form, other, *parts, told, then),
            is_file=True,
            is_dated=is_dated,
            untimed_as=untimed_as,
            number=number,
        )

    def count(self, *parts: str) -> int:
        """Returns how often an utterance of that content has come, with this one."""
        self._seen[parts] += 1
        return self._seen[parts]


def parsed(document: Document) -> object:
    """Returns the parsed JSON of a document; NaN and Infinity, which some programs write where they
    have no number, as null. Raises Unreadable."""
    try:
        found = lenient_json(document.text)
    except Twice as error:
        raise Unreadable(str(error)) from None
    except ValueError as error:
        why = damage(document.text) if document.text.strip() else EMPTY
        raise Unreadable(why or f"not JSON: {error}") from None
    except RecursionError:
        raise Unreadable("JSON that is nested too deeply") from None
    return found


def damage(text: str) -> str:
    """Returns where a text that begins like JSON is damaged; empty if it is not, or no JSON."""
    if _BRACKETED_TIME.match(text):
        return ""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        if error.pos <= len(text) - len(text.lstrip()) + 1:
            return ""
        ends = "it ends early" if error.pos >= len(text.rstrip()) - 1 else error.msg
        return (
            f"damaged JSON: {ends}, at line {error.lineno}, column {error.colno}; export it again,"
            " or download it whole"
        )
    except (ValueError, RecursionError):
        return ""
    return ""


class Twice(ValueError):
    """An object of JSON has the member `name` more than once: whichever is taken, the other is
    lost."""

    def __init__(self, name: str) -> None:
        shown = named(without_halves(name))
        super().__init__(f"an object has the member {shown} twice; keep one of them")
        self.name = name


def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Returns the members of an object of JSON. Raises Twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise Twice(name)
    return found


def is_json(text: str) -> bool:
    """Whether a text is a single value of JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def lenient_json(text: str) -> object:
    """Parses JSON in which NaN and Infinity stand for null. Raises Twice, and as `json.loads`."""
    return json.loads(text, parse_constant=lambda _: None, object_pairs_hook=members)


def no_constant(name: str) -> float:
    """Refuses NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is no JSON")


def decoded(data: bytes) -> str:
    """Decodes UTF-8, with or without a byte order mark, or UTF-16 with one, without NULs, which no
    text needs; lines that end with CR alone, as of old programs, end with LF. Raises Unreadable."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding).replace("\0", "")
    except UnicodeDecodeError as error:
        raise Unreadable(
            f"not text in UTF-8 (byte {error.start + 1}); save or export it as UTF-8"
        ) from None
    return text if "\n" in text else text.replace("\r", "\n")


Found: TypeAlias = Iterator[Item | LeftOut]
"""What is found in a part of a source, and what of it is not taken."""


def each_object(
    value: object, place: str, read: Callable[[str, dict[str, object]], Found]
) -> Found:
    """Yields what `read` finds in the objects of a list, each with its place; other values as
    Bad."""
    for number, each in enumerate(value if isinstance(value, list) else []):
        at = f"{place}[{number}]"
        if isinstance(each, dict):
            yield from read(at, each)
        else:
            yield Bad(at, "not a JSON object")


def in_sessions(found: Found) -> Found:
    """Yields what is found of a chat whose sessions are days: what has no time is in the session of
    the utterance before it."""
    session = ""
    for item in found:
        if isinstance(item, Utterance):
            placed = item if item.at or not session else replace(item, session=session)
            session = placed.session
            yield placed
        else:
            yield item


def said(found: Found) -> Iterator[Item]:
    """Yields what is found, then a note that counts what is not taken, by kind."""
    left_out: Counter[str] = Counter()
    for item in found:
        if isinstance(item, LeftOut):
            left_out[item.kind] += 1
        else:
            yield item
    if left_out:
        kinds = ", ".join(counted(count, kind) for kind, count in left_out.most_common())
        yield Note(f"{counted(left_out.total(), 'entries are left out')}: {kinds}")


def conversations(
    document: Document, member: str, kind: type[list[object] | dict[str, object]], program: str
) -> list[object]:
    """Returns the conversations of an export of `program`, which have a `member` of that kind; a
    part of an export may have none. Raises Unreadable."""
    value = parsed(document)
    if value != [] and not is_export(value, member, kind):
        raise Unreadable(f"no {program} export: its conversations have no `{member}`")
    return value if isinstance(value, list) else [value]


def is_export(value: object, member: str, kind: type[list[object] | dict[str, object]]) -> bool:
    """Whether parsed JSON is a conversation with a member of that kind, or a list with one."""
    return any(
        isinstance(each, dict) and isinstance(each.get(member), kind)
        for each in (value if isinstance(value, list) else [value])
    )


def named(value: object) -> str:
    """Returns a name from a source as one line of bounded length; empty if it is not text."""
    return " ".join(value.split())[:MAX_NAME_CHARACTERS] if isinstance(value, str) else ""


def unix_time(value: object) -> datetime | None:
    """Converts seconds or milliseconds since 1970, a number or its text, to UTC; None for anything
    else, also for a time before 1973 or after 5138: that is just a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        seconds = float(value)
        seconds = seconds / 1000 if seconds >= 1e11 else seconds
        return datetime.fromtimestamp(seconds, UTC) if 1e8 <= seconds < 1e11 else None
    except (ValueError, OverflowError, OSError):
        return None


def iso_time(value: object, zone: ZoneInfo) -> datetime | None:
    """Parses an ISO 8601 text, in `zone` if it names none; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        return with_offset(datetime.fromisoformat(value.strip()), zone)
    except ValueError:
        return None


def told_time(at: datetime) -> str:
    """Returns a time as it is told in keys: the same in any notation, which may leave out what is
    less than a second; of one without a zone, as it is written."""
    utc = at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at
    return utc.isoformat(" ", "seconds")


def edit_time(edited: datetime | None, said: datetime | None) -> datetime | None:
    """Returns when a message was edited; None if that is when it was said, as programs write for
    one that was not."""
    return edited if edited is not None and (said is None or edited > said) else None


def unread_time(value: object) -> str:
    """Returns the text of a time that is there but cannot be read; empty if there is none."""
    return "" if value is None or value == "" else (named(value) or repr(value)[:40])


def with_offset(at: datetime, zone: ZoneInfo) -> datetime | None:
    """Returns the time with its UTC offset, from `zone` if it names none or is in UTC; None if UTC
    cannot represent it. The offset determines which day "yesterday" was."""
    try:
        moment = at.replace(tzinfo=at.tzinfo or zone)
        there = moment if moment.utcoffset() else moment.astimezone(UTC).astimezone(zone)
        moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return there.replace(tzinfo=timezone(there.utcoffset() or timedelta()))


def later(at: datetime, by: timedelta) -> datetime:
    """Returns `at` plus `by`; `at` itself beyond the end of the calendar."""
    try:
        return at + by
    except OverflowError:
        return at
