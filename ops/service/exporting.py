"""Exports a scope as lines for another store, read in one transaction (`schemas.portable`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import duckdb

from palimpsest.ops.distribution import program_version
from palimpsest.ops.errors import NotFoundError
from palimpsest.ops.parts import utc_now
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.requests import ExportRequest
from palimpsest.ops.sql.values import plain, rfc3339
from palimpsest.schemas.portable import (
    FORMAT,
    FORMAT_VERSION,
    PortableHeld,
    PortableMemory,
    PortableProposal,
    exported_columns,
)
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.memories import EdgeRow, MemoryRow
from palimpsest.schemas.rows.pipeline import FactRow, FlagsRow, HistoryRow, PrivacyRow
from palimpsest.stores.database.graph_views import WEIGHT
from palimpsest.stores.database.view_columns import quoted
from palimpsest.streams.store_port import HIDDEN
from palimpsest.streams.text.hiding import PLACEHOLDER

FETCHED_ROWS: Final = 500
Fields = dict[str, Any]

_CHOSEN = (
    "WITH chosen AS MATERIALIZED (SELECT memory_id FROM memory_rows"
    " WHERE scope = $scope AND ($deleted OR NOT is_deleted))"
)
# The graph keeps what was drawn from texts that are forgotten or replaced, and hides it as long as
# it knows those texts. An export does not have them, so it leaves out what no other text supports.
_GRAPH: Final = """, present AS MATERIALIZED (
    SELECT p.memory_id, p.entity_id, m.valid_until <= now() AS has_ended
    FROM present_mentions p JOIN memory_rows m USING (memory_id) WHERE p.scope = $scope),
lost AS MATERIALIZED (
    SELECT DISTINCT entity_id FROM lost_mentions WHERE scope = $scope AND NOT $deleted),
told AS MATERIALIZED (
    SELECT r.*, s.entity_id AS source_id, t.entity_id AS target_id
    FROM relation_rows r JOIN name_rows s ON s.name_id = r.source_name_id
    JOIN name_rows t ON t.name_id = r.target_name_id WHERE r.scope = $scope AND r.mentions > 0),
living AS MATERIALIZED (
    SELECT source_name_id, target_name_id, relation_type FROM living_relations
    WHERE scope = $scope
    UNION SELECT source_name_id, target_name_id, relation_type FROM told
    WHERE $deleted OR (source_id, target_id) IN (
        SELECT (a.entity_id, b.entity_id) FROM present a JOIN present b USING (memory_id)
        WHERE a.has_ended)),
related AS MATERIALIZED (
    FROM told SEMI JOIN living USING (source_name_id, target_name_id, relation_type)),
