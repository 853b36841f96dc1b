"""Exports a scope as lines for another store, read in one transaction (`schemas.portable`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import duckdb

from palimpsest.ops.distribution import program_version
from palimpsest.ops.errors import NotFoundError
from palimpsest.ops.operations.rows import plain, rfc3339
from palimpsest.ops.parts import utc_now
from palimpsest.ops.requests import ExportRequest
from palimpsest.ops.sources import Sources
from palimpsest.schemas.portable import FORMAT, FORMAT_VERSION, PortableMemory

FETCHED_ROWS: Final = 500
Fields = dict[str, Any]

_CHOSEN = (
    "WITH chosen AS (SELECT memory_id FROM memory_rows"
    " WHERE scope = $scope AND ($deleted OR NOT is_deleted)) "
)
_MEMORY = ", ".join(
    name for name in PortableMemory.model_fields if name not in ("kind", "id", "metadata")
)
_OWN = "memory_id IN (FROM chosen)"

_LINES: Final[Mapping[str, str]] = {
    # In write order.
    "memory": f"SELECT memory_id AS id, {_MEMORY}, metadata FROM memory_rows"
    f" WHERE scope = $scope AND {_OWN} ORDER BY write_seq, memory_id",
    "state": "SELECT memory_id, state, reason, archived_at FROM memory_archive"
    f" WHERE scope = $scope AND {_OWN} ORDER BY memory_id, version",
    "event": "SELECT event_id AS id, memory_id, event, old_content, new_content, changed_by,"
    " actor_type, reason, metadata, session_id, correlation_id, created_at FROM history_rows"
    f" WHERE scope = $scope AND {_OWN} ORDER BY created_at, rowid",
    "edge": "SELECT source_id, target_id, relation_type, predicate, weight, confidence,"
    " valid_from, valid_until, evidence FROM memory_edges WHERE scope = $scope"
    " AND split_part(source_id, '@', 1) IN (FROM chosen)"
    " AND split_part(target_id, '@', 1) IN (FROM chosen)"
    " ORDER BY source_id, target_id, relation_type",
    "session": "SELECT session_id, last_turn, turns, first_at, last_at,"
    " coalesce((SELECT list(told.turn ORDER BY told.place) FROM"
    " (SELECT unnest(s.extracted_turns) AS turn,"
    " generate_subscripts(s.extracted_turns, 1) AS place) AS told"
    " WHERE told.turn IN (FROM chosen)), []) AS extracted_turns"
    " FROM session_rows s WHERE scope = $scope AND last_turn IN (FROM chosen)"
    " ORDER BY session_id",
    # Only settled facts: the outcome of the others is still open.
    "fact": "SELECT f.item_id AS id, f.turn_memory_id, f.content, f.type, f.confidence,"
    " f.importance, f.temporal_kind, f.valid_until, f.categories, f.model, f.prompt_version,"
    " f.occurred_at, f.correlation_id, o.event AS outcome, o.memory_id, o.reason, o.recorded_at,"
    " p.proposals, CASE WHEN o.event = 'blocked' AND h.item_id IS NOT NULL THEN"
    " {action: h.action, target_id: h.target_id, target_version: h.target_version,"
    " reason: h.reason, recorded_at: h.recorded_at} END AS held"
    " FROM fact_rows f JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = f.item_id"
    " LEFT JOIN held_proposals h ON h.item_id = f.item_id"
    " LEFT JOIN (SELECT item_id, list({round: round, memory_id: memory_id, action: action,"
    " target_id: target_id, confidence: confidence, reason: reason, candidates: candidates,"
    " contradiction_risk: contradiction_risk, review_needed: review_needed, dropped: dropped,"
    " model: model, prompt_version: prompt_version, input_tokens: input_tokens,"
    " output_tokens: output_tokens, latency_ms: latency_ms, recorded_at: recorded_at}"
    " ORDER BY round) AS proposals FROM proposals WHERE scope = $scope GROUP BY item_id) p"
    " ON p.item_id = f.item_id"
    " WHERE f.scope = $scope AND f.turn_memory_id IN (FROM chosen)"
    " AND (o.memory_id IS NULL OR o.memory_id IN (FROM chosen)) ORDER BY f.item_id",
    # Main names first: aliases refer to them.
    "name": "SELECT n.canonical_name, n.name, m.canonical_name AS main, n.is_alias,"
    " n.entity_type, n.summary, n.mentions, n.pinned, n.first_seen, n.updated_at"
    " FROM name_rows n JOIN name_rows m ON m.name_id = n.entity_id WHERE n.scope = $scope"
    " ORDER BY n.name_id <> n.entity_id, n.canonical_name",
    "relation": "SELECT s.canonical_name AS source, t.canonical_name AS target, r.relation_type,"
    " r.strength, r.mentions, r.confidence FROM relation_rows r"
    " JOIN name_rows s ON s.name_id = r.source_name_id"
    " JOIN name_rows t ON t.name_id = r.target_name_id WHERE r.scope = $scope"
    " ORDER BY source, target, r.relation_type",
    "mention": "SELECT r.memory_id, r.text_key, n.canonical_name AS name, r.mention_text,"
    " r.confidence FROM mention_rows r JOIN name_rows n USING (name_id)"
    f" WHERE r.scope = $scope AND r.{_OWN} ORDER BY r.memory_id, r.text_key, name",
    "aspect": "SELECT n.canonical_name AS entity, a.canonical_name, a.name, a.weight,"
    " a.updated_at FROM aspect_rows a JOIN name_rows n USING (name_id)"
    " WHERE a.scope = $scope ORDER BY entity, a.canonical_name",
    "attribute": "SELECT n.canonical_name AS entity, a.canonical_name AS aspect, r.memory_id,"
    " r.kind AS attribute_kind, r.status, r.confidence, r.importance FROM attribute_rows r"
    " JOIN aspect_rows a USING (aspect_id) JOIN name_rows n USING (name_id)"
    f" WHERE r.scope = $scope AND r.{_OWN} ORDER BY entity, aspect, r.memory_id",
    # After the memories: those of a private person predate the level.
    "privacy": "SELECT person, level, reason, changed_by, recorded_at FROM privacy_rows"
    " WHERE scope = $scope ORDER BY person_key",
    # Last: a frozen memory accepts no lines.
    "flags": "SELECT enabled, shadow_mode, allow_update_delete, mutations_frozen,"
    " autonomous_frozen FROM scope_flags WHERE scope = $scope",
}


def export_scope(sources: Sources, request: ExportRequest, path: Path) -> None:
    """Writes the lines of a scope to a new file. Raises NotFoundError for a scope without memories,
    and the errors of opening the store."""
    shard = sources.shard_of(request.scope)
    with shard.reading() as reader, path.open("wb") as file:
        reader.execute("BEGIN TRANSACTION READ ONLY")
        if not _has_memories(reader, request.scope):
            raise NotFoundError(f"there is no scope {request.scope}")
        count = 0
        file.write(_encoded(_header(request)))
        for line in _lines(reader, request):
            file.write(_encoded(line))
            count += 1
        file.write(_encoded({"kind": "end", "lines": count}))


def _has_memories(reader: duckdb.DuckDBPyConnection, scope: str) -> bool:
    found = reader.execute("SELECT 1 FROM memory_rows WHERE scope = ? LIMIT 1", [scope])
    return bool(found.fetchall())


def _header(request: ExportRequest) -> Fields:
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "scope": request.scope,
        "exported_at": rfc3339(utc_now()),
        "deleted": request.deleted,
        "program": program_version(),
    }


def _encoded(line: Fields) -> bytes:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _lines(reader: duckdb.DuckDBPyConnection, request: ExportRequest) -> Iterator[Fields]:
    for kind, query in _LINES.items():
        if kind in _WITH_CHOSEN:
            result = reader.execute(
                _CHOSEN + query, {"scope": request.scope, "deleted": request.deleted}
            )
        else:
            result = reader.execute(query, {"scope": request.scope})
        names = [column[0] for column in result.description or ()]
        finished = _FINISHED.get(kind, dict)
        while rows := result.fetchmany(FETCHED_ROWS):
            for row in rows:
                told = {name: plain(value) for name, value in zip(names, row, strict=True)}
                yield {"kind": kind, **finished(told)}


_WITH_CHOSEN = frozenset(kind for kind, query in _LINES.items() if "chosen" in query)


def _with_metadata(line: Fields) -> Fields:
    return {**line, "metadata": json.loads(line["metadata"])}


def _state(line: Fields) -> Fields:
    """Returns an archived row as a memory; a row of an older version may lack newer fields."""
    state = json.loads(line["state"])
    memory = {name: state[name] for name in PortableMemory.model_fields if name in state}
    memory["id"] = line["memory_id"]
    memory["metadata"] = json.loads(state["metadata"])
    for name in _TIMES & memory.keys():
        if memory[name] is not None:
            memory[name] = rfc3339(datetime.fromisoformat(memory[name]))
    return {"memory": memory, "reason": line["reason"], "archived_at": line["archived_at"]}


_TIMES = {
    *("valid_from", "valid_until", "occurred_at", "first_occurred_at", "created_at"),
    *("updated_at", "last_accessed", "deleted_at"),
}


def _fact(line: Fields) -> Fields:
    proposals = [
        {**each, "candidates": json.loads(each["candidates"])} for each in line["proposals"] or ()
    ]
    return {**line, "proposals": proposals}


_FINISHED: Final[Mapping[str, Callable[[Fields], Fields]]] = {
    "memory": _with_metadata,
    "event": _with_metadata,
    "state": _state,
    "fact": _fact,
}
