"""Documents: one, a page of them, the chunks of one."""

from __future__ import annotations

from typing import cast

from palimpsest.ops.queries.document_errors import no_document
from palimpsest.ops.queries.errors import RequestError
from palimpsest.ops.queries.pages import cursor, page
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources, by_id, from_all, rows

STATUSES = (
    *("queued", "extracting", "chunking", "embedding", "indexing", "done", "failed", "deleted"),
)
_DOCUMENT = (
    "SELECT document_id AS id, scope, kind, source, title, status, error, content_type, characters,"
    " chunks, added_by, created_at, updated_at, deleted_at FROM documents"
)
NEWEST = ("created_at", "id")
"""What a page of documents is sorted by."""
_CHUNKS = """
SELECT l.position, l.memory_id AS id, m.content, m.is_deleted FROM document_memories l
JOIN memory_rows m ON m.memory_id = l.memory_id AND m.scope = l.scope
WHERE l.document_id = ? AND l.scope = ? AND l.position > ? ORDER BY l.position LIMIT ?"""


def document(sources: Sources, document_id: str) -> JsonObject:
    """The document by its id or its first 8 characters. Raises NotFoundError."""
    return _found(sources, document_id)[1]


def _found(sources: Sources, document_id: str) -> tuple[int, JsonObject]:
    unknown = no_document(document_id)
    return by_id(sources, _DOCUMENT, "document_id", document_id, unknown)


def list_documents(
    sources: Sources, scope: str | None, status: str | None, limit: int, after: str | None
) -> JsonObject:
    """A page of `documents`, and `next_cursor` for the page after (or null)."""
    if status is not None and status not in STATUSES:
        raise RequestError(f"there is no status {status}; there are {', '.join(STATUSES)}")
    conditions = ["status = ?" if status else "status <> ?"]
    values: list[object] = [status or "deleted"]
    if scope is not None:
        conditions.append("scope = ?")
        values.append(scope)
    if after is not None:
        conditions.append("(created_at, document_id) < (?::TIMESTAMPTZ, ?)")
        values += cursor(after)
    matches = from_all(
        sources,
        f"{_DOCUMENT} WHERE {' AND '.join(conditions)}"
        f" ORDER BY created_at DESC, document_id DESC LIMIT {int(limit) + 1}",
        values,
    )
    found = [row for _, row in matches]
    return page(found, limit, "documents", NEWEST, more=False)


def chunks(sources: Sources, document_id: str, limit: int, cursor: int | None) -> JsonObject:
    """A page of the document's `chunks` by position, forgotten ones too, and `next_cursor` for the
    page after (or null)."""
    partition, known = _found(sources, document_id)
    after = -1 if cursor is None else cursor
    found = rows(
        sources.shard(partition),
        _CHUNKS,
        [known["id"], known["scope"], after, int(limit) + 1],
    )
    shown = found[:limit]
    more = len(found) > len(shown)
    return {
        "id": known["id"],
        "chunks": [*shown],
        "next_cursor": cast("int", shown[-1]["position"]) if more else None,
    }
