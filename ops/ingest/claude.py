"""Claude's export: conversations.json, a list of conversations with `chat_messages`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from palimpsest.ops.ingest.base import (
    Bad,
    Document,
    Found,
    Item,
    Keys,
    ReadOptions,
    Utterance,
    conversations,
    each_object,
    iso_time,
    named,
    said,
)
from palimpsest.schemas.messages import Role

ROLES: Final[dict[str, Role]] = {"human": "user", "user": "user", "assistant": "assistant"}


MEMBER: Final = "chat_messages"
"""Of a conversation: its messages."""


def read_claude(document: Document, options: ReadOptions) -> Iterator[Item]:
    """Yields the messages of user and assistant, by conversation. Raises Unreadable."""
    listed = conversations(document, MEMBER, list, "Claude")
    found = each_object(listed, document.name, partial(_conversation, options))
    return said(found, "messages without text (files, tools)")


def _conversation(options: ReadOptions, place: str, conversation: dict[str, object]) -> Found:
    session = named(conversation.get("uuid")) or named(conversation.get("name"))
    at = iso_time(conversation.get("created_at"), options.zone)
    keys = Keys("claude", session)

    def message(where: str, found: dict[str, object]) -> Found:
        nonlocal at
        role, text = ROLES.get(named(found.get("sender"))), _words(found)
        if role is None:
            yield Bad(where, f"an unknown sender {found.get('sender')!r}; expected human")
            return
        if not text:
            yield None
            return
        at = iso_time(found.get("created_at"), options.zone) or at
        own = named(found.get("uuid"))
        yield Utterance(
            place=where,
            key=f"claude:{own}"[:256] if own else keys.key(role, text),
            text=text,
            at=at,
            session=session,
            speaker=options.me if role == "user" else "",
            role=role,
            source_id=own or None,
            metadata={"title": named(conversation.get("name"))},
        )

    yield from each_object(conversation.get(MEMBER), f"{place}.{MEMBER}", message)


def _words(message: dict[str, object]) -> str:
    """Returns the text parts of a message; older exports have only `text`."""
    content = message.get("content")
    texts = [
        part["text"]
        for part in (content if isinstance(content, list) else [])
        if isinstance(part, dict)
        and part.get("type", "text") == "text"
        and isinstance(part.get("text"), str)
    ]
    whole = "\n".join(text for text in texts if text.strip())
    text = message.get("text")
    return whole or (text.strip() if isinstance(text, str) else "")
