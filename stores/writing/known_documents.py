"""Documents as a batch has left them."""

from __future__ import annotations

from palimpsest.schemas.document_rows import DocumentMemoryRow, DocumentRow
from palimpsest.stores.database.tables import select
from palimpsest.stores.state import ShardState
from palimpsest.stores.writing.batch_rows import BatchRows
from palimpsest.streams.store_port import Documents, LoadDocuments


def known_documents(shard: ShardState, rows: BatchRows, ask: LoadDocuments) -> Documents:
    """What is stored and what the batch has staged, the newest of each."""
    found = [rows.get(DocumentRow, (key,)) for key in ask.ids]
    by_id = {row.document_id: row for row in found if row is not None and row.scope == ask.scope}
    return Documents(by_id, _by_key(shard, rows, ask), _chunks(shard, rows, ask))


def _by_key(shard: ShardState, rows: BatchRows, ask: LoadDocuments) -> dict[str, DocumentRow]:
    if not ask.same_keys:
        return {}
    where = "scope = ? AND same_key IN (SELECT unnest(?))"
    with shard.reading() as reader:
        stored = select(reader, DocumentRow, where, [ask.scope, list(ask.same_keys)])
    # The batch may have changed what is stored: each is looked at as it is now.
    found = {row.document_id: rows.get(DocumentRow, row.key) for row in stored}
    found.update((row.document_id, row) for row in rows.staged(DocumentRow))
    return {
        row.same_key: row
        for row in found.values()
        if row is not None and row.scope == ask.scope and row.same_key in ask.same_keys
    }


def _chunks(shard: ShardState, rows: BatchRows, ask: LoadDocuments) -> tuple[tuple[int, str], ...]:
    if ask.chunks_of is None:
        return ()
    where = "document_id = ? AND scope = ? AND position > ? ORDER BY position LIMIT ?"
    with shard.reading() as reader:
        given = [ask.chunks_of, ask.scope, ask.after, ask.limit]
        found = select(reader, DocumentMemoryRow, where, given)
    staged = [
        row
        for row in rows.staged(DocumentMemoryRow)
        if (row.document_id, row.scope) == (ask.chunks_of, ask.scope) and row.position > ask.after
    ]
    known = {row.position: row.memory_id for row in (*found, *staged)}
    return tuple(sorted(known.items())[: ask.limit])
