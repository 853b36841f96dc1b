"""The provenance of a memory: its events, turns, earlier states and decisions."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from palimpsest.ops.errors import no_memory
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.answers import StoredMemory
from palimpsest.ops.operations.memories import MEMORY, last_recalls, stored_memories, with_marks
from palimpsest.ops.operations.operation import Answer, Doc, Json, Read, Surface
from palimpsest.ops.reading.rows import Row, by_id, rows
from palimpsest.ops.sql.values import plain

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources
    from palimpsest.stores.shard import Shard

_OF_MEMORY = partial(Surface, panel="Explain and review", routing="id")
_MOST_EVENTS = 1_000


class AuditEvent(Answer):
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


class MemoryHistory(Answer):
    """The events of a memory, in order."""

    id: str
    events: tuple[AuditEvent, ...]


class History(Read[MemoryHistory]):
    """Show all events of a memory, in order.

    Example: palimpsest history 1f0c9a52
    """

    memory_id: shared.MemoryId
    scope: shared.ScopeOfId = None
    limit: Annotated[int, Doc("maximum number of events", ge=1, le=_MOST_EVENTS)] = 200

    surface: ClassVar = _OF_MEMORY(("GET", "/api/memory/{memory_id}/history"), command="history")

    def read(self, sources: Sources) -> Json:
        partition, memory = _memory(sources, self.memory_id)
        return {"id": memory["id"], "events": _events(sources, partition, memory["id"], self.limit)}


class ReplyFact(Answer):
    """A fact of the model's reply, what became of it (`outcome`, None while undecided), and the
    memory that it became or was decided about."""

    item_id: str
    content: str
    type: str
    confidence: float
    outcome: str | None
    memory_id: str | None


class Extraction(Answer):
    """A call of a model on a turn: the tokens read and written, the time, the `cost` by the prices
    in the settings, what of its reply was not usable (`warnings`), and the facts of the reply."""

    turn_memory_id: str
    provider: str
    model: str
    prompt_version: str
    triples: int
    input_tokens: int | None
    output_tokens: int | None
    latency_ms: float
    cost: float | None
    attempts: int
    warnings: tuple[str, ...]
    round: int
    recorded_at: datetime
    facts: tuple[ReplyFact, ...]


class MemoryEdge(Answer):
    """An edge to another memory, or to an earlier state of one (`id` is then `id@version`):
    `relation` is supersedes, temporal, entity or causal; `direction` as seen from the memory
    explained."""

    direction: Literal["out", "in"]
    relation: str
    predicate: str
    id: str
    type: str
    content: str
    confidence: float
    evidence: str


class Provenance(Answer):
    """A memory with its provenance: the turns that it was extracted from (`derived_from`; for a
    turn, the `facts` extracted from it), the `extractions` from these turns, its earlier states,
    newest first, the decisions about it with their candidates and outcomes, the entities that it
    names, its `edges` to other memories, and its events."""

    memory: StoredMemory
    derived_from: tuple[StoredMemory, ...]
    facts: tuple[StoredMemory, ...]
    extractions: tuple[Extraction, ...]
    before: tuple[dict[str, Any], ...]
    decisions: tuple[dict[str, Any], ...]
    entities: tuple[dict[str, Any], ...]
    edges: tuple[MemoryEdge, ...]
    history: tuple[AuditEvent, ...]


class Explain(Read[Provenance]):
    """Explain a memory: its source turns, its earlier states, and the decisions about it.

    Example: palimpsest explain 1f0c9a52
    """

    memory_id: shared.MemoryId
    scope: shared.ScopeOfId = None

    surface: ClassVar = _OF_MEMORY(
        ("GET", "/api/memory/{memory_id}/explain"), command="explain", tool="explain_fact"
    )

    def read(self, sources: Sources) -> Json:
        partition, memory = _memory(sources, self.memory_id)
        shard = sources.shard(partition)
        memory_id = memory["id"]
        turns = _related(sources, shard, memory_id, "source_id", "target_id")
        return {
            "memory": with_marks(sources, shard, [memory])[0]
            | {"recalls": last_recalls(shard, memory)},
            "derived_from": turns,
            "facts": _related(sources, shard, memory_id, "target_id", "source_id"),
            "extractions": _extractions(shard, [memory_id, *(turn["id"] for turn in turns)]),
            "before": _before(shard, memory),
            "decisions": _decisions(shard, memory_id),
            "entities": rows(shard, _ENTITIES, [memory_id]),
            "edges": _edges(shard, memory),
            "history": _events(sources, partition, memory_id, _MOST_EVENTS),
        }


_ENTITIES = """
SELECT e.name, e.entity_type AS type, m.mention_text AS mention, m.confidence
FROM memory_entity_mentions m JOIN known_entities e USING (entity_id)
WHERE m.memory_id = ? ORDER BY e.name
"""
# An edge may end at an archived state, `id@version`. That of a forgotten memory is not shown.
_EDGES = r"""
WITH edges AS (
    SELECT 'out' AS direction, target_id AS other, * FROM memory_edges
    WHERE scope = $scope AND source_id = $id AND relation_type <> 'derived_from'
    UNION ALL
    SELECT 'in', source_id, * FROM memory_edges
    WHERE scope = $scope AND source_id <> $id AND relation_type <> 'derived_from'
        AND (target_id = $id OR (starts_with(target_id, $id || '@')
            AND regexp_full_match(substr(target_id, length($id) + 2), '\d+')))),
