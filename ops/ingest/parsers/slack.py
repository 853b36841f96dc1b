"""Slack's export: users.json, and a folder per channel with a file per day.

Also a single channel's folder or a single day's file, with users.json if it is in that folder or
the one above.
"""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final

from pydantic import JsonValue

from palimpsest.ops.ingest.parsers.base import (
    TRIED,
    Bad,
    Found,
    Item,
    LeftOut,
    Naming,
    Note,
    Twice,
    Unreadable,
    Utterance,
    decoded,
    edit_time,
    lenient_json,
    named,
    said,
    unix_time,
)

DAY_FILE: Final = re.compile(r"(?:^|.*/)(?:([^/]+)/)?(\d{4}-\d{2}-\d{2})\.json$")
SPOKEN: Final = {"", "thread_broadcast", "me_message", "file_share", "bot_message", "reply_to"}
"""Subtypes of messages with an utterance; the others announce joins, topics and the like."""
RENAMED: Final = ("channel_name", "group_name")
"""Subtypes of notices with a former name of the channel."""
MOST_DEPTH: Final = 8
"""How deeply blocks may lie in blocks."""
_INLINE: Final = ("rich_text_section", "rich_text_quote", "rich_text_preformatted")
_TEXTS: Final = ("pretext", "author_name", "title", "text", "value")
"""Fields of blocks and attachments with words, in the order in which they are shown."""
_NOT_SHOWN: Final = (
    "This content can't be displayed.",
    "This message contains interactive elements.",
)
"""Texts that stand for blocks."""
_MENTION: Final = re.compile(r"<(?:@([A-Z0-9]+)|#[A-Z0-9]+|!([a-z]+)[^|>]*)(?:\|([^>]*))?>")
_LINK: Final = re.compile(r"<((?:https?|mailto|tel):[^|>]+)(?:\|([^>]*))?>")


@dataclass(frozen=True, slots=True)
class _Change:
    """What a message became: its text of now, or None if it was deleted."""

    key: str
    now: Utterance | None


def is_slack_day(value: object) -> bool:
    """Whether parsed JSON is a day of a channel."""
    return isinstance(value, list) and any(
        isinstance(each, dict) and each.get("type") == "message" and "ts" in each
        for each in value[:TRIED]
    )


def day_files(names: Sequence[str]) -> list[str]:
    """The day files among the names of a folder or an archive, in order."""
    return sorted(name for name in names if DAY_FILE.match(name))


@dataclass(frozen=True, slots=True)
class Known:
    """What the export says of people and channels: names by user id, ids by channel name, and
    former names by channel name, which grow as its days are read."""

    people: dict[str, str]
    ids: dict[str, str]
    former: dict[str, list[str]]


def read_slack(
    name: str,
    days: Sequence[tuple[str, str]],
    users: bytes | None,
    read: Callable[[str], bytes],
    channels: Sequence[bytes] = (),
) -> Iterator[Item]:
    """Yields the messages of the day files `days` (file and channel), whose bytes `read` returns.
    `channels` are the files that list them, as channels.json. Raises Unreadable if none of the
    files is a day of a channel."""
    why: list[str] = []
    people = _people(_list_in(users, "users.json", why))
    lists = [_list_in(each, "a list of channels", why) for each in channels]
    yield from said(_edited(_days(name, days, Known(people, *_channels(lists)), read)))
    if users is None:
        yield Note("there is no users.json beside it: speakers are named as the messages do")
    yield from map(Note, why)


def _edited(found: Iterator[Item | LeftOut | _Change]) -> Found:
    """Yields the messages as they were last edited, without deleted ones, in their threads."""
    items: list[Item | LeftOut] = []
    places: dict[str, int] = {}
    changes: list[_Change] = []
    for item in found:
        if isinstance(item, _Change):
            changes.append(item)
            continue
        if isinstance(item, Utterance):
            places.setdefault(item.key, len(items))
        items.append(item)
    for change in changes:
        place = places.get(change.key)
        before = None if place is None else items[place]
        if place is None or not isinstance(before, Utterance):
            if change.now is not None:
                places[change.key] = len(items)
                items.append(change.now)
            else:
                items.append(LeftOut("notices (message_deleted)"))
            continue
        if change.now is None:
            items[place] = LeftOut("deleted messages")
        else:
            items[place] = replace(change.now, session=before.session)
            items.append(LeftOut("earlier texts of edited messages"))
    yield from _in_threads(items)


def _in_threads(items: Sequence[Item | LeftOut]) -> Found:
    """Yields the messages, each thread as it is read: replies behind the message that they answer
    and in its session, or in that of its day if the export does not have it. Apart from it, a reply
    of another day would be next to the last message of that session, which is about something
    else."""
    sessions = {item.key: item.session for item in items if isinstance(item, Utterance)}
    replies: defaultdict[str, list[Utterance]] = defaultdict(list)
    others: list[Item | LeftOut] = []
    for item in items:
        root = item.metadata.get("thread_ts") if isinstance(item, Utterance) else None
        began = unix_time(root)
        if not isinstance(item, Utterance) or not isinstance(root, str) or began is None:
            others.append(item)
            continue
        channel = str(item.metadata.get("channel") or "")
        key = _message_key(channel, root)
        otherwise = _session(channel, began.date().isoformat())
        placed = replace(item, session=sessions.get(key, otherwise))
        if key in sessions and key != item.key:
            replies[key].append(placed)
        else:
            others.append(placed)
    for item in others:
        yield item
        if isinstance(item, Utterance):
            yield from replies.pop(item.key, ())
    for left in replies.values():  # to a message that is itself a reply
        yield from left


