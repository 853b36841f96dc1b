"""The provenance of a memory: its events, turns, earlier states and decisions."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from palimpsest.ops.errors import no_memory
from palimpsest.ops.operations.answers import StoredMemory
from palimpsest.ops.operations.memories import MEMORY, stored_memories, with_marks
from palimpsest.ops.operations.operation import Doc, Json, MemoryId, Read, ScopeOfId, Surface
from palimpsest.ops.operations.rows import by_id, plain, rows

if TYPE_CHECKING:
    from palimpsest.ops.operations.rows import Row
    from palimpsest.ops.sources import Sources
    from palimpsest.stores.shard import Shard

_MOST_EVENTS = 1_000


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """An event of a memory, and its actor."""

    event_id: str
    event: str
    old_content: str | None
    new_content: str | None
    changed_by: str
    actor_type: str
    reason: str
    metadata: dict[str, Any]
    session_id: str
    correlation_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class MemoryHistory:
    """The events of a memory, in order."""

    id: str
    events: tuple[AuditEvent, ...]


@dataclass(frozen=True, slots=True)
class History(Read[MemoryHistory]):
    """Show all events of a memory, in order.

    Example: palimpsest history 1f0c9a52
    """

    memory_id: MemoryId
    scope: ScopeOfId = None
    limit: Annotated[int, Doc("maximum number of events", ge=1, le=_MOST_EVENTS)] = 200

    surface: ClassVar = Surface(
        ("GET", "/api/memory/{memory_id}/history"),
        command="history",
        panel="Explain and review",
        routing="id",
    )

    def read(self, sources: Sources) -> Json:
        partition, memory = _memory(sources, self.memory_id)
        return {"id": memory["id"], "events": _events(sources, partition, memory["id"], self.limit)}


@dataclass(frozen=True, slots=True)
class Provenance:
    """A memory with its provenance: the turns that it was extracted from (`derived_from`; for a
    turn, the `facts` extracted from it), its earlier states, newest first, the decisions about it
    with their candidates and outcomes, the entities that it names, and its events."""

    memory: StoredMemory
    derived_from: tuple[StoredMemory, ...]
    facts: tuple[StoredMemory, ...]
    before: tuple[dict[str, Any], ...]
    decisions: tuple[dict[str, Any], ...]
    entities: tuple[dict[str, Any], ...]
    history: tuple[AuditEvent, ...]


@dataclass(frozen=True, slots=True)
class Explain(Read[Provenance]):
    """Explain a memory: its source turns, its earlier states, and the decisions about it.

    Example: palimpsest explain 1f0c9a52
    """

    memory_id: MemoryId
    scope: ScopeOfId = None

    surface: ClassVar = Surface(
        ("GET", "/api/memory/{memory_id}/explain"),
        command="explain",
        panel="Explain and review",
        routing="id",
        tool="explain_fact",
    )

    def read(self, sources: Sources) -> Json:
        partition, memory = _memory(sources, self.memory_id)
        shard = sources.shard(partition)
        memory_id = memory["id"]
        return {
            "memory": with_marks(sources, shard, [memory])[0],
            "derived_from": _related(sources, shard, memory_id, "source_id", "target_id"),
            "facts": _related(sources, shard, memory_id, "target_id", "source_id"),
            "before": _before(shard, memory_id),
            "decisions": _decisions(shard, memory_id),
            "entities": _entities(shard, memory_id),
            "history": _events(sources, partition, memory_id, _MOST_EVENTS),
        }


def _memory(sources: Sources, memory_id: str) -> tuple[int, Row]:
    return by_id(sources, MEMORY, "memory_id", memory_id, no_memory(memory_id))


def _events(sources: Sources, partition: int, memory_id: str, limit: int) -> list[Row]:
    """The events, including those that audit has not read yet, so that an answered command is
    among them. An event that moves during the read is found at its next place: outbox, log,
    table."""
    from palimpsest.stores.database.outcome_words import TOLD

    unread = _unread(sources, partition, memory_id)
    events = rows(
        sources.shard(partition),
        f"SELECT {', '.join(_SHOWN)} FROM history_rows"
        f" WHERE memory_id = ? ORDER BY created_at, rowid LIMIT {limit}",
        [memory_id],
    )
    known = {event["event_id"] for event in events}
    events += [event for key, event in unread.items() if key not in known]
    for event in events:
        event["event"] = TOLD.get(event["event"], event["event"])
        event["metadata"] = json.loads(event["metadata"])
    return events[:limit]


_SHOWN = (
    *("event_id", "event", "old_content", "new_content", "changed_by", "actor_type", "reason"),
    *("metadata", "session_id", "correlation_id", "created_at"),
)


def _unread(sources: Sources, partition: int, memory_id: str) -> dict[str, Row]:
    """The events on their way to audit, by id."""
    from palimpsest.schemas.codec import decode
    from palimpsest.schemas.messages import MemoryChange
    from palimpsest.schemas.topics import MEMORY_CHANGES
    from palimpsest.stores.database.balance import progress_of
    from palimpsest.streams.audit import events_of, history_row
    from palimpsest.streams.in_flight import tail

    topic = MEMORY_CHANGES.name
    with sources.shard(partition).reading() as reader:
        cursors, outbox = progress_of(reader)
    known: list[tuple[bytes | None, datetime | None]] = []
    known += [(value, None) for name, value in outbox if name == topic]
    read = cursors.get(("audit", topic), 0)
    known += [(each.value, each.timestamp) for each in tail(sources.log, topic, partition, read)]
    found: dict[str, Row] = {}
    for value, recorded in known:
        message = decode(value, MEMORY_CHANGES, recorded)
        assert isinstance(message.body, MemoryChange)
        for event in events_of(message, message.body):
            if event.memory_id == memory_id:
                row = asdict(history_row(message, event))
                found[event.event_id] = {name: plain(row[name]) for name in _SHOWN}
    return found


def _related(sources: Sources, shard: Shard, memory_id: str, own: str, other: str) -> list[Row]:
    return stored_memories(
        sources,
        shard,
        f"memory_id IN (SELECT {other} FROM memory_edges WHERE {own} = ? AND"
        " relation_type = 'derived_from') ORDER BY occurred_at, created_at, memory_id",
        [memory_id],
    )


def _before(shard: Shard, memory_id: str) -> list[Row]:
    """Archived states, each with the id that the supersedes edge names."""
    from palimpsest.stores.database.outcome_words import told_word

    return rows(
        shard,
        "SELECT memory_id || '@' || version AS id, version, type, content,"
        f" {told_word('reason')} AS reason, archived_at FROM memory_archive"
        " WHERE memory_id = ? ORDER BY version DESC",
        [memory_id],
    )


def _decisions(shard: Shard, memory_id: str) -> list[Row]:
    from palimpsest.stores.database.outcome_words import told_word

    decisions = rows(
        shard,
        "SELECT p.item_id, p.round, f.content AS fact, f.type AS fact_type, p.action,"
        " p.target_id, p.confidence, p.reason, p.contradiction_risk, p.review_needed,"
        f" p.dropped, p.model, p.candidates, {told_word('o.event')} AS outcome,"
        " o.reason AS outcome_reason,"
        " o.memory_id, f.turn_memory_id, p.recorded_at"
        " FROM proposals p JOIN fact_rows f USING (item_id)"
        " LEFT JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = p.item_id"
        " WHERE p.memory_id = $1 OR p.target_id = $1 OR o.memory_id = $1"
        " ORDER BY f.occurred_at, p.recorded_at, p.item_id, p.round",
        [memory_id],
    )
    for decision in decisions:
        decision["candidates"] = _with_contents(shard, json.loads(decision["candidates"]))
    return decisions


def _with_contents(shard: Shard, candidates: list[Row]) -> list[Row]:
    """The candidates, each with its text at the version that the decision saw."""
    texts = {
        (row["memory_id"], row["version"]): row["content"]
        for row in rows(
            shard,
            "SELECT memory_id, version, content FROM memory_rows"
            " WHERE memory_id IN (SELECT unnest($1))"
            " UNION ALL SELECT memory_id, version, content FROM memory_archive"
            " WHERE memory_id IN (SELECT unnest($1))",
            [[candidate["memory_id"] for candidate in candidates]],
        )
    }
    return [
        {**candidate, "content": texts.get((candidate["memory_id"], candidate["version"]))}
        for candidate in candidates
    ]


def _entities(shard: Shard, memory_id: str) -> list[Row]:
    return rows(
        shard,
        "SELECT e.name, e.entity_type AS type, m.mention_text AS mention, m.confidence"
        " FROM memory_entity_mentions m JOIN known_entities e USING (entity_id)"
        " WHERE m.memory_id = ? ORDER BY e.name",
        [memory_id],
    )
