"""The provenance of a memory: its turns, its earlier states and the decisions about it."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime

from pydantic import JsonValue

from palimpsest.ops.queries.memories import COLUMNS, found, with_marks
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources, plain, rows
from palimpsest.schemas.codec import decode
from palimpsest.schemas.messages import MemoryChange
from palimpsest.schemas.topics import MEMORY_CHANGES
from palimpsest.stores.database.balance import progress_of
from palimpsest.stores.database.outcome_words import TOLD, told_word
from palimpsest.stores.shard import Shard
from palimpsest.streams.audit import events_of, history_row
from palimpsest.streams.in_flight import tail

MAX_HISTORY = 1_000


def history(sources: Sources, memory_id: str, limit: int) -> JsonObject:
    """The audit events of a memory in order."""
    partition, memory = found(sources, memory_id)
    limit = max(1, min(limit, MAX_HISTORY))
    events = _events(sources, partition, str(memory["id"]), limit)
    return {"id": memory["id"], "events": events}


def explain(sources: Sources, memory_id: str) -> JsonObject:
    """A memory with all that led to it.

    `derived_from` are the turns it was drawn from (for a turn: `facts` drawn from it); `before`
    are its earlier states, newest first; `decisions` what was proposed with it, about it or
    against it, with the candidates seen and what became of each; `entities` whom it names.
    """
    partition, memory = found(sources, memory_id)
    shard = sources.shard(partition)
    memory_id = str(memory["id"])
    return {
        "memory": with_marks(sources, shard, [memory])[0],
        "derived_from": _related(sources, shard, memory_id, "source_id", "target_id"),
        "facts": _related(sources, shard, memory_id, "target_id", "source_id"),
        "before": _before(shard, memory_id),
        "decisions": _decisions(shard, memory_id),
        "entities": _entities(shard, memory_id),
        "history": _events(sources, partition, memory_id, MAX_HISTORY),
    }


def _events(sources: Sources, partition: int, memory_id: str, limit: int) -> list[JsonValue]:
    """With what audit has not read yet, so that a command that was answered is among them. What
    moves meanwhile is met again further down: outbox, log, table."""
    unread = _unread(sources, partition, memory_id)
    events = rows(
        sources.shard(partition),
        f"SELECT {', '.join(_TOLD)} FROM history_rows"
        f" WHERE memory_id = ? ORDER BY created_at, rowid LIMIT {limit}",
        [memory_id],
    )
    known = {event["event_id"] for event in events}
    events += [event for key, event in unread.items() if key not in known]
    for event in events:
        event["event"] = TOLD.get(str(event["event"]), event["event"])
        event["metadata"] = json.loads(str(event["metadata"]))
    return [*events[:limit]]


_TOLD = (
    *("event_id", "event", "old_content", "new_content", "changed_by", "actor_type", "reason"),
    *("metadata", "session_id", "correlation_id", "created_at"),
)


def _unread(sources: Sources, partition: int, memory_id: str) -> dict[str, JsonObject]:
    """By their ids the events that are on their way to audit."""
    topic = MEMORY_CHANGES.name
    with sources.shard(partition).reading() as reader:
        cursors, outbox = progress_of(reader)
    known: list[tuple[bytes | None, datetime | None]] = []
    known += [(value, None) for name, value in outbox if name == topic]
    read = cursors.get(("audit", topic), 0)
    known += [(each.value, each.timestamp) for each in tail(sources.log, topic, partition, read)]
    found: dict[str, JsonObject] = {}
    for value, recorded in known:
        message = decode(value, MEMORY_CHANGES, recorded)
        assert isinstance(message.body, MemoryChange)
        for event in events_of(message, message.body):
            if event.memory_id == memory_id:
                row = asdict(history_row(message, event))
                found[event.event_id] = {name: plain(row[name]) for name in _TOLD}
    return found


def _related(
    sources: Sources, shard: Shard, memory_id: str, own: str, other: str
) -> list[JsonValue]:
    related = rows(
        shard,
        f"SELECT {COLUMNS} FROM memory_rows WHERE memory_id IN"
        f" (SELECT {other} FROM memory_edges WHERE {own} = ? AND"
        " relation_type = 'derived_from') ORDER BY occurred_at, created_at, memory_id",
        [memory_id],
    )
    return [*with_marks(sources, shard, related)]


def _before(shard: Shard, memory_id: str) -> list[JsonValue]:
    """Archived states, each under the id that the supersedes edge names."""
    return [
        *rows(
            shard,
            "SELECT memory_id || '@' || version AS id, version, type, content,"
            f" {told_word('reason')} AS reason, archived_at FROM memory_archive"
            " WHERE memory_id = ? ORDER BY version DESC",
            [memory_id],
        )
    ]


def _decisions(shard: Shard, memory_id: str) -> list[JsonValue]:
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
        decision["candidates"] = _with_contents(shard, json.loads(str(decision["candidates"])))
    return [*decisions]


def _with_contents(shard: Shard, candidates: list[JsonObject]) -> list[JsonValue]:
    """The candidates with the text that each had in the version that was seen."""
    texts = {
        (str(row["memory_id"]), row["version"]): row["content"]
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
        {**candidate, "content": texts.get((str(candidate["memory_id"]), candidate["version"]))}
        for candidate in candidates
    ]


def _entities(shard: Shard, memory_id: str) -> list[JsonValue]:
    return [
        *rows(
            shard,
            "SELECT e.name, e.entity_type AS type, m.mention_text AS mention, m.confidence"
            " FROM memory_entity_mentions m JOIN known_entities e USING (entity_id)"
            " WHERE m.memory_id = ? ORDER BY e.name",
            [memory_id],
        )
    ]
