"""Claude's export: conversations.json, a list of conversations with `chat_messages`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from palimpsest.ops.ingest.base import (
    Bad,
    Choices,
    Document,
    Item,
    Keys,
    Note,
    Unreadable,
    Utterance,
    iso_time,
    named,
    objects,
    parsed,
)
from palimpsest.schemas.messages import Role

ROLES: Final[dict[object, Role]] = {"human": "user", "user": "user", "assistant": "assistant"}


def is_claude(value: object) -> bool:
    """Whether parsed JSON is such an export, or one conversation of it."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and isinstance(first.get("chat_messages"), list)


def read_claude(document: Document, choices: Choices) -> Iterator[Item]:
    """Yields the messages of user and assistant, by conversation. Raises Unreadable."""
    value = parsed(document)
    if not is_claude(value):
        raise Unreadable("no Claude export: its conversations have no `chat_messages`")
    empty = 0
    for found in objects(value if isinstance(value, list) else [value], document.name):
        if isinstance(found, Bad):
            yield found
            continue
        place, conversation = found
        session = named(conversation.get("uuid")) or named(conversation.get("name"))
        began = iso_time(conversation.get("created_at"), choices.zone)
        keys = Keys("claude", session)
        for message in objects(conversation.get("chat_messages"), f"{place}.chat_messages"):
            if isinstance(message, Bad):
                yield message
                continue
            where, said = message
            role, text = ROLES.get(named(said.get("sender"))), _words(said)
            if role is None:
                yield Bad(where, f"an unknown sender {said.get('sender')!r}; expected human")
            elif not text:
                empty += 1
            else:
                began = iso_time(said.get("created_at"), choices.zone) or began
                own = named(said.get("uuid"))
                yield Utterance(
                    place=where,
                    key=f"claude:{own}"[:256] if own else keys.key(role, text),
                    text=text,
                    at=began,
                    session=session,
                    speaker=choices.me if role == "user" else "",
                    role=role,
                    source_id=own or None,
                    metadata={"title": named(conversation.get("name"))},
                )
    if empty:
        yield Note(f"{empty} messages without text (files, tools) are left out")


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
