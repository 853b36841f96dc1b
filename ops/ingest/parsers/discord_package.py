"""The data package that Discord sends on request: what its owner wrote, a folder a channel.

`messages/c<channel>/` has `channel.json` and `messages.json`, `messages.csv` in older ones;
`messages/index.json` has the names of the channels, `account/user.json` that of the owner. What
others wrote is not in it. Ids are those of DiscordChatExporter's files: whoever imports both has
each message once.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Final

from palimpsest.ops.ingest.parsers.base import (
    UTC_ZONE,
    Bad,
    Document,
    Found,
    Item,
    LeftOut,
    Note,
    ReadOptions,
    Unreadable,
    Utterance,
    decoded,
    each_object,
    in_sessions,
    iso_time,
    named,
    parsed,
    said,
    unread_time,
    with_offset,
)

MESSAGES: Final = re.compile(
    r"(?P<root>(?:.*/)?)messages/c?(?P<channel>\d{5,25})/messages\.(?:json|csv)",
    re.DOTALL | re.IGNORECASE,
)
_DESCRIBES: Final = re.compile(
    r"(?:^|/)(?:messages/(?:index|c?\d{5,25}/channel)|account/user)\.json$", re.IGNORECASE
)
_MEMBERS: Final = ("ID", "Timestamp", "Contents")
_EMOJI: Final = re.compile(r"<a?(?P<name>:\w{1,40}:)\d{5,25}>")
_NAME_CHARACTERS: Final = 200
"""Of a channel, before the day of a session."""


def package_files(names: Sequence[str]) -> list[str]:
    """The files with messages among those of a folder or an archive, in order."""
    return sorted(name for name in names if MESSAGES.fullmatch(name))


def is_package_channel(value: object) -> bool:
    """Whether parsed JSON is the messages of a channel."""
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, dict) and all(member in first for member in _MEMBERS)


def describes_package(name: str) -> bool:
    """Whether a file of a package describes its owner or its channels."""
    return _DESCRIBES.search(name) is not None


def read_package(
    place: str,
    files: Sequence[str],
    names: Sequence[str],
    read: Callable[[str], bytes],
    options: ReadOptions,
) -> Iterator[Item]:
    """Yields the messages of the channels in `files`, each in the order in which they were written;
    `names` are all files of the package, whose bytes `read` returns."""
    by_name = {name.lower(): name for name in names}

    @cache
    def described(name: str) -> dict[str, object]:
        """The object in a file; empty where there is none that can be read."""
        try:
            found = parsed(Document(name, "", decoded(read(by_name[name.lower()]))))
        except (KeyError, Unreadable):
            return {}
        return found if isinstance(found, dict) else {}

    yield from said(_package(place, files, described, read, options))
    yield Note("a data package of Discord has what its owner wrote, not what others answered")


def _package(
    place: str,
    files: Sequence[str],
    described: Callable[[str], dict[str, object]],
    read: Callable[[str], bytes],
    options: ReadOptions,
) -> Found:
    for name in files:
        found = MESSAGES.fullmatch(name)
        assert found is not None
        owner = described(f"{found['root']}account/user.json")
        listed = described(f"{found['root']}messages/index.json").get(found["channel"])
        channel = described(f"{name.rpartition('/')[0]}/channel.json")
        where = f"{place}: {name}"
        try:
            rows = _rows(decoded(read(name)), where)
        except Unreadable as error:
            yield Bad(where, str(error))
            continue
        speaker = options.me or named(owner.get("global_name")) or named(owner.get("username"))
        session = _called(channel, named(listed), found["channel"])
        message = partial(_message, options, speaker, session)
        yield from in_sessions(each_object(rows, where, message))


def _rows(text: str, where: str) -> list[object]:
    """The messages of a file, the oldest first. Raises Unreadable."""
    if where.lower().endswith(".csv"):
        try:
            found: object = list(csv.DictReader(io.StringIO(text), strict=True))
        except csv.Error as error:
            raise Unreadable(f"a damaged table: {error}") from None
    else:
        found = parsed(Document(where, "", text))
    if not isinstance(found, list):
        raise Unreadable("no list of messages")
    return sorted(found, key=_number)


def _number(message: object) -> int:
    """The id of a message, which grows with time."""
    own = _id(message) if isinstance(message, dict) else ""
    return int(own) if own.isdecimal() and len(own) <= 25 else 0


def _id(message: dict[str, object]) -> str:
    own = message.get("ID")
    return str(own) if isinstance(own, int) and not isinstance(own, bool) else named(own)


def _called(channel: dict[str, object], listed: str, number: str) -> str:
    """A channel as DiscordChatExporter names it, with its server; a talk as the index does."""
    guild = channel.get("guild")
    server = named(guild.get("name")) if isinstance(guild, dict) else ""
    own = named(channel.get("name"))
    found = "/".join(filter(None, (server, own))) if own else listed
    return (found or f"channel {number}")[:_NAME_CHARACTERS]


def _message(
    options: ReadOptions, speaker: str, channel: str, where: str, message: dict[str, object]
) -> Found:
    text, files = message.get("Contents"), message.get("Attachments")
    others = files.split() if isinstance(files, str) else []
    yield from (LeftOut("files") for _ in others)
    if not isinstance(text, str) or not text.strip():
        if not others:
            yield LeftOut("messages without words")
        return
    own = _id(message)
    if not own:
        yield Bad(where, "a message without an ID")
        return
    utc = iso_time(message.get("Timestamp"), UTC_ZONE)  # also where it names no offset
    at = None if utc is None else with_offset(utc, options.zone)
    yield Utterance(
        place=where,
        key=f"discord:{own}"[:256],
        text=_EMOJI.sub(r"\g<name>", text),
        at=at,
        unread="" if at else unread_time(message.get("Timestamp")),
        session=f"{channel} {at.date().isoformat()}" if at else channel,
        speaker=speaker,
        role="user",
        source_id=own[:512],
        metadata={"channel": channel},
    )
