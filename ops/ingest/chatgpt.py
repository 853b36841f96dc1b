"""ChatGPT's export: conversations.json, a list of conversations, each a tree of messages.

The tree has a branch for every regenerated answer and every edited question; the conversation as
last seen is the path from `current_node` up to the root.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, cast

from palimpsest.ops.ingest.base import (
    Bad,
    Document,
    Found,
    Item,
    ReadOptions,
    Utterance,
    conversations,
    each_object,
    named,
    said,
    unix_time,
)
from palimpsest.schemas.messages import Role

SPOKEN: Final = ("text", "multimodal_text")
ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant"}


MEMBER: Final = "mapping"
"""Of a conversation: its messages by node."""


def read_chatgpt(document: Document, options: ReadOptions) -> Iterator[Item]:
    """Yields the messages of user and assistant, by conversation. Raises Unreadable."""
    listed = conversations(document, MEMBER, dict, "ChatGPT")
    found = each_object(listed, document.name, partial(_conversation, options))
    return said(
        found,
        "messages without words of a person or the assistant (tools, code, images, hidden ones)",
    )


def _conversation(options: ReadOptions, place: str, conversation: dict[str, object]) -> Found:
    mapping = conversation.get(MEMBER)
    if not isinstance(mapping, dict):
        yield Bad(place, "a conversation without a `mapping` of messages")
        return
    nodes = {key: node for key, node in mapping.items() if isinstance(node, dict)}
    session = _text(conversation, "conversation_id", "id") or _text(conversation, "title")
    at = unix_time(conversation.get("create_time"))
    for node_id in _path(nodes, conversation.get("current_node")):
        message = nodes[node_id].get("message")
        if not isinstance(message, dict):
            continue  # the root has none
        author = message.get("author")
        role = ROLES.get(_text(author if isinstance(author, dict) else {}, "role"))
        text = _spoken(message)
        if role is None or text is None:
            yield None
            continue
        # A message without a time takes the time of the previous one.
        at = unix_time(message.get("create_time")) or at
        yield Utterance(
            place=f"{place}: {node_id}",
            key=f"chatgpt:{_text(message, 'id') or node_id}"[:256],
            text=text,
            at=at,
            session=session[:256],
            speaker=options.me if role == "user" else "",
            role=role,
            source_id=node_id[:512],
            metadata={"title": named(conversation.get("title"))},
        )


def _path(nodes: dict[str, dict[str, object]], current: object) -> list[str]:
    """Returns the nodes from the root to `current`, or to the newest leaf if that is no node."""
    here = current if isinstance(current, str) and current in nodes else _newest_leaf(nodes)
    path: list[str] = []
    seen = set()
    while here is not None and here not in seen:
        path.append(here)
        seen.add(here)
        parent = nodes[here].get("parent")
        here = parent if isinstance(parent, str) and parent in nodes else None
    return path[::-1]


def _newest_leaf(nodes: dict[str, dict[str, object]]) -> str | None:
    parents = {str(node.get("parent")) for node in nodes.values()}
    leaves = [key for key in nodes if key not in parents]
    return max(leaves, key=lambda key: _said_at(nodes[key]), default=None)


def _said_at(node: dict[str, object]) -> float:
    message = node.get("message")
    at = unix_time(message.get("create_time")) if isinstance(message, dict) else None
    return at.timestamp() if at else 0.0


def _spoken(message: dict[str, object]) -> str | None:
    """Returns the text of a message between user and assistant; None if it has none."""
    content, metadata = message.get("content"), message.get("metadata")
    if not isinstance(content, dict) or content.get("content_type") not in SPOKEN:
        return None
    if message.get("recipient", "all") not in ("all", None):
        return None  # addressed to a tool
    if isinstance(metadata, dict) and metadata.get("is_visually_hidden_from_conversation"):
        return None
    parts = content.get("parts")
    words = [_words(part) for part in (parts if isinstance(parts, list) else [])]
    return "\n".join(word for word in words if word.strip()) or None


def _words(part: object) -> str:
    if isinstance(part, dict):  # transcribed speech has text; images and files have none
        part = part.get("text")
    return part if isinstance(part, str) else ""


def _text(found: dict[str, object], *names: str) -> str:
    return next((cast("str", found[n]) for n in names if isinstance(found.get(n), str)), "")
