"""ChatGPT's export: conversations.json, a list of conversations, each a tree of messages.

The tree has a branch for every regenerated answer and every edited question; the conversation as
last seen is the path from `current_node` up to the root.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Final, cast

from palimpsest.ops.ingest.parsers.base import (
    Bad,
    Document,
    Found,
    Item,
    LeftOut,
    Note,
    ReadOptions,
    Utterance,
    conversations,
    each_object,
    edit_time,
    named,
    parsed,
    said,
    unix_time,
    unread_time,
)
from palimpsest.ops.ingest.parsers.kept import is_list_of_memories, read_kept
from palimpsest.schemas.messages import Role

SPOKEN: Final = ("text", "multimodal_text")
MEMORY: Final = "bio"
"""Recipient of what the assistant remembers of the person, a sentence a message."""
ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant"}


MEMBER: Final = "mapping"
"""Of a conversation: its messages by node."""


_MARK: Final = re.compile(
    r" ?\ue200(?P<closed>[^\ue200\ue201]*)\ue201"
    r"|\ue200(?:[a-z_]+(?:\ue202[^\s\ue200-\ue2ff]*)*)?"  # cut off
    r"|[\ue200-\ue20f]"
    r"| ?:contentReference\[oaicite:\d{1,6}\](?:\{[^{}\n]{0,80}\})?"
    r"| ?【[0-9:]{1,12}†[^【】\n]{0,80}】"
)
"""What the program shows as a source, a card or a highlight; parts are parted by U+E202."""
OTHER_BRANCHES: Final = "messages of other branches (answers made again, questions edited)"


def read_chatgpt(document: Document, options: ReadOptions) -> Iterator[Item]:
    """Yields the messages of user and assistant, by conversation; or the memories of a list of
    them. Raises Unreadable."""
    if is_list_of_memories(parsed(document)):
        yield from read_kept("chatgpt", document, options)
        return
    listed = conversations(document, MEMBER, dict, "ChatGPT")
    if not listed:
        yield Note(f"{document.name} has no conversation")
    yield from said(each_object(listed, document.name, partial(_conversation, options)))


def _conversation(options: ReadOptions, place: str, conversation: dict[str, object]) -> Found:
    mapping = conversation.get(MEMBER)
    if not isinstance(mapping, dict):
        yield Bad(place, "a conversation without a `mapping` of messages")
        return
    nodes: dict[str, dict[str, object]] = {}
    for key, node in mapping.items():
        if isinstance(node, dict):
            nodes[key] = node
        else:
            yield Bad(f"{place}: {key}", "not a JSON object")
    parents = _parents(nodes)
    path = _path(nodes, parents, conversation.get("current_node"))
    session = _text(conversation, "conversation_id", "id") or _text(conversation, "title")
    untimed = not any(_said_at(nodes[key]) for key in path)
    for node_id in path:
        found = nodes[node_id].get("message")
        if found is None:
            continue  # the root has none
        if not isinstance(found, dict):
            yield Bad(f"{place}: {node_id}", "a message that is no JSON object")
            continue
        # Without a time in the whole conversation, its first message has that of its beginning.
        began = conversation.get("create_time") if untimed else None
        for item in _message(found, f"{place}: {node_id}", node_id, session, began, options):
            if isinstance(item, Utterance):
                item.metadata["title"] = named(conversation.get("title"))
                untimed = False
            yield item
    if path and nodes[path[0]].get("parent") is not None:
        yield Bad(f"{place}: {path[0]}", "what was said before it is not in the export")
    for key in nodes.keys() - set(path):
        if nodes[key].get("message") is not None:
            yield LeftOut(OTHER_BRANCHES)


def _message(
    message: dict[str, object],
    place: str,
    node_id: str,
    session: str,
    began: object,
    options: ReadOptions,
) -> Found:
    author = message.get("author")
    role = ROLES.get(_text(author if isinstance(author, dict) else {}, "role"))
    words, others = _spoken(message)
    if role is None or not words:
        yield from map(LeftOut, others or [_unsaid(role)])
        return
    yield from map(LeftOut, others)
    text = _MARK.sub(_shown, words).strip() if role == "assistant" else words
    if not text:
        yield LeftOut(_unsaid(None))
        return
    value = message.get("create_time") or began
    at = unix_time(value)
    yield Utterance(
        place=place,
        key=f"chatgpt:{_text(message, 'id') or node_id}"[:256],
        text=text,
        at=at,
        unread="" if at else unread_time(value),
        session=session[:256],
        speaker=options.me if role == "user" else "",
        role=role,
        source_id=node_id[:512],
        revised_at=edit_time(unix_time(message.get("update_time")), at),
    )


def _unsaid(role: Role | None) -> str:
    return "messages without words" if role else "messages of the program and its tools"


def _parents(nodes: dict[str, dict[str, object]]) -> dict[str, str]:
    """Returns each node's parent, by its own word or by that of the node it is a child of."""
    parents: dict[str, str] = {}
    for key, node in nodes.items():
        children = node.get("children")
        for child in children if isinstance(children, list) else []:
            if isinstance(child, str) and child in nodes:
                parents.setdefault(child, key)
    own = {key: node.get("parent") for key, node in nodes.items()}
    return parents | {k: p for k, p in own.items() if isinstance(p, str) and p in nodes}


