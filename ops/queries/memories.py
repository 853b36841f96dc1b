"""Queries of memories, one by one and in lists."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from palimpsest.ops.queries.errors import RequestError, no_memory
from palimpsest.ops.queries.pages import cursor, page
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources, by_id, from_all, plain, rows
from palimpsest.stores.recall.query import METADATA_PASSES
from palimpsest.stores.shard import Shard

_SAID_BY = (
    "({0} OR memory_id IN (SELECT e.source_id FROM memory_edges e"
    " JOIN memory_rows t ON t.memory_id = e.target_id AND t.scope = e.scope"
    " WHERE e.relation_type = 'derived_from' AND NOT t.is_deleted AND {1}))"
)
SAID_BY = _SAID_BY.format("lower(who) = lower(?)", "lower(t.who) = lower(?)")
"""As the filter of a recall: who said it, or said what it was drawn from."""
SAID_AS = _SAID_BY.format(
    *(
        f"list_contains(list_transform(?, lambda x: lower(x)), lower({c}))"
        for c in ("role", "t.role")
    )
)
"""The same by the roles of speakers."""
NEWEST = ("occurred_at", "created_at", "scope")
"""What a page of memories is sorted by; those of a scope that are equal in it, by their rows: in
the order in which they arrived."""
_AFTER_A_PAGE = """((occurred_at, created_at, scope) < (?::TIMESTAMPTZ, ?::TIMESTAMPTZ, ?)
    OR (occurred_at, created_at, scope) = (?::TIMESTAMPTZ, ?::TIMESTAMPTZ, ?)
    AND rowid < (SELECT rowid FROM memory_rows WHERE memory_id = ?))"""
COLUMNS = (
    "memory_id AS id, scope, type, content, who, role, session_id, source_id, occurred_at,"
    " created_at, updated_at, updated_by, importance, confidence, decay_rate, pinned, tags,"
    " categories, why, project, source_type, extraction_model, temporal_kind, valid_from,"
    " valid_until, version, is_deleted, deleted_at, last_accessed, access_count,"
    " content_hash, metadata"
)


def get(sources: Sources, memory_id: str) -> JsonObject:
    """The memory with all its fields and its marks. Raises RequestError when there is none."""
    partition, row = found(sources, memory_id)
    return with_marks(sources, sources.shard(partition), [row])[0]


def with_marks(sources: Sources, shard: Shard, found: list[JsonObject]) -> list[JsonObject]:
    """Rows of `COLUMNS` as they are shown, each with `marks` for what of it no longer holds."""
    from palimpsest.stores.recall.marks import marks_of

    by_scope: dict[str, list[JsonObject]] = {}
    for row in found:
        row["metadata"] = json.loads(str(row["metadata"]))
        row["marks"] = []
        by_scope.setdefault(str(row["scope"]), []).append(row)
    with shard.reading() as reader:
        for scope, rows_of in by_scope.items():
            index = shard.indexes.resident(scope)
            if index is not None and not index.has_changes:
                continue
            marks = marks_of(reader, scope, [str(row["id"]) for row in rows_of], sources.now())
            for row in rows_of:
                row["marks"] = [plain(asdict(mark)) for mark in marks.get(str(row["id"]), ())]
    return found


def found(sources: Sources, memory_id: str) -> tuple[int, JsonObject]:
    """The memory by its id or the beginning of it, with its partition."""
    select, unknown = f"SELECT {COLUMNS} FROM memory_rows", no_memory(memory_id)
    partition, row = by_id(sources, select, "memory_id", memory_id, unknown)
    return partition, row


def scope_of(sources: Sources, memory_id: str) -> JsonObject:
    """Full id and scope of a memory: what a command about it needs."""
    row = found(sources, memory_id)[1]
    return {"id": row["id"], "scope": row["scope"], "version": row["version"]}


def list_memories(
    sources: Sources,
    *,
    scope: str | None = None,
    types: Sequence[str] = (),
    session_id: str | None = None,
    who: str | None = None,
    roles: Sequence[str] = (),
    categories: Sequence[str] = (),
    metadata: Sequence[str] = (),
    temporal: bool | None = None,
    valid_at: datetime | None = None,
    deleted: bool = False,
    memory_ids: Sequence[str] = (),
    limit: int = 20,
    after: str | None = None,
) -> JsonObject:
    """A page of `memories`, newest first, and `next_cursor` for the page after (or null)."""
    conditions: list[str] = []
    values: list[object] = []
    for condition, value in (
        ("is_deleted = ?", deleted),
        ("scope = ?", scope),
        ("session_id = ?", session_id),
        (SAID_BY, who),
        (SAID_AS, list(roles) or None),
        ("(temporal_kind = 'temporal') = ?", temporal),
        ("(valid_until IS NULL OR valid_until > ?)", valid_at),
        ("type IN (SELECT unnest(?))", list(types) or None),
        ("list_has_any(categories, ?)", list(categories) or None),
        (METADATA_PASSES.format(wanted="?", memory=""), list(metadata) or None),
        ("memory_id IN (SELECT unnest(?))", list(memory_ids) or None),
    ):
        if value is not None:
            conditions.append(condition)
            values += [value] * condition.count("?")
    if after is not None:
        conditions.append(_AFTER_A_PAGE)
        values += _place(after)
    matches = from_all(
        sources,
        f"SELECT {COLUMNS} FROM memory_rows WHERE {' AND '.join(conditions)}"
        " ORDER BY occurred_at DESC, created_at DESC, scope DESC, rowid DESC"
        f" LIMIT {int(limit) + 1}",
        values,
    )
    found = [row for _, row in matches]
    for number, shard in sources.shards.items():
        with_marks(sources, shard, [row for partition, row in matches if partition == number])
    return page(found, limit, "memories", NEWEST, more=False)


def _place(after: str) -> list[object]:
    """The values of _AFTER_A_PAGE. Raises RequestError."""
    occurred_at, rest = cursor(after)
    created_at, named = cursor(rest)
    scope, _, memory_id = named.rpartition("/")
    return [*(occurred_at, created_at, scope) * 2, memory_id]


_WEAK = f"""
SELECT {COLUMNS} FROM memory_rows
WHERE scope = ? AND NOT is_deleted AND type NOT IN ('episodic', 'document_chunk')
    AND NOT pinned AND decay_rate > 0 AND confidence < ?
ORDER BY confidence, occurred_at, created_at, memory_id LIMIT ?
"""


def weak(sources: Sources, scope: str, below: float, limit: int) -> JsonObject:
    """`memories` that are neither confirmed nor pinned, of a confidence under `below`, the least
    sure first: what a person should be asked about."""
    if not scope.strip():
        raise RequestError("the scope is empty")
    shard = sources.shard_of(scope)
    found = rows(shard, _WEAK, [scope, below, limit])
    return {"memories": [*with_marks(sources, shard, found)]}
