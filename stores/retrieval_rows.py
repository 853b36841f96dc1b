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
from stores.recall_filter import Allowed
from stores.recall_types import RecallResult
from stores.retrieval_types import Related
from stores.strategies import Addition

MAX_RELATIONS = 6
"""Of an entity, in its profile."""

_COLUMNS = "memory_id, content, type, who, session_id, occurred_at"


@dataclass(frozen=True, slots=True)
class _Row:
    id: str
    content: str
    type: str
    who: str
    session_id: str
    occurred_at: datetime


def read_related(
    reader: duckdb.DuckDBPyConnection, scope: str, found: Sequence[Addition]
) -> tuple[Related, ...]:
    """The additions with their texts, in their order."""
    rows = {row.id: row for row in _rows(reader, scope, [each.memory_id for each in found])}
    related = []
    for each in found:
        row = rows.get(each.memory_id)
        if row is not None:
            at = row.occurred_at.astimezone(UTC)
            related.append(
                Related(
                    *(row.id, row.content, row.type, row.who, row.session_id, at),
                    *(each.score, each.reason, each.path),
                )
            )
    return tuple(related)


def source_lines(
    reader: duckdb.DuckDBPyConnection,
    scope: str,
    results: Iterable[RecallResult],
    allowed: Allowed,
) -> list[Line]:
    """The turns that the results were drawn from, in the order of the results, as far as the
    query may show them."""
    sources = dict.fromkeys(source for result in results for source in result.derived_from)
    may = allowed.among(sources)
    wanted = [source for source in sources if source in may]
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
    counted = reader.execute(
        "SELECT entity_id, count(DISTINCT memory_id) FROM present_mentions"
        " WHERE scope = $1 AND list_contains($2, memory_id) GROUP BY entity_id",
        [scope, list(memory_ids)],
    ).fetchall()
    ids = [entity.entity_id for entity in named]
    rows = reader.execute(
        """WITH counted AS (SELECT unnest($3) AS entity_id, unnest($4) AS hits)
        SELECT entity_id, name, entity_type, summary, updated_at
        FROM known_entities LEFT JOIN counted USING (entity_id)
        WHERE scope = $1 AND list_contains($5, entity_id)
        ORDER BY list_contains($2, entity_id) DESC, hits DESC NULLS LAST, times_told DESC, entity_id
        LIMIT $6""",
        [
            *(scope, ids, [entity_id for entity_id, _ in counted], [hits for _, hits in counted]),
            *([*ids, *(entity_id for entity_id, _ in counted)], limit),
        ],
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
        FROM relations r JOIN known_entities o ON o.entity_id = r.target_entity_id
        WHERE r.scope = $1 AND o.scope = $1 AND list_contains($2, r.source_entity_id)
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
