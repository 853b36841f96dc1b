"""Export of vectors, page by page."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources, rows

_VECTORS = """
SELECT m.memory_id AS id, m.scope, e.model, len(e.vector) AS dimensions, m.content_hash, e.vector
FROM memory_rows m JOIN embeddings e ON e.embedding_key = m.embedding_key AND e.model = ?
WHERE m.scope = ? AND m.memory_id > ? AND {which}
ORDER BY m.memory_id LIMIT ?
"""


def embeddings(
    sources: Sources, scope: str, memory_ids: Sequence[str], limit: int, after: str | None
) -> JsonObject:
    """`embeddings`, those of the model in use, and `next_cursor` for the page after (or null)."""
    which = "m.memory_id IN (SELECT unnest(?))" if memory_ids else "NOT m.is_deleted"
    given: list[object] = [sources.embedding.model, scope, after or ""]
    if memory_ids:
        given.append([*memory_ids])
    found = rows(
        sources.shard_of(scope),
        _VECTORS.format(which=which),
        [*given, limit],
    )
    return {
        "embeddings": [*found],
        "next_cursor": found[-1]["id"] if len(found) == limit else None,
    }
