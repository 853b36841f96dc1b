"""Export of vectors, page by page."""

from __future__ import annotations

from palimpsest.ops.queries.requests import EmbeddingsRequest, JsonObject
from palimpsest.ops.queries.sources import Sources, rows

_VECTORS = """
SELECT m.memory_id AS id, m.scope, e.model, len(e.vector) AS dimensions, m.content_hash, e.vector
FROM memory_rows m JOIN embeddings e ON e.embedding_key = m.embedding_key AND e.model = ?
WHERE m.scope = ? AND NOT m.is_deleted AND m.memory_id > ?
ORDER BY m.memory_id LIMIT ?
"""


def embeddings(sources: Sources, request: EmbeddingsRequest) -> JsonObject:
    """`embeddings`, those of the model in use, and `next` for the page after (or null)."""
    found = rows(
        sources.shard_of(request.scope),
        _VECTORS,
        [sources.embedding.model, request.scope, request.after or "", request.limit],
    )
    return {
        "embeddings": [*found],
        "next": found[-1]["id"] if len(found) == request.limit else None,
    }
