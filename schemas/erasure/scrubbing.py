"""Scrubs everything in a scope when all of it is erased: records and rows, as JSON.

Fields are not selected by name. Only what reveals nothing stays: ids, times, hashes and the
program's own words. Everything else is replaced, so a field that is added later is scrubbed without
further work."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pydantic import JsonValue

from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.erasure.quotations import ERASED, is_mark, mark_of
from palimpsest.schemas.erasure.vocabulary import field_names, is_plain
from palimpsest.schemas.identity import erased_name, erased_relation, turn_item_id, turn_memory_id
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.privacy import erased_person
from palimpsest.schemas.surrogates import dumped
from palimpsest.schemas.topics import CONVERSATION_TURNS

_IDS: Final = frozenset({"turn_id", "session_id", "scope", "from_scope"})
"""Identifiers chosen by producers."""
_COUNTED: Final = ("turn_id", "session_id", "role", "privacy")
_NOTHING: Final = b'{"body":{}}'
_OPEN: Final = frozenset({"headers", "extensions"})
"""Fields with arbitrary keys, which nothing reads."""
_NAMES: Final = frozenset(
    {"name", "alias", "canonical_name", "main", "source", "target", "entity", "aspect", "aliases"}
    | {"separated", "rename"}
)
"""Names in the graph: equal ones stay equal."""
_CODE: Final = re.compile(
    r"(?:forbidden|frozen|private|not_found|not_deleted|invalid_request|unknown_person"
    r"|confirm_mismatch|version_conflict|retention_expired|duplicate_content_hash"
    r"|confirmation_required): "
)
"""Prefix of an error, by which programs recognise it."""


@dataclass(slots=True)
class Scrub:
    """Scrubs messages in a scope up to its erasure by the command `erasure_id`, `at` this moment.
    Data about a memory that is not among the `erased` ones stays, and so does data about the
    erasure itself, identified by its `own` ids."""

    scope: str
    erasure_id: str
    at: datetime
    erased: Collection[str]
    own: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.own.add(self.erasure_id)

    def value(self, value: bytes, is_dead: bool = False) -> bytes:
        """Scrubs a record's value; only the envelope remains of a turn that could not be
        processed."""
        raw = _parsed(value)
        if raw is None:
            return _NOTHING if is_dead else value
        left = raw | {"body": self._dead_turn(raw.get("body"))} if is_dead else raw
        try:
            scrubbed = self.node(left)
        except RecursionError:
            return _NOTHING
        return value if scrubbed == raw else dumped(scrubbed)

    def node(self, node: JsonValue, name: str = "") -> JsonValue:
        """Scrubs a part of a record or a row, under the name of its field."""
        if isinstance(node, dict):
            return self._object(node, name)
        if isinstance(node, list):
            return [self.node(each, name) for each in node]
        return self._text(node, name) if isinstance(node, str) else node

    def _text(self, node: str, name: str) -> str:
        if self._stays(node, name):
            return node
        if name == "person":
            return erased_person(self.scope, node)
        if name == "error":
            code = _CODE.match(node)
            return f"{code.group()}{ERASED}" if code else ERASED
        if name in _NAMES:
            return erased_name(self.scope, node)
        return ERASED

    def tells_of_others(self, node: JsonValue) -> bool:
        """Whether a record or a row concerns a memory that was not erased."""
        if isinstance(node, list):
            return any(map(self.tells_of_others, node))
        if not isinstance(node, dict):
            return False
        ids = [node.get(name) for name in ("memory_id", "turn_memory_id", "source_memory")]
        many = node.get("memory_ids")
        ids += many if isinstance(many, list) else []
        if "turn_id" in node and "content" in node and "memory_id" not in node:
            ids.append(turn_memory_id(self.scope, str(node["turn_id"])))
        if any(isinstance(each, str) and each not in self.erased for each in ids):
            return True
        return any(map(self.tells_of_others, node.values()))

    def _stays(self, text: str, name: str) -> bool:
        if not text or text == self.scope or name in _IDS or text == ERASED or is_mark(text):
            return True
        return is_plain(text)

    def _object(self, node: Mapping[str, JsonValue], name: str) -> JsonValue:
        if name in _OPEN:
            return {}
        if "value_base64" in node:
            try:
                held = base64.b64decode(str(node["value_base64"]), validate=True)
            except ValueError:
                held = b""
            value = self.value(held, is_dead=node.get("topic") == CONVERSATION_TURNS.name)
            node = {**node, "value_base64": base64.b64encode(value).decode()}
        known = field_names()
        relation_field = next(
            (name for name in ("relationship", "relation_type") if name in node), ""
        )
        if (
            relation_field
            and {"source", "target"} <= node.keys()
            and not is_plain(str(node[relation_field]))
        ):
            source, target = str(node["source"]), str(node["target"])
            left = erased_relation(self.scope, source, target, str(node[relation_field]))
            node = {**node, relation_field: left}
        # The settings with which an intent is executed are the program's.
        as_is = {"value_base64", "settings"} if "write" in node else {"value_base64"}
        return {
            key: each if key in as_is else self.node(each, key)
            for key, each in node.items()
            if key in known
        }

    def _dead_turn(self, body: JsonValue) -> JsonValue:
        """Returns what remains of a turn that was never stored: what it is counted by."""
        try:
            turn = ConversationTurn.model_validate(body)
        except ValueError:
            return {}
        if is_mark(turn.content) or not isinstance(body, dict):
            return body
        left = {name: body[name] for name in _COUNTED if name in body}
        mark = mark_of(turn_memory_id(self.scope, turn.turn_id))
        return left | {"content": mark, "erased_item_id": turn_item_id(self.scope, turn)}


# A published turn of which nothing may be kept stays the turn that it was: its ids, and so what it
# counts as, are those of before.

_ENVELOPE: Final = frozenset(
    ("id", "schema", "scope", "occurred_at", "correlation_id", "causation_id", "redrive")
)
_KEPT: Final = ("turn_id", "session_id", "role")


def withheld_turn(scope: str, turn: ConversationTurn) -> ConversationTurn:
    """The turn with its ids alone, marked as one that may not be kept."""
    return ConversationTurn.model_validate(
        {
            **{name: getattr(turn, name) for name in _KEPT},
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
        raw = _parsed(value)
        return b"{}" if raw is None else dumped({**_envelope(raw), "body": {"privacy": "full"}})
    body = message.body
    assert isinstance(body, ConversationTurn)
    left = withheld_turn(message.scope, body).model_dump(mode="json", exclude_defaults=True)
    return dumped({**_envelope(json.loads(value)), "body": left})


def says_withheld(value: bytes) -> bool:
    """Whether a record asks by itself for nothing of it to be kept (`privacy` is `full`)."""
    if b"full" not in value and b"\\u" not in value:
        return False
    body = (_parsed(value) or {}).get("body")
    return isinstance(body, dict) and body.get("privacy") == "full"


def unread_speaker(value: bytes) -> tuple[str, str] | None:
    """Scope and speaker of a record that cannot be read as a turn, where it says who spoke; None of
    one that is a turn."""
    raw = _parsed(value) or {}
    body = raw.get("body")
    if not isinstance(body, dict):
        return None
    scope, speaker = raw.get("scope"), body.get("speaker", "")
    if not isinstance(scope, str) or not isinstance(speaker, str):
        return None
    try:
        decode(value, CONVERSATION_TURNS, None)
    except InvalidRecord:
        return scope, speaker
    return None


def _parsed(value: bytes) -> dict[str, JsonValue] | None:
    """Returns a record's JSON object; None for what is none."""
    try:
        raw: JsonValue = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return raw if isinstance(raw, dict) else None


def _envelope(raw: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {name: held for name, held in raw.items() if name in _ENVELOPE}
