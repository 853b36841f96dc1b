"""Messages as they lie on the log: turns, commands, and dead letters sent again."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

from palimpsest.schemas.codec import decode
from palimpsest.schemas.commands import Command, MemoryCommand
from palimpsest.schemas.envelope import Actor, Envelope, Frozen, derived_id
from palimpsest.schemas.messages import ConversationTurn, DeadLetter
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS, TOPICS, Topic
from palimpsest.streams.stage import Message

BEGIN = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
HUMAN = Actor()


def turn(content: str, number: int | str = 1, **fields: Any) -> ConversationTurn:
    """A turn; `number` makes its id."""
    return ConversationTurn.model_validate(
        {"turn_id": f"t{number}", "session_id": "s1", "speaker": "Ana", **fields}
        | {"content": content}
    )


def envelope(
    body: Frozen, topic: Topic, message_id: str, scope: str = "ana", **fields: Any
) -> Message:
    """`body` as it lies on `topic`."""
    return Envelope[Frozen].model_validate(
        {
            "id": message_id,
            "schema": topic.schemas[0],
            "scope": scope,
            "occurred_at": BEGIN,
            "correlation_id": message_id,
            "body": body,
            **fields,
        }
    )


def published(body: ConversationTurn, scope: str = "ana", **fields: Any) -> Message:
    """A turn as its producer published it; the same turn in the same scope has the same id."""
    message_id = fields.pop("message_id", None) or derived_id("test", scope, body.turn_id)
    return envelope(body, CONVERSATION_TURNS, message_id, scope, **fields)


def commanded(
    command: Command, number: int | str, scope: str = "ana", actor: Actor = HUMAN
) -> Message:
    body = MemoryCommand(command=command, actor=actor)
    return envelope(body, MEMORY_COMMANDS, derived_id("test-command", scope, number), scope)


def redriven(dead_letter: DeadLetter, count: int = 1) -> tuple[Topic, Message]:
    """The message of a dead letter as a redrive sends it: under another id, marked."""
    topic = TOPICS[dead_letter.topic]
    raw = json.loads(base64.b64decode(dead_letter.value_base64))
    raw["id"] = derived_id("redrive", raw["id"], count)
    raw["redrive"] = count
    return topic, decode(json.dumps(raw).encode(), topic, None)


def topic_of(message: Message) -> Topic:
    return next(topic for topic in TOPICS.values() if message.schema_ in topic.schemas)
