"""Claude's export: conversations.json, a list of conversations with `chat_messages`; its memories
and projects are read by `kept`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final, cast

from palimpsest.ops.ingest.parsers.base import (
    UTC_ZONE,
    Bad,
    Document,
    Found,
    Item,
    Keys,
    LeftOut,
    Note,
    ReadOptions,
    Utterance,
    conversations,
    each_object,
    edit_time,
    iso_time,
    named,
    parsed,
    said,
    unread_time,
)
from palimpsest.ops.ingest.parsers.kept import is_kept, read_kept
from palimpsest.schemas.messages import Role

ROLES: Final[dict[str, Role]] = {"human": "user", "user": "user", "assistant": "assistant"}


MEMBER: Final = "chat_messages"
"""Of a conversation: its messages."""
ROOT: Final = "00000000-0000-4000-8000-000000000000"
"""What the first message names as the one before it."""


SPOKEN: Final = ("text", "voice_note")
"""Types of parts with the words of who sent the message."""
_NOT_SHOWN: Final = re.compile(
    r"(?:```\s{0,4})?This block is not supported on your current device yet\.(?:\s{0,4}```)?\n?"
)
"""What the program writes for a part that its export lacks."""
_THINKING: Final = re.compile(r"</?antThinking>\n?")
_ARTIFACT: Final = re.compile(r"</?antArtifact(?: [^<>]{0,1000})?>\n?")
"""Around what an answer shows beside the conversation."""
OTHER_BRANCHES: Final = "messages of other branches (answers made again, questions edited)"


def read_claude(document: Document, options: ReadOptions) -> Iterator[Item]:
    """Yields the messages of user and assistant, by conversation, each after the texts attached to
    it; or the memories or projects of the document. Raises Unreadable."""
    if is_kept(parsed(document)):
        yield from read_kept("claude", document, options)
        return
    listed = conversations(document, MEMBER, list, "Claude")
    if not listed:
        yield Note(f"{document.name} has no conversation")
    yield from said(each_object(listed, document.name, partial(_conversation, options)))


def _conversation(options: ReadOptions, place: str, conversation: dict[str, object]) -> Found:
    session = named(conversation.get("uuid")) or named(conversation.get("name"))
    listed = conversation.get(MEMBER)
    messages = listed if isinstance(listed, list) else []
    if not isinstance(listed, list):
        yield Bad(place, f"a conversation without a list `{MEMBER}`")
    keys = Keys("claude", session)
    current = _current(messages, conversation.get("current_leaf_message_uuid"))
    timed = any(
        isinstance(each, dict) and iso_time(each.get("created_at"), options.zone)
        for each in messages
    )
    # Without a time in the whole conversation, its first message has that of its beginning.
    began = None if timed else conversation.get("created_at")
    for number, found in enumerate(messages):
        where = f"{place}.{MEMBER}[{number}]"
        if not isinstance(found, dict):
            yield Bad(where, "not a JSON object")
        elif number not in current:
            yield LeftOut(OTHER_BRANCHES)
        else:
            for item in _message(found, where, session, keys, began, options):
                if isinstance(item, Utterance):
                    item.metadata["title"] = named(conversation.get("name"))
                    began = None
                yield item


def _current(messages: list[object], leaf: object) -> set[int]:
    """Returns the numbers of the messages of the current branch: those above the leaf, which is the
    newest if the conversation names none. A message that names no known one before it follows that
    before it in the list."""
    numbers: dict[object, int] = {}
    before: dict[int, int | None] = {}
    said_at: dict[int, float] = {}
    previous: int | None = None
    for number, each in enumerate(messages):
        if isinstance(each, dict):
            if isinstance(each.get("uuid"), str):
                numbers[each["uuid"]] = number
            at = iso_time(each.get("created_at"), UTC_ZONE)
            said_at[number] = at.timestamp() if at else said_at.get(previous or 0, 0.0)
            before[number] = previous
            previous = number
    for number, otherwise in before.items():
        parent = cast("dict[str, object]", messages[number]).get("parent_message_uuid")
        if isinstance(parent, str):
            before[number] = None if parent == ROOT else numbers.get(parent, otherwise)
    leaves = before.keys() - set(before.values()) or before.keys()
    here = numbers.get(leaf) if isinstance(leaf, str) else None
    if here is None:
        here = max(leaves, key=lambda number: (said_at[number], number), default=None)
    path: set[int] = set()
    while here is not None and here not in path:
        path.add(here)
        here = before[here]
    return path


def _message(
    found: dict[str, object],
    where: str,
    session: str,
    keys: Keys,
    began: object,
    options: ReadOptions,
) -> Found:
    role = ROLES.get(named(found.get("sender")))
    if role is None:
        yield Bad(where, f"an unknown sender {found.get('sender')!r}; expected human")
        return
    text, others = _words(found)
    attached, unread_files = _attached(found)
    yield from map(LeftOut, [*others, *unread_files])
    if not text and not attached and not others and not unread_files:
        yield LeftOut("messages without text")
    value = found.get("created_at") or began
    at = iso_time(value, options.zone)
    own = named(found.get("uuid"))
    said = Utterance(
        place=where,
        key="",
        text=text,
        at=at,
        unread="" if at else unread_time(value),
        session=session,
        speaker=options.me if role == "user" else "",
        role=role,
        source_id=own or None,
        revised_at=edit_time(iso_time(found.get("updated_at"), options.zone), at),
    )
    for number, (name, content) in enumerate(attached):
        yield replace(
            said,
            place=f"{where}.attachments[{number}]",
            key=f"claude:{own}"[:230] + f":attachment:{number}"
            if own
            else keys.key("attachment", name, content),
            text=content,
            role="tool",  # the words of a file are not the person's own
            metadata={"file": name},
        )
    if text:
        key = f"claude:{own}"[:256] if own else keys.key(role, text)
        yield replace(said, key=key, metadata={})


def _words(message: dict[str, object]) -> tuple[str, list[str]]:
    """Returns the text parts of a message (older exports have only `text`), and the kinds of its
    other parts."""
    content = message.get("content")
    texts, others = [], []
    for part in content if isinstance(content, list) else []:
        fields = part if isinstance(part, dict) else {}
        kind, text = fields.get("type", "text"), fields.get("text")
        if isinstance(part, dict) and kind in SPOKEN and isinstance(text, str):
            texts.append(text)
        else:
            others.append(f"parts of type {named(kind) if fields else 'unknown'}")
    text = message.get("text")
    if not any(text.strip() for text in texts) and isinstance(text, str):
        texts = [text.strip()]
    whole = "\n".join(text for text in texts if text.strip())
    shown = _NOT_SHOWN.sub("", whole)
    if shown != whole and not others:
        others.append("parts that the export does not have")
    if message.get("sender") != "assistant" or "<" not in shown:
        return (whole if shown == whole else shown.strip()), others
    said, *inside = _THINKING.split(shown)
    others += ["parts of type thinking"] * ((len(inside) + 1) // 2)
    return _ARTIFACT.sub("", said + "".join(inside[1::2])).strip(), others


def _attached(message: dict[str, object]) -> tuple[list[tuple[str, str]], list[str]]:
    """Returns the names and texts of attached files, and the kinds of those without a text."""
    texts, others = [], []
    listed = message.get("attachments")
    for each in listed if isinstance(listed, list) else []:
        content = each.get("extracted_content") if isinstance(each, dict) else None
        if isinstance(content, str) and content.strip():
            texts.append((named(each.get("file_name")), content))
        else:
            others.append("attached files without a text")
    files = message.get("files")
    others += ["files" for _ in (files if isinstance(files, list) else [])]
    return texts, others
