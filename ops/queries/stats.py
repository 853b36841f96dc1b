"""How much is remembered, in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources, from_all, rows

COUNTS = ("active", "turns", "memories", "pinned", "forgotten", "embedded", "sessions", "entities")
_COUNTS = """
SELECT count(*) FILTER (NOT is_deleted) AS active,
    count(*) FILTER (NOT is_deleted AND type = 'episodic') AS turns,
    count(*) FILTER (NOT is_deleted AND type <> 'episodic') AS memories,
    count(*) FILTER (NOT is_deleted AND pinned) AS pinned,
    count(*) FILTER (is_deleted) AS forgotten,
    count(*) FILTER (NOT is_deleted AND embedding_key IN (
        SELECT embedding_key FROM embeddings WHERE model = $model)) AS embedded,
    (SELECT count(*) FROM session_rows WHERE coalesce(scope = $scope, true)) AS sessions,
    (SELECT count(DISTINCT entity_id) FROM name_rows WHERE coalesce(scope = $scope, true))
        AS entities
FROM memory_rows WHERE coalesce(scope = $scope, true)
"""
_TYPES = """
SELECT type, count(*) AS number FROM memory_rows
WHERE NOT is_deleted AND coalesce(scope = $scope, true) GROUP BY type ORDER BY type
"""


def stats(sources: Sources, scope: str | None) -> JsonObject:
    """Counts of memories and `types` with how many there are of each."""
    asked = {"scope": scope}
    counted = {**asked, "model": sources.embedding.model}
    if scope is None:
        return stats_of(
            scope,
            [row for _, row in from_all(sources, _COUNTS, counted)],
            [row for _, row in from_all(sources, _TYPES, asked)],
        )
    shard = sources.shard_of(scope)
    return stats_of(scope, rows(shard, _COUNTS, counted), rows(shard, _TYPES, asked))


def merged(answers: Sequence[JsonObject]) -> JsonObject:
    """The numbers of all workers together."""
    types: list[JsonObject] = [
        {"type": name, "number": number}
        for answer in answers
        for name, number in cast("JsonObject", answer["types"]).items()
    ]
    return stats_of(None, answers, types)


def stats_of(
    scope: str | None, counts: Iterable[JsonObject], types: Iterable[JsonObject]
) -> JsonObject:
    """The numbers of all partitions together."""
    total: dict[str, int] = dict.fromkeys(COUNTS, 0)
    for row in counts:
        for name in COUNTS:
            total[name] += cast("int", row[name])
    by_type: dict[str, int] = {}
    for row in types:
        by_type[str(row["type"])] = by_type.get(str(row["type"]), 0) + cast("int", row["number"])
    return {"scope": scope, **total, "types": {**by_type}}
