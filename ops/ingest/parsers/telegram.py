"""Telegram's JSON export (result.json): one chat, or all chats of an account.

Every message has an id within its chat. Exports since 2021 tell times as seconds since 1970; older
ones only as those of the computer that exported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Final

from pydantic import JsonValue

from palimpsest.ops.ingest.parsers.base import (
    TRIED,
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
    unix_time,
    unread_time,
)

LISTS: Final = ("chats", "left_chats")
"""Members of an account's export that list chats."""
OTHERS: Final = {
    "contact_information": "contacts",
    "location_information": "places",
    "photo": "photos",
    "invoice_information": "invoices",
    "game_title": "games",
    "giveaway_information": "giveaways",
}
"""Members of a message by the kind of what it has beside words."""
_SAVED: Final = "Saved Messages"


def is_telegram(value: object) -> bool:
    """Whether parsed JSON is a chat or an account."""
    if not isinstance(value, dict):
        return False
    return _is_chat(value) or any(_listed(value, name) is not None for name in LISTS)


def _is_chat(value: dict[str, object]) -> bool:
    messages = value.get("messages")
    return (
        isinstance(messages, list)
        and isinstance(value.get("type"), str)
        and isinstance(value.get("id"), int)
        and (not messages or any(isinstance(e, dict) and "type" in e for e in messages[:TRIED]))
    )


def _listed(value: dict[str, object], name: str) -> list[object] | None:
    inner = value.get(name)
    chats = inner.get("list") if isinstance(inner, dict) else None
    return chats if isinstance(chats, list) else None


def read_telegram(document: Document, options: ReadOptions) -> Iterator[Item]:
    """Yields the messages chat by chat, in order. Raises Unreadable."""
    value = parsed(document)
    if not isinstance(value, dict) or not is_telegram(value):
        raise Unreadable("no Telegram export: it has neither `messages` nor `chats`")
    lists: dict[str, list[object]] = {document.name: [value]} if _is_chat(value) else {}
    for name in LISTS:
        lists[f"{document.name}: {name}.list"] = _listed(value, name) or []
    chats = [each for listed in lists.values() for each in listed if isinstance(each, dict)]
    if not any(each.get("messages") for each in chats):
        yield Note(f"{document.name} has no message")
    names = Counter(_name(each) for each in chats)
    read = partial(_chat, options, {name for name, count in names.items() if count > 1})
    yield from said(
        item for place, listed in lists.items() for item in each_object(listed, place, read)
    )


def _name(chat: dict[str, object]) -> str:
    return named(chat.get("name")) or (_SAVED if chat.get("type") == "saved_messages" else "")


def _chat(options: ReadOptions, ambiguous: set[str], place: str, chat: dict[str, object]) -> Found:
    """Yields the messages of a chat. It is called by its name, and by its id where that tells
    no more than the name of another one."""
    own, name = named(str(chat.get("id"))), _name(chat)
    if not name or name in ambiguous:
        name = f"{name or 'Telegram'} {own}"
    if not isinstance(chat.get("messages"), list):
        yield Bad(place, "a chat without a list `messages`")
    bot = f"user{own}" if chat.get("type") == "bot_chat" else None
    read = partial(_message, options, own, name, bot)
    yield from in_sessions(each_object(chat.get("messages"), f"{place}.messages", read))


def _message(
    options: ReadOptions,
    chat: str,
    name: str,
    bot: str | None,
    where: str,
    message: dict[str, object],
) -> Found:
    kind = named(message.get("type"))
    if kind != "message":
        action = named(message.get("action"))
        notice = f"notices ({action or 'unknown'})"
        yield LeftOut(notice if kind == "service" else f"messages of type {kind or 'unknown'}")
        return
    others = _others(message)
    yield from map(LeftOut, others)
    text = _words(message.get("text")) or _words(message.get("text_entities"))
    text = "\n".join(filter(None, (text, _poll(message.get("poll")))))
    if not text.strip():
        if not others:
            yield LeftOut("messages without words")
        return
    number = message.get("id")
    if not isinstance(number, int):
        yield Bad(where, f"a message without an id: it is {number!r}")
        return
    at = _time(message, "date", options)
    sender = named(message.get("from")) or named(message.get("from_id")) or "Deleted Account"
    speaker, metadata = sender, _metadata(message, name)
    is_forwarded = "forwarded_from" in message or "forwarded_from_id" in message
    if is_forwarded:  # the words of somebody else
        origin = message.get("forwarded_from"), message.get("forwarded_from_id")
        speaker = named(origin[0]) or named(origin[1]) or "Deleted Account"
        metadata["forwarded_by"] = sender
    is_program = bot is not None and message.get("from_id") == bot and not is_forwarded
    yield Utterance(
        place=where,
        key=f"telegram:{chat}:{number}"[:256],
        text=text,
        at=at,
        unread="" if at else unread_time(message.get("date")),
        session=f"{name} {at.date().isoformat()}"[-256:] if at else name[:256],
        speaker=speaker,
        role="tool" if is_program else "user",
        source_id=f"{chat}/{number}"[:512],
        metadata=metadata,
        revised_at=edit_time(_time(message, "edited", options), at),
    )


def _metadata(message: dict[str, object], chat: str) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {"chat": chat}
    for name in ("from_id", "reply_to_message_id"):
        if isinstance(value := message.get(name), str | int):
            found[name] = value
    return found


def _time(message: dict[str, object], name: str, options: ReadOptions) -> datetime | None:
    exact = unix_time(message.get(f"{name}_unixtime"))
    if exact is not None:
        return exact.astimezone(options.zone)
    return iso_time(message.get(name), options.zone)


def _words(value: object) -> str:
    """Returns the words of a text, which may be a list of texts and of objects with one."""
    if isinstance(value, str):
        return value
    listed = value if isinstance(value, list) else []
    parts = (each.get("text") if isinstance(each, dict) else each for each in listed)
    return "".join(part for part in parts if isinstance(part, str))


def _poll(value: object) -> str:
    """Returns the question of a poll and its answers, a line each."""
    if not isinstance(value, dict):
        return ""
    answers = value.get("answers")
    listed = answers if isinstance(answers, list) else []
    texts = [_words(each.get("text")) for each in listed if isinstance(each, dict)]
    return "\n".join([_words(value.get("question")), *(f"- {text}" for text in texts if text)])


def _others(message: dict[str, object]) -> list[str]:
    """Returns the kinds of what a message has beside words."""
    media = named(message.get("media_type")).replace("_", " ")
    found = [f"{media}s"] if media else ["files"] if message.get("file") else []
    return found + [kind for name, kind in OTHERS.items() if message.get(name)]
