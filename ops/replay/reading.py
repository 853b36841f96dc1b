"""Reads one memory, live or a branch, for a comparison with another, by queries alone.

So it works next to a running worker and on Kafka, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from palimpsest.ops.operations.memories import Embeddings
from palimpsest.ops.requests import JsonObject, SqlRequest
from palimpsest.ops.service.queries import Queries
from palimpsest.schemas.promotion_rows import PROMOTION
from palimpsest.schemas.rows import SOURCE_TYPES
from palimpsest.stores.database.view_columns import quoted

SECONDS: Final = 600.0
ROWS: Final = 5_000_000
VECTORS_AT_ONCE: Final = 500
Record = dict[str, Any]
"""A row by column name."""

_DRAWN = """
WITH said AS (
    SELECT memory_id, turn_memory_id AS source FROM facts WHERE scope = {scope}
        AND outcome IN ('created', 'updated', 'none', 'deduped') AND memory_id IS NOT NULL
    UNION SELECT source_id, target_id FROM edges
        WHERE scope = {scope} AND relation_type = 'derived_from'),
drawn AS (SELECT memory_id, list(source ORDER BY source) AS sources FROM said GROUP BY memory_id)
"""
# The history may lag by some records, so the memory's own row counts as well.
_FACTS = (
    _DRAWN
    + """, touched AS (SELECT DISTINCT memory_id FROM memory_history WHERE scope = {scope}
    AND actor_type <> 'pipeline' AND event IN ('updated', 'recovered')
    AND json_extract_string(metadata, '$.promotion_id') IS NULL)
SELECT m.memory_id, m.type, m.content, m.content_hash, m.version, m.confidence, m.importance,
    m.categories, m.extraction_model, m.temporal_kind, m.valid_from, m.valid_until, m.occurred_at,
    m.first_occurred_at, m.project, m.session_id, m.source_id, d.sources,
    m.pinned OR m.decay_rate = 0 OR m.updated_by NOT IN ('pipeline', {promotion})
        OR t.memory_id IS NOT NULL AS curated
FROM memories m JOIN drawn d USING (memory_id) LEFT JOIN touched t USING (memory_id)
WHERE m.scope = {scope} AND m.source_type = 'extraction' ORDER BY m.memory_id"""
)
# What the pipeline or a promotion removed may come back; a person removed everything else.
_FORGOTTEN = (
    _DRAWN
    + """, ended AS (SELECT memory_id, arg_max(actor_type, created_at) AS actor_type
    FROM memory_history WHERE scope = {scope} AND event IN ('deleted', 'purged')
    GROUP BY memory_id),
promoted AS (SELECT memory_id,
        version_after + CASE WHEN change = 'gained' THEN 1 ELSE 0 END AS version
    FROM promotion_items WHERE scope = {scope}
        AND (change = 'lost' OR (change = 'gained' AND rollback = 'undone')))
SELECT m.memory_id, m.content, d.sources
FROM memories_all m JOIN drawn d USING (memory_id) LEFT JOIN ended e USING (memory_id)
    LEFT JOIN promoted p ON p.memory_id = m.memory_id AND p.version = m.version
WHERE m.scope = {scope} AND m.state = 'tombstone' AND m.type NOT IN {sources}
    AND coalesce(e.actor_type, '') <> 'pipeline' AND p.memory_id IS NULL
ORDER BY m.memory_id"""
)
# The texts of memories before a later statement changed or deleted them.
_SUPERSEDED = """
SELECT f.item_id, f.memory_id, f.content, f.turn_memory_id, max(g.occurred_at) AS superseded_at,
    arg_max(g.turn_memory_id, (g.occurred_at, g.item_id)) AS superseded_by
FROM facts f JOIN facts g ON g.memory_id = f.memory_id AND g.scope = f.scope
    AND g.occurred_at >= f.occurred_at AND g.turn_memory_id <> f.turn_memory_id
    AND g.outcome IN ('updated', 'deleted')
WHERE f.scope = {scope} AND f.outcome IN ('created', 'updated', 'none', 'deduped')
GROUP BY f.item_id, f.memory_id, f.content, f.turn_memory_id ORDER BY f.item_id"""
_HELD_BACK = """
SELECT DISTINCT turn_memory_id FROM facts
WHERE scope = {scope} AND outcome IN ('blocked', 'shadowed') ORDER BY ALL"""
_EXTRACTIONS = """
SELECT e.turn_memory_id, e.provider, e.model, e.prompt_version, e.facts, e.input_tokens,
    e.output_tokens, e.cost, e.latency_ms, e.recorded_at, m.occurred_at
FROM extractions e LEFT JOIN memories m ON m.memory_id = e.turn_memory_id
WHERE e.scope = {scope} AND e.round = 0
QUALIFY row_number() OVER (PARTITION BY e.turn_memory_id ORDER BY e.recorded_at DESC) = 1
ORDER BY e.turn_memory_id"""
_DECISIONS = """
SELECT f.item_id, f.turn_memory_id, f.content, f.type, f.confidence, f.importance, f.temporal_kind,
    f.valid_until, f.categories, f.model, f.prompt_version, f.occurred_at, f.outcome, f.memory_id,
    p.action, p.target_id, p.reason, p.confidence AS sure, p.model AS decider, p.cost,
    p.input_tokens, p.output_tokens
