"""What a retrieval reads beside the search: added memories, profiles of entities, sources.

Everything through a reader's cursor, living memories of one scope only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import duckdb

from stores.context import Line
from stores.graph_boost import NamedEntity
from stores.recall_types import Query, RecallResult
from stores.retrieval_types import Related
from stores.strategies import Addition

MAX_RELATIONS = 6
"""Of an entity, in its profile."""

_COLUMNS = (
    "memory_id, content, type, who, session_id, occurred_at, created_at, tags, categories, pinned,"
    " importance, project"
)


@dataclass(frozen=True, slots=True)
class _Row:
    id: str
    content: str
    type: str
    who: str
    session_id: str
    occurred_at: datetime
    created_at: datetime
    tags: list[str]
    categories: list[str]
    pinned: bool
    importance: float
    project: str | None


def read_related(
    reader: duckdb.DuckDBPyConnection, query: Query, found: Sequence[Addition]
) -> tuple[Related, ...]:
    """The additions that pass the query's filters, in their order."""
    rows = {row.id: row for row in _rows(reader, query.scope, [each.memory_id for each in found])}
    related = []
    for each in found:
        row = rows.get(each.memory_id)
        if row is not None and _passes(row, query):
            at = row.occurred_at.astimezone(UTC)
            related.append(
                Related(
                    *(row.id, row.content, row.type, row.who, row.session_id, at),
                    *(each.score, each.reason, each.path),
                )
            )
    return tuple(related)


def source_lines(
    reader: duckdb.DuckDBPyConnection, scope: str, results: Iterable[RecallResult]
) -> list[Line]:
    """The turns that the results were drawn from, in the order of the results."""
    wanted = list(dict.fromkeys(source for result in results for source in result.derived_from))
    rows = {row.id: row for row in _rows(reader, scope, wanted)}
    return [
        Line(source, said(rows[source].who, rows[source].content), rows[source].occurred_at)
        for source in wanted
        if source in rows
    ]


def profile_lines(
    reader: duckdb.DuckDBPyConnection,
    scope: str,
    named: Sequence[NamedEntity],
    memory_ids: Sequence[str],
    limit: int,
) -> list[Line]:
    """The named entities, then those that the memories mention most: name, type, summary and most
    told relations. Those of which nothing but the name is known are left out."""
    rows = reader.execute(
        """WITH named AS (SELECT unnest($1) AS entity_id),
        counted AS (
            SELECT entity_id, count(*) AS hits FROM memory_entity_mentions
            WHERE scope = $2 AND memory_id IN (SELECT unnest($3)) GROUP BY entity_id)
        SELECT e.entity_id, e.name, e.entity_type, e.summary, e.updated_at
        FROM entities e LEFT JOIN counted USING (entity_id)
        WHERE e.scope = $2
            AND (counted.hits IS NOT NULL OR e.entity_id IN (SELECT entity_id FROM named))
        ORDER BY e.entity_id IN (SELECT entity_id FROM named) DESC, counted.hits DESC NULLS LAST,
            e.mentions DESC, e.entity_id
        LIMIT $4""",
        [[entity.entity_id for entity in named], scope, list(memory_ids), limit],
    ).fetchall()
    relations = _relations(reader, scope, [row[0] for row in rows])
    return [
        Line(entity_id, _profile(name, kind, summary, relations[entity_id]), at)
        for entity_id, name, kind, summary, at in rows
        if summary or relations.get(entity_id)
    ]


def said(who: str, content: str) -> str:
    """A text with who said it."""
    return f"{who}: {content}" if who else content


def _passes(row: _Row, query: Query) -> bool:
    """The filters of a query, as recall applies them."""
    tags, categories = set(row.tags), set(row.categories)
    return (
        (not query.types or row.type in query.types)
        and (not query.tags_any or not tags.isdisjoint(query.tags_any))
        and tags.issuperset(query.tags_all)
        and (not query.categories or not categories.isdisjoint(query.categories))
        and (query.who is None or row.who.casefold() == query.who.casefold())
        and (query.pinned is None or row.pinned == query.pinned)
        and (query.importance_min is None or row.importance >= query.importance_min)
        and (query.project is None or row.project == query.project)
        and (query.session is None or row.session_id == query.session)
        and (query.since is None or row.occurred_at >= query.since)
        and (query.until is None or row.occurred_at < query.until)
        and (query.as_of is None or row.created_at <= query.as_of)
    )


def _rows(reader: duckdb.DuckDBPyConnection, scope: str, ids: Sequence[str]) -> list[_Row]:
    if not ids:
        return []
    marks = ", ".join("?" * len(ids))
    found = reader.execute(
        f"SELECT {_COLUMNS} FROM memory_rows WHERE memory_id IN ({marks})"
        " AND scope = ? AND NOT is_deleted",
        [*ids, scope],
    )
    return [_Row(*values) for values in found.fetchall()]


def _relations(
    reader: duckdb.DuckDBPyConnection, scope: str, ids: Sequence[str]
) -> dict[str, list[str]]:
    """What each entity is to others, the most told first."""
    rows = reader.execute(
        """SELECT r.source_entity_id, r.relation_type, o.name
        FROM relations r JOIN entities o ON o.entity_id = r.target_entity_id
        WHERE r.scope = $1 AND o.scope = $1 AND r.source_entity_id IN (SELECT unnest($2))
        ORDER BY r.mentions DESC, r.confidence DESC, r.relation_type, o.name""",
        [scope, list(ids)],
    ).fetchall()
    relations: dict[str, list[str]] = {}
    for source, kind, target in rows:
        relations.setdefault(source, []).append(f"{kind.replace('_', ' ')} {target}")
    return relations


def _profile(name: str, kind: str, summary: str | None, relations: Sequence[str]) -> str:
    typed = name if kind in ("", "unknown", "extracted") else f"{name} ({kind})"
    told = [summary.rstrip(". ")] if summary else []
    if relations:
        told.append("; ".join(relations[:MAX_RELATIONS]))
    return f"{typed}: {'. '.join(told)}"
