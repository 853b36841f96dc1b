"""Queries of the graph: entities of a scope, and one of them with all that is known of it."""

from __future__ import annotations

import difflib
import json

from palimpsest.ops.queries.errors import NotFoundError, RequestError
from palimpsest.ops.queries.memories import COLUMNS, with_marks
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources, rows
from palimpsest.schemas.normal_forms import canonical_name
from palimpsest.stores.shard import Shard

_ENTITY = (
    "entity_id AS id, scope, name, entity_type AS type, aliases, summary, mentions, times_told,"
    " pinned, first_seen, updated_at"
)


def entities(
    sources: Sources, scope: str, query: str | None, limit: int, after: str | None
) -> JsonObject:
    """`entities`, and `next_cursor` for the page after (or null)."""
    conditions, values = ["scope = ?"], [scope]
    given: list[object] = [*values]
    if query is not None:
        conditions.append(
            "(contains(canonical_name, ?) OR len(list_filter(aliases,"
            " lambda alias: contains(alias, ?))) > 0)"
        )
        given += [canonical_name(query)] * 2
    if after is not None:
        conditions.append("(times_told < ? OR (times_told = ? AND entity_id > ?))")
        told, entity_id = _place(after)
        given += [told, told, entity_id]
    found = rows(
        sources.shard_of(scope),
        f"SELECT {_ENTITY} FROM main.entities WHERE {' AND '.join(conditions)}"
        " ORDER BY times_told DESC, entity_id LIMIT ?",
        [*given, limit],
    )
    last = found[-1] if len(found) == limit else None
    return {
        "entities": [*found],
        "next_cursor": None if last is None else f"{last['times_told']}/{last['id']}",
    }


def _place(after: str) -> tuple[int, str]:
    """What the `next_cursor` of a page names. Raises RequestError."""
    told, _, entity_id = after.partition("/")
    if not (told.isascii() and told.isdecimal() and len(told) <= 18):
        raise RequestError(
            f"{after!r} is no place in this list; give the `next_cursor` of the page before"
        )
    return int(told), entity_id


def entity(sources: Sources, scope: str, called: str, limit: int) -> JsonObject:
    """The entity with its `relations` (`direction` out or in), its `attributes`, each with the
    memory that tells it, and the newest `memories` that name it. Raises NotFoundError."""
    if not called.strip():
        raise RequestError("the name is empty")
    shard = sources.shard_of(scope)
    name = canonical_name(called)
    found = rows(
        shard,
        f"SELECT {_ENTITY} FROM main.entities WHERE scope = ?"
        " AND (canonical_name = ? OR list_contains(aliases, ?))",
        [scope, name, name],
    )
    if not found:
        raise NotFoundError(
            f"nothing called {called} is known in this scope{_nearest(shard, scope, called)}"
        )
    entity_id = str(found[0]["id"])
    return {
        **found[0],
        "relations": [*rows(shard, _RELATIONS, {"id": entity_id, "scope": scope})],
        "attributes": [*rows(shard, _ATTRIBUTES, {"id": entity_id, "scope": scope})],
        "memories": [*with_marks(sources, shard, _memories(shard, scope, entity_id, limit))],
    }


def _nearest(shard: Shard, scope: str, called: str) -> str:
    """Which name was probably meant; empty where none is near."""
    known = rows(shard, "SELECT name FROM main.entities WHERE scope = ?", [scope])
    names = {canonical_name(str(row["name"])): str(row["name"]) for row in known}
    near = difflib.get_close_matches(canonical_name(called), names, 1, 0.5)
    return f"; did you mean {names[near[0]]}?" if near else ""


_RELATIONS = """
SELECT CASE WHEN r.source_entity_id = $id THEN 'out' ELSE 'in' END AS direction,
    r.relation_type AS relation, e.name, e.entity_type AS type, r.mentions, r.confidence
FROM main.relations r JOIN known_entities e ON e.scope = r.scope AND e.entity_id =
    CASE WHEN r.source_entity_id = $id THEN r.target_entity_id ELSE r.source_entity_id END
WHERE r.scope = $scope AND (r.source_entity_id = $id OR r.target_entity_id = $id)
ORDER BY r.mentions DESC, r.confidence DESC, e.name, relation
"""
_ATTRIBUTES = """
SELECT a.name AS aspect, t.kind, m.memory_id, m.content, t.confidence, t.importance
FROM main.entity_aspects a
    JOIN main.entity_attributes t ON t.aspect_id = a.aspect_id AND t.scope = a.scope
    JOIN memory_rows m ON m.memory_id = t.memory_id
WHERE a.scope = $scope AND a.entity_id = $id AND t.status = 'active' AND NOT m.is_deleted
ORDER BY a.name, m.occurred_at, m.created_at, m.memory_id
"""


def _memories(shard: Shard, scope: str, entity_id: str, limit: int) -> list[JsonObject]:
    found = rows(
        shard,
        f"SELECT {COLUMNS} FROM memory_rows WHERE memory_id IN (SELECT memory_id FROM"
        " present_mentions WHERE entity_id = ? AND scope = ?) AND NOT is_deleted"
        " ORDER BY occurred_at DESC, created_at DESC, memory_id DESC LIMIT ?",
        [entity_id, scope, limit],
    )
    for row in found:
        row["metadata"] = json.loads(str(row["metadata"]))
    return found