def _path(
    nodes: dict[str, dict[str, object]], parents: dict[str, str], current: object
) -> list[str]:
    """Returns the nodes from the root to `current`, or to the newest leaf if that is no node. In a
    circle each is named once."""
    here = current if isinstance(current, str) and current in nodes else None
    if here is None:
        leaves = nodes.keys() - set(parents.values()) or nodes
        here = max(
            (key for key in nodes if key in leaves),
            key=lambda key: _said_at(nodes[key]),
            default=None,
        )
    path: dict[str, None] = {}
    while here is not None and here not in path:
        path[here] = None
        here = parents.get(here)
    return list(path)[::-1]


def _said_at(node: dict[str, object]) -> float:
    message = node.get("message")
    at = unix_time(message.get("create_time")) if isinstance(message, dict) else None
    return at.timestamp() if at else 0.0


def _spoken(message: dict[str, object]) -> tuple[str, list[str]]:
    """Returns the text of a message between user and assistant, and the kinds of what is beside
    it; of any other message, its kind only."""
    content, metadata = message.get("content"), message.get("metadata")
    if not isinstance(content, dict):
        return "", ["messages without content"]
    if isinstance(metadata, dict) and metadata.get("is_visually_hidden_from_conversation"):
        return "", ["hidden messages"]
    if message.get("recipient", "all") not in ("all", None, MEMORY):
        return "", ["calls of tools"]
    kind = content.get("content_type")
    if kind not in SPOKEN:
        return "", [f"messages of type {named(kind) or 'unknown'}"]
    texts, others = [], []
    parts = content.get("parts")
    for part in parts if isinstance(parts, list) else []:
        fields = part if isinstance(part, dict) else {"text": part}
        text = fields.get("text")  # transcribed speech has one; images and files have none
        if not isinstance(text, str):
            others.append(f"parts of type {named(fields.get('content_type')) or 'unknown'}")
        elif text.strip():
            texts.append(text)
    return "\n".join(texts), others


def _shown(mark: re.Match[str]) -> str:
    """Returns what a mark shows: the name of an entity or of a link, nothing for a source."""
    kind, _, rest = (mark["closed"] or "").partition("\ue202")
    shown = ""
    if kind == "url":
        shown = rest.partition("\ue202")[0]
    elif kind == "entity":
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(rest)
            if isinstance(value, list) and len(value) > 1 and isinstance(value[1], str):
                shown = value[1]
    space = " " if mark[0].startswith(" ") else ""
    return space + shown if shown else ""


def _text(found: dict[str, object], *names: str) -> str:
    return next((cast("str", found[n]) for n in names if isinstance(found.get(n), str)), "")
