"""Slack's export: users.json, and a folder per channel with a file per day.

Also a single channel's folder or a single day's file, with users.json if it is in that folder or
the one above.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from pydantic import JsonValue

from palimpsest.ops.ingest.base import (
    Bad,
    Found,
    Item,
    Note,
    Unreadable,
    Utterance,
    decoded,
    each_object,
    named,
    said,
    unix_time,
)

DAY_FILE: Final = re.compile(r"(?:^|.*/)(?:([^/]+)/)?(\d{4}-\d{2}-\d{2})\.json$")
SPOKEN: Final = {"", "thread_broadcast", "me_message", "file_share", "bot_message", "reply_to"}
"""Subtypes of messages with an utterance; the others announce joins, topics and the like."""
_MENTION: Final = re.compile(r"<(?:@([A-Z0-9]+)|#[A-Z0-9]+|!([a-z]+)[^|>]*)(?:\|([^>]*))?>")
_LINK: Final = re.compile(r"<((?:https?|mailto|tel):[^|>]+)(?:\|([^>]*))?>")


def is_slack_day(value: object) -> bool:
    """Whether parsed JSON is a day of a channel."""
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, dict) and first.get("type") == "message" and "ts" in first


def day_files(names: Sequence[str]) -> list[str]:
    """The day files among the names of a folder or an archive, in order."""
    return sorted(name for name in names if DAY_FILE.match(name))


def read_slack(
    name: str, days: Sequence[tuple[str, str]], users: bytes | None, read: Callable[[str], bytes]
) -> Iterator[Item]:
    """Yields the messages of the day files `days` (file and channel), whose bytes `read` returns.
    Raises Unreadable if none of them is a day of a channel."""
    yield from said(
        _days(name, days, _people(users), read), "entries that nobody said (joins, topics, files)"
    )
    if users is None:
        yield Note("there is no users.json beside it: speakers are named as the messages do")


def _days(
    name: str, days: Sequence[tuple[str, str]], known: dict[str, str], read: Callable[[str], bytes]
) -> Found:
    found_any = False
    for file, channel in days:
        place = file if file == name else f"{name}: {file}"
        try:
            value = json.loads(decoded(read(file)))
        except (Unreadable, ValueError, RecursionError) as error:
            yield Bad(place, f"not a day of Slack messages: {error}")
            continue
        if not isinstance(value, list):
            yield Bad(place, "not a day of Slack messages: no JSON array")
            continue
        found_any = True
        match = DAY_FILE.match(file)
        day = match[2] if match else ""
        yield from each_object(value, place, partial(_message, known, channel, day))
    if not found_any:
        raise Unreadable("no Slack export: there is no file of a day (CHANNEL/2026-03-02.json)")


def _message(
    known: dict[str, str], channel: str, day: str, where: str, message: dict[str, object]
) -> Found:
    ts, subtype = message.get("ts"), named(message.get("subtype"))
    text, at = message.get("text"), unix_time(ts)
    if subtype not in SPOKEN or not isinstance(text, str) or not text.strip():
        yield None
    elif at is None or not isinstance(ts, str):
        yield Bad(where, f"a message without a time: ts is {ts!r}")
    else:
        metadata: dict[str, JsonValue] = {"channel": channel}
        if isinstance(thread := message.get("thread_ts"), str):
            metadata["thread_ts"] = thread
        is_bot = subtype == "bot_message" or "bot_id" in message
        yield Utterance(
            place=where,
            key=f"slack:{channel}:{ts}"[:256],
            text=_plain(text, known),
            at=at,
            session=f"{channel} {day or at.date().isoformat()}".strip()[:256],
            speaker=_speaker(message, known),
            role="tool" if is_bot else "user",
            source_id=f"{channel}/{ts}",
            metadata=metadata,
        )


def _people(users: bytes | None) -> dict[str, str]:
    """Returns names by user id; empty if the file cannot be read."""
    try:
        found = json.loads(decoded(users)) if users is not None else []
    except (Unreadable, ValueError, RecursionError):
        found = []
    listed = found if isinstance(found, list) else []
    people = [each for each in listed if isinstance(each, dict) and isinstance(each.get("id"), str)]
    return {each["id"]: name for each in people if (name := _profile_name(each))}


def _profile_name(user: dict[str, object]) -> str:
    profile = user.get("profile")
    inner = profile if isinstance(profile, dict) else {}
    return (
        named(inner.get("real_name"))
        or named(user.get("real_name"))
        or named(inner.get("display_name"))
        or named(user.get("name"))
    )


def _speaker(message: dict[str, object], known: dict[str, str]) -> str:
    user, profile = message.get("user"), message.get("user_profile")
    told = _profile_name({"profile": profile}) if isinstance(profile, dict) else ""
    by_id = known.get(user) if isinstance(user, str) else None
    return by_id or told or named(message.get("username")) or named(user)


def _without_words(mark: str) -> str:
    """Returns a time without a label as ISO 8601; an empty text for a group."""
    at = unix_time(mark.split("^")[1])
    return "" if at is None else at.isoformat().replace("+00:00", "Z")


def _plain(text: str, known: dict[str, str]) -> str:
    """Replaces Slack's markup by readable text."""

    def mention(match: re.Match[str]) -> str:
        if match[1]:
            return "@" + (known.get(match[1]) or match[3] or match[1])
        if match[2] and "^" in match[0]:  # a time or a group, with its label
            return match[3] or _without_words(match[0])
        return f"@{match[2]}" if match[2] else f"#{match[3] or 'channel'}"

    text = _MENTION.sub(mention, text)
    text = _LINK.sub(lambda match: match[2] or match[1], text)
    return html.unescape(text)
