"""Ids of things that messages speak of, and which items of the balance a message carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.envelope import Envelope, Frozen, derived_id
from schemas.messages import (
    CommandIntent,
    ConversationTurn,
    FactsExtracted,
    MemoryWrite,
    ProposalsIntent,
    RawTurnIntent,
    RejectedTurnIntent,
)

UNREADABLE_SCOPE = "(unreadable)"
"""The scope under which a record counts whose own cannot be read."""


@dataclass(frozen=True, slots=True)
class ItemsOf:
    """Which items of the balance a message carries."""

    kind: Literal["turn", "fact", "command", "change"] | None
    item_ids: tuple[str, ...]


def turn_memory_id(scope: str, turn_id: str) -> str:
    """The memory that a turn becomes; also the turn's id in the balance."""
    return derived_id("turn", scope, turn_id)


def fact_item_id(scope: str, turn_id: str, model: str, prompt_version: str, index: int) -> str:
    """A fact's id in the balance: the same turn extracted again the same way is the same fact."""
    return derived_id("fact", scope, turn_id, model, prompt_version, index)


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
            return ItemsOf("turn", (turn_memory_id(message.scope, write.turn.turn_id),))
        if isinstance(write, RejectedTurnIntent):
            return ItemsOf("turn", (turn_memory_id(message.scope, write.turn_id),))
        if isinstance(write, ProposalsIntent):
            return ItemsOf("fact", tuple(p.item_id for p in write.proposals))
        if isinstance(write, CommandIntent):
            return ItemsOf("command", (message.correlation_id,))
    if isinstance(body, FactsExtracted):
        return ItemsOf("fact", tuple(fact.item_id for fact in body.facts))
    if message.schema_ == "conversation-turn/1" and isinstance(body, ConversationTurn):
        return ItemsOf("turn", (turn_memory_id(message.scope, body.turn_id),))
    return ItemsOf(None, ())


def command_memory_id(command_id: str) -> str:
    """The memory that a remember command creates."""
    return derived_id("remembered", command_id)


def entity_id(scope: str, canonical_name: str) -> str:
    return derived_id("entity", scope, canonical_name)


def aspect_id(entity: str, canonical_name: str) -> str:
    return derived_id("aspect", entity, canonical_name)
