"""Full-text tables, written in the transaction of the memory that they index.

`fts_docs` (memory, scope, length) and `fts_postings` (scope, term, memory, tf) are tables;
`fts_terms` (df) and `fts_stats` (documents, average length) are views over them, so they cannot
fall out of step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import duckdb

from palimpsest.schemas.envelope import local_time
from palimpsest.schemas.memory_texts import index_text
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.database.analysis import tokens
from palimpsest.stores.database.tables import Tables
from palimpsest.stores.index.segment import MAX_COUNT


def terms_of(row: MemoryRow, language: str) -> Counter[str]:
    """The terms of a memory with their counts."""
    said_at = local_time(row.occurred_at, row.utc_offset_minutes or 0)
    text = index_text(row.type, row.who, row.content, said_at)
    return Counter(tokens(text, language))


def write_postings(
    connection: duckdb.DuckDBPyConnection,
    tables: Tables,
    rows: Sequence[MemoryRow],
    replaced: Sequence[str],
    language: str,
) -> None:
    """Replace the entries of `rows`, as part of the running transaction; a deleted memory keeps
    none. `replaced` are the ids that may have an entry already."""
    if replaced:
        for table in ("fts_docs", "fts_postings"):
            connection.execute(
                f"DELETE FROM {table} WHERE memory_id IN (SELECT unnest(?))", [list(replaced)]
            )
    entries = [(row, terms_of(row, language)) for row in rows if not row.is_deleted]
    if not entries:
        return
    tables.insert_columns(
        "fts_docs",
        {
            "memory_id": [row.memory_id for row, _ in entries],
            "scope": [row.scope for row, _ in entries],
            "length": [terms.total() for _, terms in entries],
        },
    )
    postings = [
        (row.scope, term, row.memory_id, min(count, MAX_COUNT))
        for row, terms in entries
        for term, count in terms.items()
    ]
    if postings:
        scopes, terms, memory_ids, counts = map(list, zip(*postings, strict=True))
        tables.insert_columns(
            "fts_postings", {"scope": scopes, "term": terms, "memory_id": memory_ids, "tf": counts}
        )
