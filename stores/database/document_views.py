"""The views over documents."""

from __future__ import annotations

from palimpsest.stores.database.view_columns import View

_CHUNKS = """
    SELECT l.document_id,
        count(*) FILTER (NOT EXISTS (SELECT 1 FROM internal.embeddings e
            WHERE e.embedding_key = m.embedding_key)) AS unembedded,
        count(*) FILTER (NOT EXISTS (SELECT 1 FROM internal.fts_docs f
            WHERE f.memory_id = m.memory_id)) AS unindexed
    FROM internal.document_memory_rows l
    JOIN internal.memory_rows m ON m.memory_id = l.memory_id AND m.scope = l.scope
    WHERE NOT m.is_deleted GROUP BY l.document_id"""

DOCUMENT_VIEWS: dict[str, View] = {
    "documents": View(
        "Every document that was added, also deleted ones, with how far it has come.",
        f"""SELECT d.document_id, d.scope, d.kind, d.source, d.title,
               CASE WHEN d.deleted_at IS NOT NULL THEN 'deleted'
                   WHEN d.error IS NOT NULL THEN 'failed'
                   WHEN d.chunks IS NULL THEN 'queued'
                   WHEN d.taken = 0 THEN 'extracting'
                   WHEN d.taken < d.chunks THEN 'chunking'
                   WHEN coalesce(c.unembedded, 0) > 0 THEN 'embedding'
                   WHEN coalesce(c.unindexed, 0) > 0 THEN 'indexing'
                   ELSE 'done' END AS status,
               d.error, d.content_type, d.characters, d.chunks, d.taken, d.digest, d.added_by,
               d.created_at, d.updated_at, d.deleted_at
           FROM internal.document_rows d LEFT JOIN ({_CHUNKS}) c USING (document_id)""",
        {
            "kind": "text, url or file",
            "source": "the address of a URL, the name of a file",
            "title": "its title, which its chunks have as a tag",
            "status": "queued (its text is to be fetched), extracting (its text is on its way),"
            " chunking, embedding, indexing, done, failed or deleted",
            "error": "why it failed",
            "digest": "SHA-256 of its chunks: by it the same text is known again",
            "updated_at": "when it last came further",
        },
    ),
    "document_memories": View(
        "The chunks of documents, one row a position, with the memory that each is.",
        """SELECT l.document_id, l.position, l.memory_id, l.scope
           FROM internal.document_memory_rows l""",
        {"position": "the number of the chunk in its document, from 0"},
    ),
}
