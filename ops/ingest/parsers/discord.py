"""DiscordChatExporter's JSON: a file a channel (or a part of one), with its messages."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from pydantic import JsonValue

from palimpsest.ops.ingest.parsers.base import (
    Bad,
    Document,
    Found,
    Item,
    LeftOut,
    Note,
    ReadOptions,
    Unreadable,
    Utterance,
    each_object,
    edit_time,
    in_sessions,
    iso_time,
    named,
    parsed,
    said,
    unread_time,
)

SPOKEN: Final = {
    *("", "Default", "Reply", "ThreadStarterMessage", "ChatInputCommand", "ContextMenuCommand"),
    *("0", "19", "20", "21", "23"),
}
"""Types of messages with words; some are written as their number. The others are notices."""
_OTHERS: Final = {"attachments": "files", "stickers": "stickers", "embeds": "embeds"}
"""Members of a message by the kind of what they list."""


def is_discord(value: object) -> bool:
    """Whether parsed JSON is a channel."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("channel"), dict)
        and isinstance(value.get("messages"), list)
        and ("guild" in value or "exportedAt" in value)
    )


def read_discord(document: Document, options: ReadOptions) -> Iterator[Item]:
    """Yields the messages in order. Raises Unreadable."""
    value = parsed(document)
    if not isinstance(value, dict) or not is_discord(value):
        raise Unreadable("no channel as DiscordChatExporter writes it: it lacks `channel`")
    guild, channel = value.get("guild"), value["channel"]
    server = guild if isinstance(guild, dict) and guild.get("id") not in (None, "0") else {}
    name = "/".join(filter(None, (named(server.get("name")), named(channel.get("name")))))
    if not value["messages"]:
        yield Note(f"{document.name} has no message")
    read = partial(_message, options, name or document.stem)
    yield from said(in_sessions(each_object(value["messages"], f"{document.name}.messages", read)))


def _message(options: ReadOptions, channel: str, where: str, message: dict[str, object]) -> Found:
    kind = named(message.get("type"))
    if kind not in SPOKEN:
        yield LeftOut(f"notices ({kind})")
        return
    found = message.get("author")
    author = found if isinstance(found, dict) else {}
    is_program = author.get("isBot") is True
    text, forwarded = message.get("content"), message.get("forwardedMessage")
    text = text if isinstance(text, str) else ""
    is_forwarded = not text.strip() and isinstance(forwarded, dict)
    if is_forwarded and isinstance(forwarded, dict):
        text = forwarded["content"] if isinstance(forwarded.get("content"), str) else ""
    embeds = [] if text.strip() else _embedded(message.get("embeds"))
    text = text if text.strip() else "\n".join(embeds)
    others = _others(message, bool(embeds))
    yield from map(LeftOut, others)
    own = named(message.get("id"))
    if not text.strip():
        if not others:
            yield LeftOut("messages without words")
        return
    if not own:
        yield Bad(where, "a message without an id")
        return
    at = iso_time(message.get("timestamp"), options.zone)
    yield Utterance(
        place=where,
        key=f"discord:{own}"[:256],
        text=text,
        at=at,
        unread="" if at else unread_time(message.get("timestamp")),
        session=f"{channel} {at.date().isoformat()}"[-256:] if at else channel[:256],
        speaker=_speaker(author),
        # A forwarded message does not say whose words it has.
        role="tool" if is_program or is_forwarded else "user",
        source_id=own[:512],
        metadata=_metadata(message, channel),
        revised_at=edit_time(iso_time(message.get("timestampEdited"), options.zone), at),
    )


def _speaker(author: dict[str, object]) -> str:
    return named(author.get("nickname")) or named(author.get("name")) or named(author.get("id"))


def _metadata(message: dict[str, object], channel: str) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {"channel": channel}
    reference = message.get("reference")
    answered = named(reference.get("messageId")) if isinstance(reference, dict) else ""
    return found | ({"reply_to": answered} if answered else {})


def _embedded(value: object) -> list[str]:
    """Returns the lines of what a program shows in the place of words."""
    lines = []
    for each in value if isinstance(value, list) else []:
        embed = each if isinstance(each, dict) else {}
        fields = embed.get("fields")
        texts = [embed.get("title"), embed.get("description")]
        for inner in fields if isinstance(fields, list) else []:
            if isinstance(inner, dict):
                texts.append(
                    ": ".join(filter(None, map(named, (inner.get("name"), inner.get("value")))))
                )
        lines += [text for text in texts if isinstance(text, str) and text.strip()]
    return lines


def _others(message: dict[str, object], are_embeds_read: bool) -> list[str]:
    found = []
    for name, kind in _OTHERS.items():
        listed = message.get(name)
        if isinstance(listed, list) and not (name == "embeds" and are_embeds_read):
            found += [kind for _ in listed]
    return found