def _message_key(channel: str, ts: str) -> str:
    return f"slack:{channel}:{ts}"[:256]


def _session(channel: str, day: str) -> str:
    return f"{channel} {day}".strip()[:256]


def _days(
    name: str, days: Sequence[tuple[str, str]], known: Known, read: Callable[[str], bytes]
) -> Iterator[Item | LeftOut | _Change]:
    found_any = False
    for file, channel in days:
        place = file if file == name else f"{name}: {file}"
        try:
            value = lenient_json(decoded(read(file)))
        except Twice as error:
            found_any = True
            yield Bad(place, str(error))
            continue
        except (Unreadable, ValueError, RecursionError) as error:
            yield Bad(place, f"not a day of Slack messages: {error}")
            continue
        if not isinstance(value, list):
            yield Bad(place, "not a day of Slack messages: no JSON array")
            continue
        found_any = True
        match = DAY_FILE.match(file)
        day = match[2] if match else ""
        for number, message in enumerate(value):
            where = f"{place}[{number}]"
            if isinstance(message, dict):
                yield from _entry(known, channel, day, where, message)
            else:
                yield Bad(where, "not a JSON object")
    if not found_any:
        raise Unreadable("no Slack export: there is no file of a day (CHANNEL/2026-03-02.json)")


def _entry(
    known: Known, channel: str, day: str, where: str, message: dict[str, object]
) -> Iterator[Item | LeftOut | _Change]:
    """Yields a message, or what an entry does to an earlier one."""
    subtype, inner = named(message.get("subtype")), message.get("message")
    if subtype == "message_changed" and isinstance(inner, dict):
        for item in _message(known, channel, "", where, inner):
            if not isinstance(item, Utterance):
                yield item
                continue
            edited = item.revised_at or edit_time(unix_time(message.get("ts")), item.at)
            yield _Change(item.key, replace(item, revised_at=edited))
    elif subtype == "message_deleted" and isinstance(ts := message.get("deleted_ts"), str):
        yield _Change(_message_key(channel, ts), None)
    else:
        yield from _message(known, channel, day, where, message)


def _message(known: Known, channel: str, day: str, where: str, message: dict[str, object]) -> Found:
    ts, subtype = message.get("ts"), named(message.get("subtype"))
    if isinstance(before := message.get("old_name"), str) and subtype in RENAMED:
        known.former.setdefault(channel, []).append(before)
    if subtype not in SPOKEN:
        yield LeftOut(f"notices ({subtype})")
        return
    text, others = _words(message)
    if not text.strip():
        yield from map(LeftOut, others or ["messages without words"])
        return
    at = unix_time(ts)
    if at is None or not isinstance(ts, str):
        yield Bad(where, f"a message without a time: ts is {ts!r}")
        return
    yield from map(LeftOut, others)
    metadata: dict[str, JsonValue] = {"channel": channel}
    if channel in known.ids:
        metadata["channel_id"] = known.ids[channel]
    root_as = None
    if isinstance(thread := message.get("thread_ts"), str):
        metadata["thread_ts"] = thread
        if thread != ts:
            root_as = partial(_message_key, ts=thread)
    is_bot = subtype == "bot_message" or "bot_id" in message
    edited = message.get("edited")
    yield Utterance(
        place=where,
        key=_message_key(channel, ts),
        text=_plain(text, known.people),
        at=at,
        session=_session(channel, day or at.date().isoformat()),
        speaker=_speaker(message, known.people),
        role="tool" if is_bot else "user",
        source_id=f"{channel}/{ts}",
        metadata=metadata,
        revised_at=unix_time(edited.get("ts")) if isinstance(edited, dict) else None,
        naming=Naming(
            channel,
            partial(_message_key, ts=ts),
            known.former.setdefault(channel, []),
            root_as=root_as,
        ),
    )


def _words(message: dict[str, object]) -> tuple[str, list[str]]:
    """Returns the words of a message, in Slack's markup: its text, else those of its blocks, else
    those of its attachments; and the kinds of what is beside them."""
    files, attachments = message.get("files"), message.get("attachments")
    others = ["files" for _ in (files if isinstance(files, list) else [])]
    attached = ["attachments" for _ in (attachments if isinstance(attachments, list) else [])]
    text = message.get("text")
    own = text if isinstance(text, str) and text.strip() else ""
    if own and own.strip() not in _NOT_SHOWN:
        return own, others + attached
    text = "\n".join(_lines(message.get("blocks")))
    if text.strip():
        return text, others + attached
    return "\n".join(_lines(attachments)) or own, others


