"""Ids of things that messages refer to, and which items of the balance a message carries."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from palimpsest.schemas.commands import MemoryCommand
from palimpsest.schemas.envelope import NAMESPACE, Envelope, Frozen, derived_id
from palimpsest.schemas.extraction import FactsExtracted
from palimpsest.schemas.messages import (
    CommandIntent,
    ConversationTurn,
    MemoryWrite,
    NormalizedTurn,
    ProposalsIntent,
    RawTurnIntent,
    RejectedTurnIntent,
)
from palimpsest.schemas.normal_forms import canonical_name, shown_name
from palimpsest.schemas.topics import CONVERSATION_TURNS, Topic

UNREADABLE_SCOPE = "(unreadable)"
"""The scope under which a record counts whose own cannot be read."""
ERASED_NAME = re.compile(r"erased (?:[0-9a-f-]{36}(?: \d+)?|\d+)")
"""Names in the graph that stand for erased ones."""
_ERASED_TURN = re.compile(r"\[erased ([0-9a-f-]{36})(?: \d+)?\]")
EMBEDDING_SCOPE = re.compile(r"embedding-\d{1,6}")
"""Names under which the commands for a partition's embedding model lie in the log."""
FACT_MEMORY_NAME = NAMESPACE.bytes + b"memory\x1f"
"""What stands before an item's id in what `fact_memory_id` is the SHA-1 of."""


def turn_memory_name(scope: str) -> bytes:
    """What stands before a turn's id in what `turn_memory_id` is the SHA-1 of."""
    return NAMESPACE.bytes + f"turn\x1f{scope}\x1f".encode(errors="surrogatepass")


def command_memory_name(scope: str) -> bytes:
    """What stands before a command's id in what `command_memory_id` is the SHA-1 of."""
    return NAMESPACE.bytes + f"remembered\x1f{scope}\x1f".encode(errors="surrogatepass")


@dataclass(frozen=True, slots=True)
class ItemsOf:
    """Which items of the balance a message carries."""

    kind: Literal["turn", "fact", "command", "change"] | None
    item_ids: tuple[str, ...]


def turn_memory_id(scope: str, turn_id: str) -> str:
    """The memory that a turn becomes."""
    return derived_id("turn", scope, turn_id)


def turn_item_id(scope: str, turn: ConversationTurn) -> str:
    """A published turn's id in the balance, derived from its content, speaker, role, session,
    privacy and edit. A repeat of the turn is the same item; another text under its turn id is
    another one. A turn whose text was erased keeps the id that it had."""
    was = (turn.model_extra or {}).get("erased_item_id")
    is_erased = _ERASED_TURN.fullmatch(turn.content)
    if isinstance(was, str) and is_erased and is_erased[1] == turn_memory_id(scope, turn.turn_id):
        return was
    content = (turn.session_id, turn.speaker, turn.role, turn.privacy, turn.content)
    edit = () if turn.revised_at is None else (turn.revised_at.isoformat(),)
    return derived_id("turn-item", scope, turn.turn_id, *content, *edit)


def item_id_of(scope: str, turn: NormalizedTurn | RejectedTurnIntent) -> str:
    """The balance's id of a turn on its way; of old records, that of its memory."""
    return turn.item_id or turn_memory_id(scope, turn.turn_id)


def earlier_text_id(memory_id: str, version: int) -> str:
    """What stands for a text that a memory had from this version on, where it was erased."""
    return derived_id("earlier-text", memory_id, version)


def fact_item_id(turn_item: str, model: str, prompt_version: str, index: int) -> str:
    """A fact's id in the balance: the same turn extracted again the same way is the same fact."""
    return derived_id("fact", turn_item, model, prompt_version, index)


def message_key(message: Envelope[Frozen]) -> str:
    """Identifies a message: repeats are recognised by it, and the ids of its consequences are
    derived from it. A producer chooses its ids freely, so for its messages the scope and the
    content count too."""
    body = message.body
    if isinstance(body, MemoryCommand):
        return derived_id("command", message.scope, message.id, body.model_dump_json())
    if isinstance(body, ConversationTurn) and not isinstance(body, NormalizedTurn):
        return derived_id("published", message.id, turn_item_id(message.scope, body))
    return message.id


def command_digest(scope: str, command: MemoryCommand) -> str:
    """Distinguishes two commands under one id: by scope, command and actor."""
    # Without defaults: a field that a later version adds changes no digest.
    command_json = command.model_dump_json(exclude_defaults=True)
    return derived_id("command-digest", scope, command.command.command, command_json)


def forget_token(scope: str, versions: Mapping[str, int]) -> str:
    """The token that confirms a preview of forgetting: the memories, each with its version. Not
    secret: it guards against a set that differs from the previewed one."""
    listed = [part for key in sorted(versions) for part in (key, versions[key])]
    return derived_id("forget", scope, *listed)