FROM facts f LEFT JOIN (FROM proposals WHERE scope = {scope}
    QUALIFY row_number() OVER (PARTITION BY item_id ORDER BY round DESC) = 1) p USING (item_id)
WHERE f.scope = {scope} ORDER BY f.turn_memory_id, f.item_id"""
_ENTITIES = """
SELECT name, canonical_name FROM entities WHERE scope = {scope} ORDER BY canonical_name"""
_RELATIONS = """
SELECT s.name AS source, s.canonical_name AS source_key, s.entity_type AS source_type,
    r.relation_type, t.name AS target, t.canonical_name AS target_key,
    t.entity_type AS target_type, r.confidence,
    (SELECT list(a.memory_id ORDER BY a.memory_id) FROM mentions a JOIN mentions b USING (memory_id)
     WHERE a.entity_id = r.source_entity_id AND b.entity_id = r.target_entity_id) AS told_by
FROM relations r JOIN entities s ON s.entity_id = r.source_entity_id AND s.scope = r.scope
    JOIN entities t ON t.entity_id = r.target_entity_id AND t.scope = r.scope
WHERE r.scope = {scope} ORDER BY ALL"""
_TEXTS = "SELECT memory_id, content, who FROM {view} WHERE scope = {scope} AND memory_id IN ({ids})"
_NEWEST = """
SELECT promotion_id, status FROM promotions WHERE scope = {scope} ORDER BY number DESC LIMIT 1"""


@dataclass(slots=True)
class ComparedStore:
    """One memory: its queries and the partitions of its scopes."""

    queries: Queries
    partitions: dict[str, int] = field(default_factory=dict)

    async def begin(self) -> None:
        """Reads the scopes and their partitions."""
        found = await self._rows("SELECT scope, partition FROM scopes ORDER BY scope")
        self.partitions = {str(row["scope"]): int(row["partition"]) for row in found}

    async def facts(self, scope: str) -> list[Record]:
        """Returns the active memories that were derived from others, with their sources."""
        return await self._of(scope, _FACTS, promotion=quoted(PROMOTION))

    async def forgotten(self, scope: str) -> list[Record]:
        """Returns the derived memories that a person forgot; erased ones have no content."""
        return await self._of(scope, _FORGOTTEN, sources=str(tuple(sorted(SOURCE_TYPES))))

    async def superseded(self, scope: str) -> list[Record]:
        """Returns the facts that a later statement replaced or deleted, with its time."""
        return await self._of(scope, _SUPERSEDED)

    async def held_back(self, scope: str) -> frozenset[str]:
        """Returns the turns with facts that were extracted but not executed."""
        rows = await self._of(scope, _HELD_BACK)
        return frozenset(str(row["turn_memory_id"]) for row in rows)

    async def extractions(self, scope: str) -> list[Record]:
        """Returns the last extraction of each turn."""
        return await self._of(scope, _EXTRACTIONS)

    async def decisions(self, scope: str) -> list[Record]:
        """Returns every extracted fact with the last decision about it."""
        return await self._of(scope, _DECISIONS)

    async def entities(self, scope: str) -> list[Record]:
        return await self._of(scope, _ENTITIES)

    async def relations(self, scope: str) -> list[Record]:
        """Returns the relations with the memories that mention both ends."""
        return await self._of(scope, _RELATIONS)

    async def newest_promotion(self, scope: str) -> Record | None:
        found = await self._of(scope, _NEWEST)
        return found[0] if found else None

    async def texts(self, scope: str, memory_ids: Sequence[str]) -> dict[str, str]:
        """Returns the texts of memories, turns with their speaker, without forgotten memories."""
        told: dict[str, str] = {}
        for first in range(0, len(memory_ids), VECTORS_AT_ONCE):
            some = memory_ids[first : first + VECTORS_AT_ONCE]
            ids = ", ".join(map(quoted, some))
            for row in await self._of(scope, _TEXTS, view="memories", ids=ids):
                is_turn = row["who"] not in ("", "pipeline", None)
                text = f"{row['who']}: {row['content']}" if is_turn else str(row["content"])
                told[str(row["memory_id"])] = text
        return told

    async def vectors(
        self, scope: str, memory_ids: Sequence[str]
    ) -> tuple[str | None, dict[str, NDArray[np.float32]]]:
        """Returns the model in use and the unit vectors of the memories that have one of it."""
        model: str | None = None
        found: dict[str, NDArray[np.float32]] = {}
        for first in range(0, len(memory_ids), VECTORS_AT_ONCE):
            some = tuple(memory_ids[first : first + VECTORS_AT_ONCE])
            request = Embeddings(scope, limit=len(some), memory_ids=some)
            answer = cast("JsonObject", await self.queries.answer(request))
            for row in cast("list[Record]", answer["embeddings"]):
                vector = np.asarray(row["vector"], np.float32)
                length = float(np.linalg.norm(vector))
                if length > 0.0:
                    model = str(row["model"])
                    found[str(row["id"])] = vector / length
        return model, found

    async def _of(self, scope: str, query: str, **parts: str) -> list[Record]:
        number = self.partitions.get(scope)
        if number is None:
            return []
        return await self._rows(query.format(scope=quoted(scope), **parts), number)

    async def _rows(self, query: str, partition: int | None = None) -> list[Record]:
        asked = SqlRequest(query, partition, SECONDS, ROWS)
        table = await self.queries.table(asked)
        return cast("list[Record]", table.to_pylist())