ends AS (
    SELECT memory_id AS id, type, content FROM memory_rows
    WHERE scope = $scope AND memory_id IN (SELECT other FROM edges) AND NOT is_deleted
    UNION ALL
    SELECT a.memory_id || '@' || a.version, a.type, a.content
    FROM archived_states a JOIN memory_rows m USING (scope, memory_id)
    WHERE a.scope = $scope
        AND a.memory_id IN (SELECT regexp_replace(other, '@\d+$', '') FROM edges)
        AND a.memory_id || '@' || a.version IN (SELECT other FROM edges)
        AND (NOT m.is_deleted OR starts_with(a.reason, $deleted_by)))
SELECT e.direction, e.relation_type AS relation, e.predicate, o.id, o.type, o.content,
    e.confidence, e.evidence
FROM edges e JOIN ends o ON o.id = e.other
ORDER BY e.relation_type, e.confidence DESC, o.id LIMIT 50
"""
_FACTS_OF_TURNS = """
SELECT f.turn_memory_id, f.model, f.item_id, f.content, f.type, f.confidence,
    {outcome} AS outcome, coalesce(o.memory_id, p.memory_id) AS memory_id
FROM fact_rows f LEFT JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = f.item_id
    LEFT JOIN proposals p ON p.item_id = f.item_id AND p.round = 0
WHERE f.turn_memory_id IN (SELECT unnest(?)) ORDER BY f.item_id
"""


def _extractions(shard: Shard, turn_ids: list[str]) -> list[Row]:
    """The extractions from these turns, in order, each with the facts of its model."""
    from palimpsest.stores.database.derivations import told_word

    facts = rows(shard, _FACTS_OF_TURNS.format(outcome=told_word("o.event")), [turn_ids])
    names = [each.name for each in fields(Extraction) if each.name != "facts"]
    found = rows(
        shard,
        f"SELECT {', '.join(names)} FROM extractions"
        " WHERE turn_memory_id IN (SELECT unnest(?)) ORDER BY recorded_at, message_id",
        [turn_ids],
    )
    for extraction in found:
        of_it = ("turn_memory_id", "model")
        extraction["facts"] = [
            {name: value for name, value in fact.items() if name not in of_it}
            for fact in facts
            if all(fact[name] == extraction[name] for name in of_it)
        ]
    return found


def _memory(sources: Sources, memory_id: str) -> tuple[int, Row]:
    return by_id(sources, MEMORY, "memory_id", memory_id, no_memory(memory_id))


def _events(sources: Sources, partition: int, memory_id: str, limit: int) -> list[Row]:
    """The events, including those that audit has not read yet, so that an answered command is
    among them. An event that moves during the read is found at its next place: outbox, log,
    table."""
    from palimpsest.stores.database.derivations import TOLD

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


_SHOWN = tuple(each.name for each in fields(AuditEvent))


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
    read = cursors.get(("audit", topic), 0)
    # Read after the outbox, which is sent to it; what is only there came later.
    sent = tail(sources.log, topic, partition, read)
    known: list[tuple[bytes | None, datetime | None]] = []
    known += [(each.value, each.timestamp) for each in sent]
    known += [(value, None) for name, value in outbox if name == topic]
    found: dict[str, Row] = {}
    for value, recorded in known:
        message = decode(value, MEMORY_CHANGES, recorded)
        assert isinstance(message.body, MemoryChange)
        for event in events_of(message, message.body):
            if event.memory_id == memory_id:
                row = asdict(history_row(message, event))
                found[event.event_id] = {name: plain(row[name]) for name in _SHOWN}
    return found


def _edges(shard: Shard, memory: Row) -> list[Row]:
    from palimpsest.stores.recall.marks import DELETED_BY

    values = {"id": memory["id"], "scope": memory["scope"], "deleted_by": DELETED_BY}
    return rows(shard, _EDGES, values)


def _related(sources: Sources, shard: Shard, memory_id: str, own: str, other: str) -> list[Row]:
    return stored_memories(
        sources,
        shard,
        f"memory_id IN (SELECT {other} FROM memory_edges WHERE {own} = ? AND"
        " relation_type = 'derived_from') ORDER BY occurred_at, created_at, memory_id",
        [memory_id],
    )


def _before(shard: Shard, memory: Row) -> list[Row]:
    """Archived states, each with the id that the supersedes edge names."""
    from palimpsest.stores.database.derivations import told_word

    return rows(
        shard,
        "SELECT memory_id || '@' || version AS id, version, type, content,"
        f" {told_word('reason')} AS reason, archived_at FROM archived_states"
        " WHERE scope = ? AND memory_id = ? ORDER BY version DESC",
        [memory["scope"], memory["id"]],
    )


def _decisions(shard: Shard, memory_id: str) -> list[Row]:
    from palimpsest.stores.database.derivations import told_word

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
        # each candidate has its text at the version that the decision saw
        candidates = json.loads(decision["candidates"])
        texts = {
            (row["memory_id"], row["version"]): row["content"]
            for row in rows(
                shard,
                "SELECT memory_id, version, content FROM memory_rows"
                " WHERE memory_id IN (SELECT unnest($1))"
                " UNION ALL SELECT memory_id, version, content FROM archived_states"
                " WHERE memory_id IN (SELECT unnest($1))",
                [[candidate["memory_id"] for candidate in candidates]],
            )
        }
        decision["candidates"] = [
            {**candidate, "content": texts.get((candidate["memory_id"], candidate["version"]))}
            for candidate in candidates
        ]
    return decisions
