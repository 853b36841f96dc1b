"""One partition's store out of the rows that several others have of its scopes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from palimpsest.stores.database.migrations import migrate
from palimpsest.stores.database.snapshot import TABLES, opened
from palimpsest.stores.database.view_columns import quoted

_TABLES: Final = TABLES.replace("WHERE", "WHERE database_name = 'source_0' AND")
_SCOPED: Final = (
    "SELECT 1 FROM duckdb_columns() WHERE database_name = 'source_0' AND schema_name = 'internal'"
    " AND table_name = ? AND column_name = 'scope'"
)
_LEFT_OUT: Final = frozenset({"outbox"})


def scopes_in(sources: Sequence[Path]) -> set[str]:
    """All scopes that stores which no one has open have rows of."""
    found: set[str] = set()
    with _attached(":memory:", sources) as connection:
        for (table,) in connection.execute(_TABLES, ["internal"]).fetchall():
            if connection.execute(_SCOPED, [table]).fetchone() is None:
                continue
            for number in range(len(sources)):
                rows = connection.execute(
                    f"SELECT DISTINCT scope FROM source_{number}.internal.{table}"
                ).fetchall()
                found.update(scope for (scope,) in rows)
    return found


def gather_store(path: Path, sources: Sequence[Path], scopes: Collection[str]) -> None:
    """Make a new store of what these stores have of these scopes. It has gone through no log: no
    cursor, nothing to be sent."""
    with _attached(path, sources) as target:
        migrate(target)
        target.execute("CREATE TEMP TABLE wanted AS SELECT unnest(?::VARCHAR[])", [[*scopes]])
        for (table,) in target.execute(_TABLES, ["internal"]).fetchall():
            if table in _LEFT_OUT or target.execute(_SCOPED, [table]).fetchone() is None:
                continue
            for number in range(len(sources)):
                target.execute(
                    f"INSERT INTO internal.{table} BY NAME FROM source_{number}.internal.{table}"
                    " WHERE scope IN (FROM temp.wanted)"
                )
        for number in range(len(sources)):
            target.execute(
                "INSERT OR IGNORE INTO internal.embeddings BY NAME"
                f" FROM source_{number}.internal.embeddings WHERE embedding_key IN"
                " (SELECT embedding_key FROM internal.memory_rows)"
            )
        target.execute(
            "INSERT INTO internal.shard_state SELECT 'write_seq',"
            " CAST(coalesce(max(write_seq), 0) AS VARCHAR) FROM internal.memory_rows"
        )
        target.execute("CHECKPOINT")


@contextmanager
def _attached(path: Path | str, sources: Sequence[Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    with opened(path) as connection:
        for number, source in enumerate(sources):
            connection.execute(f"ATTACH {quoted(str(source))} AS source_{number} (READ_ONLY)")
        yield connection