def _lines(value: object, depth: int = 0) -> list[str]:
    """Returns the lines of words in blocks or attachments."""
    lines: list[str] = []
    for each in value if isinstance(value, list) and depth < MOST_DEPTH else []:
        if not isinstance(each, dict):
            continue
        kind = each.get("type")
        if kind in _INLINE:
            lines.append(_inline(each))
            continue
        if kind in ("context", "rich_text", "rich_text_list"):
            lines += _lines(each.get("elements"), depth + 1)
            continue
        inner = _lines(each.get("fields"), depth + 1) + _lines(each.get("blocks"), depth + 1)
        inner += _forwarded(each.get("message_blocks"), depth + 1)
        texts = [text for name in _TEXTS if (text := _text_of(each.get(name)))]
        # Blocks of a forwarded message say again what its text does.
        is_again = each.get("text") and each.get("message_blocks")
        lines += texts if is_again else texts + inner
        if not lines and isinstance(fallback := each.get("fallback"), str) and fallback.strip():
            lines.append(fallback)
    return lines


def _text_of(value: object) -> str:
    """Returns the words of a field of a block; empty if it has none."""
    text = value.get("text") if isinstance(value, dict) else value
    return text if isinstance(text, str) and text.strip() else ""


def _forwarded(value: object, depth: int) -> list[str]:
    """Returns the lines of the messages that an attachment forwards."""
    listed = value if isinstance(value, list) and depth < MOST_DEPTH else []
    messages = (each.get("message") for each in listed if isinstance(each, dict))
    return [
        line
        for message in messages
        if isinstance(message, dict)
        for line in _lines(message.get("blocks"), depth + 1)
    ]


def _inline(section: dict[str, object]) -> str:
    """Returns the words of a section of a rich text, as markup."""
    words = []
    elements = section.get("elements")
    for each in elements if isinstance(elements, list) else []:
        fields = each if isinstance(each, dict) else {}
        kind, name = fields.get("type"), named(fields.get("name"))
        text = fields.get("text") if isinstance(fields.get("text"), str) else None
        if kind == "text" and text is not None:
            words.append(html.escape(text, quote=False))
        elif kind == "link":
            words.append(html.escape(text or named(fields.get("url")), quote=False))
        elif kind == "user":
            words.append(f"<@{named(fields.get('user_id'))}>")
        elif kind == "date":
            words.append(html.escape(_date(fields), quote=False))
        elif kind == "broadcast":
            words.append(f"@{named(fields.get('range'))}")
        elif kind == "channel":
            words.append("#channel")
        elif kind == "emoji" and name:
            words.append(f":{name}:")
    return "".join(words)


def _date(fields: dict[str, object]) -> str:
    at = unix_time(fields.get("timestamp"))
    when = "" if at is None else at.isoformat().replace("+00:00", "Z")
    return named(fields.get("fallback")) or when


def _list_in(file: bytes | None, name: str, why: list[str]) -> list[object]:
    """Returns the list in a file beside the messages; where it has none, an empty one, and adds the
    reason to `why`."""
    if file is None:
        return []
    try:
        found = lenient_json(decoded(file))
    except (Unreadable, ValueError, RecursionError) as error:
        why.append(f"{name} cannot be read: {error}")
        return []
    if not isinstance(found, list):
        why.append(f"{name} cannot be read: no JSON array")
        return []
    return found


def _channels(lists: Sequence[list[object]]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Returns ids and former names by channel name."""
    ids: dict[str, str] = {}
    former: dict[str, list[str]] = {}
    for each in chain.from_iterable(lists):
        if not isinstance(each, dict):
            continue
        own, name = each.get("id"), each.get("name")
        if isinstance(own, str) and isinstance(name, str):
            ids[name] = own
            before = each.get("previous_names")
            listed = before if isinstance(before, list) else []
            former[name] = [old for old in listed if isinstance(old, str)]
    return ids, former


def _people(listed: list[object]) -> dict[str, str]:
    """Returns names by user id."""
    people = [each for each in listed if isinstance(each, dict) and isinstance(each.get("id"), str)]
    return {each["id"]: name for each in people if (name := _profile_name(each))}


def _profile_name(user: dict[str, object]) -> str:
    profile = user.get("profile")
    inner = profile if isinstance(profile, dict) else {}
    return (
        named(inner.get("real_name"))
        or named(user.get("real_name"))
        or named(inner.get("display_name"))
        or named(user.get("name") or inner.get("name"))
    )


def _speaker(message: dict[str, object], known: dict[str, str]) -> str:
    user, profile = message.get("user"), message.get("user_profile")
    told = _profile_name({"profile": profile}) if isinstance(profile, dict) else ""
    by_id = known.get(user) if isinstance(user, str) else None
    bot = message.get("bot_profile")
    program = named(message.get("username")) or named(
        bot.get("name") if isinstance(bot, dict) else ""
    )
    return by_id or told or program or named(user) or named(message.get("bot_id"))


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
