"""Slack's export: users.json, and a folder per channel with a file per day.

Also a single channel's folder or a single day's file, with users.json if it is in that folder or
the one above.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from palimpsest.ops.ingest.base import (
    Bad,
    Item,
    Note,
    Unreadable,
    Utterance,
    decoded,
    named,
    objects,
    unix_time,
)
from palimpsest.schemas.messages import Role

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
    name: str,
    days: Sequence[tuple[str, str]],
    users: bytes | None,
    read: Callable[[str], bytes],
) -> Iterator[Item]:
    """Yields the messages of the day files `days` (file and channel), whose bytes `read` returns.
    Raises Unreadable if none of them is a day of a channel."""
    known = _people(users)
    others = 0
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
        for item in _day(value, place, channel, day, known):
            if item is None:
                others += 1
            else:
                yield item
    if not found_any:
        raise Unreadable("no Slack export: there is no file of a day (CHANNEL/2026-03-02.json)")
    if others:
        yield Note(f"{others} entries that nobody said (joins, topics, files) are left out")
    if users is None:
        yield Note("there is no users.json beside it: speakers are named as the messages do")


def _day(
    messages: list[object],
    place: str,
    channel: str,
    day: str,
    known: dict[str, str],
) -> Iterator[Utterance | Bad | None]:
    for found in objects(messages, place):
        if isinstance(found, Bad):
            yield found
            continue
        where, message = found
        ts, subtype = message.get("ts"), named(message.get("subtype"))
        text = message.get("text")
        if subtype not in SPOKEN or not isinstance(text, str) or not text.strip():
            yield None
            continue
        at = unix_time(ts)
        if at is None or not isinstance(ts, str):
            yield Bad(where, f"a message without a time: ts is {ts!r}")
            continue
        role: Role = "tool" if subtype == "bot_message" or "bot_id" in message else "user"
        yield Utterance(
            place=where,
            key=f"slack:{channel}:{ts}"[:256],
            text=_plain(text, known),
            at=at,
            session=f"{channel} {day or at.date().isoformat()}".strip()[:256],
            speaker=_speaker(message, known),
            role=role,
            source_id=f"{channel}/{ts}",
            metadata={"channel": channel, **_thread(message)},
        )


def _thread(message: dict[str, object]) -> dict[str, str]:
    thread = message.get("thread_ts")
    return {"thread_ts": thread} if isinstance(thread, str) else {}


def _people(users: bytes | None) -> dict[str, str]:
    """Returns names by user id; empty if the file cannot be read."""
    try:
        found = json.loads(decoded(users)) if users is not None else []
    except (Unreadable, ValueError, RecursionError):
        found = []
    people = {}
    for each in objects(found, ""):
        if not isinstance(each, Bad):
            user, name = each[1].get("id"), _profile_name(each[1])
            if isinstance(user, str) and name:
                people[user] = name
    return people


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
