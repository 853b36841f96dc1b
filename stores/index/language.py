"""The language in which a store's full text is analysed: of the index, and so of every question.

Questions must be analysed as the index was: a stem of another language is no term of it.
"""

from __future__ import annotations

from typing import Final

import duckdb

from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.database.tables import Tables, select
from palimpsest.stores.index.fulltext import terms_of, write_postings

LANGUAGE_STATE: Final = "index_language"
SAMPLE: Final = 50
BATCH: Final = 1_000
_KEPT: Final = "SELECT value FROM shard_state WHERE name = ?"
_BY_IDS: Final = "memory_id IN (SELECT unnest(?)) AND NOT is_deleted"


def language_of(connection: duckdb.DuckDBPyConnection, wanted: str) -> str | None:
    """The language of the index; `wanted` where there is nothing in it. None where it is not known:
    an earlier release kept no language, and the terms of some memories are not those of
    `wanted`."""
    for (kept,) in connection.execute(_KEPT, [LANGUAGE_STATE]).fetchall():
        return str(kept)
    ids = connection.execute(f"SELECT memory_id FROM fts_docs LIMIT {SAMPLE}").fetchall()
    if not ids:
        return wanted
    rows = select(connection, MemoryRow, _BY_IDS, [[each for (each,) in ids]])
    for row in rows:
        indexed = connection.execute(
            "SELECT term FROM fts_postings WHERE memory_id = ?", [row.memory_id]
        ).fetchall()
        if {term for (term,) in indexed} != {*terms_of(row, wanted)}:
            return None
    return wanted


def keep_language(connection: duckdb.DuckDBPyConnection, language: str) -> None:
    """Keeps the language with the running transaction, or in one of its own. Writes nothing where
    it is the one that is kept: a store that is only read needs no checkpoint."""
    if connection.execute(_KEPT, [LANGUAGE_STATE]).fetchall() != [(language,)]:
        connection.execute(
            "INSERT OR REPLACE INTO shard_state VALUES (?, ?)", [LANGUAGE_STATE, language]
        )


def index_again(connection: duckdb.DuckDBPyConnection, tables: Tables, language: str) -> int:
    """Analyses all memories in this language, in one transaction. Returns how many there are.
    Raises duckdb.Error, and then nothing has changed."""
    connection.execute("BEGIN")
    try:
        connection.execute("DELETE FROM fts_postings")
        connection.execute("DELETE FROM fts_docs")
        ids = connection.execute(
            "SELECT memory_id FROM memory_rows WHERE NOT is_deleted"
        ).fetchall()
        for start in range(0, len(ids), BATCH):
            some = [each for (each,) in ids[start : start + BATCH]]
            write_postings(
                connection, tables, select(connection, MemoryRow, _BY_IDS, [some]), (), language
            )
        keep_language(connection, language)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return len(ids)