def erase_token(scope: str, count: int) -> str:
    """The token that confirms a preview of erasing a scope: its number of memories."""
    return derived_id("erase-scope", scope, count)


def fact_memory_id(item_id: str) -> str:
    """The memory that an ADD of a fact creates."""
    return derived_id("memory", item_id)


def unreadable_item_id(topic: str, partition: int, offset: int) -> str:
    """The balance's id of a turn whose record cannot be read: its place in the log."""
    return derived_id("unreadable", topic, partition, offset)


def items_of(message: Envelope[Frozen]) -> ItemsOf:
    """Which items a message carries on their way through the pipeline."""
    body = message.body
    if isinstance(body, MemoryWrite):
        write = body.write
        if isinstance(write, RawTurnIntent):
            return ItemsOf("turn", (item_id_of(message.scope, write.turn),))
        if isinstance(write, RejectedTurnIntent):
            return ItemsOf("turn", (item_id_of(message.scope, write),))
        if isinstance(write, ProposalsIntent):
            return ItemsOf("fact", tuple(p.item_id for p in write.proposals))
        if isinstance(write, CommandIntent):
            return ItemsOf("command", (message.correlation_id,))
    if isinstance(body, FactsExtracted):
        return ItemsOf("fact", tuple(fact.item_id for fact in body.facts))
    if isinstance(body, ConversationTurn) and not isinstance(body, NormalizedTurn):
        return ItemsOf("turn", (turn_item_id(message.scope, body),))
    return ItemsOf(None, ())


def items_of_unreadable(topic: Topic, partition: int, offset: int, value: bytes | None) -> ItemsOf:
    """Which items a record carries that cannot be read as a message: a published turn by its place
    in the log; of the pipeline's own messages those whose ids stand where they belong in the JSON,
    so that none is missing from the balance."""
    if topic is CONVERSATION_TURNS:
        return ItemsOf("turn", (unreadable_item_id(topic.name, partition, offset),))
    if topic.open_to_producers:
        return ItemsOf(None, ())
    try:
        # The standard library's parser takes deeper nesting than the one that reads messages.
        raw = json.loads(value or b"")
    except (ValueError, RecursionError):
        return ItemsOf(None, ())
    write = _at(raw, "body", "write")
    turn = _at(write, "turn", "item_id") or _at(write, "item_id")
    if isinstance(turn, str):
        return ItemsOf("turn", (turn,))
    facts = _at(write, "proposals") or _at(raw, "body", "facts")
    ids = [_at(fact, "item_id") for fact in facts] if isinstance(facts, list) else []
    found = tuple(item for item in ids if isinstance(item, str))
    return ItemsOf("fact", found) if found else ItemsOf(None, ())


def _at(raw: object, *path: str) -> object:
    for name in path:
        raw = raw.get(name) if isinstance(raw, dict) else None
    return raw


def command_memory_id(scope: str, command_id: str) -> str:
    """The memory that a remember command creates."""
    return derived_id("remembered", scope, command_id)


def entity_id(scope: str, canonical_name: str) -> str:
    return derived_id("entity", scope, canonical_name)


def relation_id(source_name: str, target_name: str, relation_type: str) -> str:
    """The id under which an erased relation between two names is known."""
    return derived_id("relation", source_name, target_name, relation_type)


def erased_name(scope: str, name: str) -> str:
    """The replacement of an erased name: it contains the id of the name, so that a store rebuilt
    from it knows what an import must not restore."""
    known = canonical_name(shown_name(name))
    return known if ERASED_NAME.fullmatch(known) else f"erased {entity_id(scope, known)}"


def erased_relation(scope: str, source: str, target: str, relation_type: str) -> str:
    """The same for a relation between two names."""
    known = canonical_name(relation_type)
    first, second = (entity_id(scope, canonical_name(shown_name(end))) for end in (source, target))
    is_erased = ERASED_NAME.fullmatch(known) is not None
    return known if is_erased else f"erased {relation_id(first, second, known)}"


def aspect_id(entity: str, canonical_name: str) -> str:
    return derived_id("aspect", entity, canonical_name)


def document_id(scope: str, command_id: str) -> str:
    """The document that an add-document command creates."""
    return derived_id("document", scope, command_id)


@dataclass(frozen=True, slots=True)
class ImportedIds:
    """Maps the ids of a file to those in the scope that imports it."""

    from_scope: str
    scope: str

    def of(self, given: str) -> str:
        if self.from_scope == self.scope:
            return given
        return derived_id("imported", self.scope, given)

    def maybe(self, given: str | None) -> str | None:
        return None if given is None else self.of(given)

    def of_end(self, given: str) -> str:
        """Maps the end of an edge, which may be a state: `<id>@<version>`."""
        memory_id, at, version = given.partition("@")
        return f"{self.of(memory_id)}{at}{version}"


def chunk_memory_id(document: str, content_hash: str) -> str:
    """The memory of a chunk: equal chunks of one document are one memory, of two documents two."""
    return derived_id("document-chunk", document, content_hash)
