"""A published turn of which nothing may be kept, without anything of what was said.

It stays the turn that it was: its ids, and so what it counts as, are those of before.
"""

from __future__ import annotations

import json
from typing import Final

from pydantic import JsonValue

from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.identity import turn_item_id, turn_memory_id
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.redaction import dumped, mark_of
from palimpsest.schemas.topics import CONVERSATION_TURNS

_ENVELOPE: Final = frozenset(
    ("id", "schema", "scope", "occurred_at", "correlation_id", "causation_id", "redrive")
)
_COUNTED: Final = ("turn_id", "session_id", "role")


def withheld_turn(scope: str, turn: ConversationTurn) -> ConversationTurn:
    """The turn with its ids alone, marked as one that may not be kept."""
    return ConversationTurn.model_validate(
        {
            **{name: getattr(turn, name) for name in _COUNTED},
            "content": mark_of(turn_memory_id(scope, turn.turn_id)),
            "privacy": "full",
            "erased_item_id": turn_item_id(scope, turn),
        }
    )


def withheld_value(value: bytes) -> bytes:
    """The same of a record's value; what is no message keeps nothing but its ids either."""
    try:
        message = decode(value, CONVERSATION_TURNS, None)
    except InvalidRecord:
        return _unread(value)
    raw: JsonValue = json.loads(value)
    body = message.body
    assert isinstance(raw, dict)
    assert isinstance(body, ConversationTurn)
    left = withheld_turn(message.scope, body).model_dump(mode="json", exclude_defaults=True)
    return dumped({**_envelope(raw), "body": left})


def says_withheld(value: bytes) -> bool:
    """Whether a record asks by itself for nothing of it to be kept (`privacy` is `full`)."""
    if b"full" not in value and b"\\u" not in value:
        return False
    try:
        raw: JsonValue = json.loads(value)
    except (ValueError, RecursionError):
        return False
    body = raw.get("body") if isinstance(raw, dict) else None
    return isinstance(body, dict) and body.get("privacy") == "full"


def unread_speaker(value: bytes) -> tuple[str, str] | None:
    """Scope and speaker of a record that cannot be read as a turn, where it says who spoke; None of
    one that is a turn."""
    try:
        raw: JsonValue = json.loads(value)
    except (ValueError, RecursionError):
        return None
    body = raw.get("body") if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or not isinstance(body, dict):
        return None
    scope, speaker = raw.get("scope"), body.get("speaker", "")
    if not isinstance(scope, str) or not isinstance(speaker, str):
        return None
    try:
        decode(value, CONVERSATION_TURNS, None)
    except InvalidRecord:
        return scope, speaker
    return None


def _unread(value: bytes) -> bytes:
    """Of a record that cannot be read as a turn."""
    try:
        raw: JsonValue = json.loads(value)
    except (ValueError, RecursionError):
        return b"{}"
    return dumped({**_envelope(raw if isinstance(raw, dict) else {}), "body": {"privacy": "full"}})


def _envelope(raw: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {name: held for name, held in raw.items() if name in _ENVELOPE}