named AS MATERIALIZED (
    SELECT * FROM name_rows WHERE scope = $scope AND entity_id IN (
        SELECT entity_id FROM name_rows WHERE scope = $scope
            AND (pinned OR authored OR entity_id NOT IN (FROM lost))
        UNION SELECT entity_id FROM present
        UNION SELECT source_id FROM related UNION SELECT target_id FROM related)) """


def _columns(row_type: type[Row], key: str = "", table: str = "") -> str:
    """The exported columns of a table; its `key` as the `id` of the line."""
    names = (each.name for each in exported_columns(row_type))
    return ", ".join(f"{table}{name} AS id" if name == key else table + name for name in names)


def _struct(names: Iterable[str], table: str = "") -> str:
    return "{" + ", ".join(f"{name}: {table}{name}" for name in names) + "}"


_OWN = "memory_id IN (FROM chosen)"

# Earlier texts of a memory in which a statement is hidden have the statement.
_HIDDEN: Final = f"""hidden AS MATERIALIZED (
    SELECT memory_id, max(s.archived_at) AS since FROM archived_states s
    JOIN memory_rows m USING (memory_id) WHERE s.scope = $scope AND NOT $deleted
        AND s.reason = {quoted(HIDDEN)} AND contains(m.content, {quoted(PLACEHOLDER)})
    GROUP BY memory_id)"""
_EARLIER: Final = {
    "old_content": "CASE WHEN h.since IS NULL OR e.created_at > h.since THEN e.old_content END",
    "new_content": "CASE WHEN h.since IS NULL OR e.created_at > h.since OR"
    f" contains(e.new_content, {quoted(PLACEHOLDER)}) THEN e.new_content END",
}
_EVENT: Final = ", ".join(
    f"{_EARLIER[each.name]} AS {each.name}"
    if each.name in _EARLIER
    else f"e.{each.name} AS {'id' if each.name == 'event_id' else each.name}"
    for each in exported_columns(HistoryRow)
)

_LINES: Final[Mapping[str, str]] = {
    # In write order.
    "memory": f"SELECT {_columns(MemoryRow, 'memory_id')} FROM memory_rows"
    f" WHERE scope = $scope AND {_OWN} ORDER BY write_seq, memory_id",
    "state": "SELECT s.memory_id, s.state, s.reason, s.archived_at FROM archived_states s"
    " LEFT JOIN hidden h USING (memory_id)"
    f" WHERE s.scope = $scope AND s.{_OWN} AND (h.since IS NULL OR s.archived_at > h.since)"
    " ORDER BY s.memory_id, s.version",
    "event": f"SELECT {_EVENT} FROM history_rows e LEFT JOIN hidden h USING (memory_id)"
    f" WHERE e.scope = $scope AND e.{_OWN} ORDER BY e.created_at, e.rowid",
    "edge": f"SELECT {_columns(EdgeRow)} FROM memory_edges WHERE scope = $scope"
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
    "fact": f"SELECT {_columns(FactRow, 'item_id', 'f.')}, o.event AS outcome, o.memory_id,"
    " o.reason, o.recorded_at, p.proposals, CASE WHEN o.event = 'blocked' AND h.item_id IS NOT NULL"
    f" THEN {_struct(PortableHeld.model_fields, 'h.')} END AS held"
    " FROM fact_rows f JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = f.item_id"
    " LEFT JOIN held_proposals h ON h.item_id = f.item_id"
    f" LEFT JOIN (SELECT item_id, list({_struct(PortableProposal.model_fields)}"
    " ORDER BY round) AS proposals FROM proposals WHERE scope = $scope GROUP BY item_id) p"
    " ON p.item_id = f.item_id"
    " WHERE f.scope = $scope AND f.turn_memory_id IN (FROM chosen)"
    " AND (o.memory_id IS NULL OR o.memory_id IN (FROM chosen)) ORDER BY f.item_id",
    # Main names first: aliases refer to them.
    "name": "SELECT n.canonical_name, n.name, m.canonical_name AS main, n.is_alias,"
    " n.entity_type, n.summary, n.mentions, n.pinned, n.first_seen, n.updated_at, n.chosen,"
    " n.set_type, n.archived, n.edits, n.authored, n.edited_by_person"
    " FROM named n JOIN named m ON m.name_id = n.entity_id"
    " ORDER BY n.name_id <> n.entity_id, n.canonical_name",
    "relation": "SELECT s.canonical_name AS source, t.canonical_name AS target, r.relation_type,"
    " r.strength, r.mentions, r.confidence, r.authored FROM related r"
    " JOIN named s ON s.name_id = r.source_name_id"
    " JOIN named t ON t.name_id = r.target_name_id"
    " ORDER BY source, target, r.relation_type",
    "mention": "SELECT r.memory_id, r.text_key, n.canonical_name AS name, r.mention_text,"
    " r.confidence FROM mention_rows r JOIN named n USING (name_id)"
    f" WHERE r.scope = $scope AND r.{_OWN} ORDER BY r.memory_id, r.text_key, name",
    "aspect": "SELECT n.canonical_name AS entity, a.canonical_name, a.name,"
    f" {WEIGHT} AS weight, a.updated_at, a.authored FROM aspect_rows a"
    " JOIN named n USING (name_id)"
    " LEFT JOIN aspect_weights w USING (aspect_id)"
    " WHERE a.scope = $scope AND a.weight > 0 AND (a.authored"
    " OR a.aspect_id NOT IN (SELECT aspect_id FROM attribute_rows)"
    f" OR a.aspect_id IN (SELECT aspect_id FROM attribute_rows WHERE {_OWN}))"
    " ORDER BY entity, a.canonical_name",
    "attribute": "SELECT n.canonical_name AS entity, a.canonical_name AS aspect, r.memory_id,"
    " r.kind AS attribute_kind, r.status, r.confidence, r.importance, r.text_key"
    " FROM attribute_rows r"
    " JOIN aspect_rows a USING (aspect_id) JOIN named n USING (name_id)"
    f" WHERE r.scope = $scope AND a.weight > 0 AND r.{_OWN} ORDER BY entity, aspect, r.memory_id",
    # After the memories: those of a private person predate the level.
    "privacy": f"SELECT {_columns(PrivacyRow)} FROM privacy_rows"
    " WHERE scope = $scope ORDER BY person_key",
    # Last: a frozen memory accepts no lines.
    "flags": f"SELECT {_columns(FlagsRow)} FROM scope_flags WHERE scope = $scope",
}


def export_scope(sources: Sources, request: ExportRequest, path: Path) -> None:
    """Writes the lines of a scope to a new file. Raises NotFoundError for a scope without memories,
    and the errors of opening the store."""
    shard = sources.shard_of(request.scope)
    with shard.reading() as reader, path.open("wb") as file:
        reader.execute("BEGIN TRANSACTION READ ONLY")
        one = "SELECT 1 FROM memory_rows WHERE scope = ? LIMIT 1"
        if reader.execute(one, [request.scope]).fetchone() is None:
            raise NotFoundError(f"there is no scope {request.scope}")
        count = 0
        file.write(_encoded(_header(request)))
        for line in _lines(reader, request):
            file.write(_encoded(line))
            count += 1
        file.write(_encoded({"kind": "end", "lines": count}))


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
        # What a query does not refer to is not executed.
        values = {"scope": request.scope, "deleted": request.deleted}
        result = reader.execute(f"{_CHOSEN}{_GRAPH}, {_HIDDEN} {query}", values)
        names = [column[0] for column in result.description or ()]
        finished = _FINISHED.get(kind, dict)
        while rows := result.fetchmany(FETCHED_ROWS):
            for row in rows:
                told = {name: plain(value) for name, value in zip(names, row, strict=True)}
                yield {"kind": kind, **finished(told)}


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


_TIMES = {each.name for each in exported_columns(MemoryRow) if each.type is datetime}


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
