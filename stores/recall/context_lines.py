"""What a context says of a retrieval: its results, profiles of entities, and the turns behind them.

Read through a reader's cursor: living memories of one scope only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import duckdb

from palimpsest.schemas.document_rows import DOCUMENT_CHUNK
from palimpsest.stores.recall.answers import Retrieval
from palimpsest.stores.recall.context import Line, Section
from palimpsest.stores.recall.filters import Allowed
from palimpsest.stores.recall.query import Neighbour, RecallResult

MAX_RELATIONS = 6
"""Of an entity, in its profile."""


def lines_of(
    reader: duckdb.DuckDBPyConnection, scope: str, found: Retrieval, profiles: int
) -> dict[Section, list[Line]]:
    """The lines of every section, best first. Facts are what was drawn from turns or written by
    someone; the timeline holds the turns that were found, those beside them and those that the
    intent adds; evidence are the turns that the facts were drawn from, and what documents say;
    entities are at most so many `profiles`."""
    sections: dict[Section, list[Line]] = {
        "facts": [],
        "entities": _profile_lines(reader, scope, found, profiles),
        "timeline": [],
        "evidence": _source_lines(reader, scope, found.results, found.allowed),
    }
    for result in found.results:
        if result.type == DOCUMENT_CHUNK:
            sections["evidence"].append(_chunk_line(result))
            continue
        if result.type != "episodic":
            sections["facts"].append(Line(result.id, _held(result), result.occurred_at))
            continue
        turns: tuple[RecallResult | Neighbour, ...] = (result, *result.neighbours)
        for turn in turns:
            said = _said(turn.who, turn.content)
            sections["timeline"].append(Line(turn.id, said, turn.occurred_at))
    for related in found.related:
        is_turn = related.type == "episodic"
        text = _said(related.who, related.content) if is_turn else related.content
        line = Line(related.id, text, related.occurred_at)
        sections["timeline" if is_turn else "facts"].append(line)
    return sections


def _chunk_line(result: RecallResult) -> Line:
    """A piece of a document, with the document's title."""
    return Line(result.id, _said(", ".join(result.tags), result.content), result.occurred_at)


def _source_lines(
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
    if not wanted:
        return []
    marks = ", ".join("?" * len(wanted))
    rows = reader.execute(
        f"SELECT memory_id, who, content, occurred_at FROM memory_rows WHERE memory_id IN ({marks})"
        " AND scope = ? AND NOT is_deleted",
        [*wanted, scope],
    ).fetchall()
    lines = {memory_id: Line(memory_id, _said(who, text), at) for memory_id, who, text, at in rows}
    return [lines[source] for source in wanted if source in lines]


def _profile_lines(
    reader: duckdb.DuckDBPyConnection,
    scope: str,
    found: Retrieval,
    limit: int,
) -> list[Line]:
    """The named entities, then those that the results mention most: name, type, summary and most
    told relations. Those of which nothing but the name is known are left out."""
    counted = reader.execute(
        "SELECT entity_id, count(DISTINCT memory_id) FROM present_mentions"
        " WHERE scope = $1 AND list_contains($2, memory_id) GROUP BY entity_id",
        [scope, [result.id for result in found.results]],
    ).fetchall()
    ids = [entity.entity_id for entity in found.named]
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


def _held(result: RecallResult) -> str:
    """The text of a fact, and since when it is no longer so."""
    if not result.expired or result.valid_until is None:
        return result.content
    return f"{result.content} (until {result.valid_until.date()}; over now)"


def _said(who: str, content: str) -> str:
    """A text with who said it."""
    return f"{who}: {content}" if who else content


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
