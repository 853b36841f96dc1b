"""The state hash: equal for two stores that hold the same memory, however they came to it."""

from __future__ import annotations

import hashlib

import duckdb

from palimpsest.stores.database.tables import COLUMNS

APPEND_TIMES = frozenset(
    {
        "created_at",
        "updated_at",
        "deleted_at",
        "recorded_at",
        "archived_at",
        "first_seen",
        "first_failed_at",
        "last_failed_at",
        "last_accessed",
        "state",
        "last_recorded_at",
        "ended_at",
        "turns_expire_at",
        "summary_at",
        "summary_expires_at",
        "expires_at",
    }
)
"""Columns that hold a log's append time (`state` of the archive has some in it): equal after a
rebuild from the same log, different when the same turns are published again."""

SCHEDULE = frozenset(
    {"write_seq", "decision_order", "as_of", "log_offset", "partition", "latency_ms"}
)
"""Columns that depend on how the work was interleaved: on batching, repeats and speed. They
order and measure, they do not say what is remembered."""


def state_hash(
    connection: duckdb.DuckDBPyConnection, times: bool = False, scope: str | None = None
) -> str:
    """SHA-256 hex over the sorted logical rows of every table that is no cache.

    Full-text postings, vectors and the runner's own tables are caches or bookkeeping. `times`
    includes the append times; `scope` takes the rows of one scope only.
    """
    total = hashlib.sha256()
    for table, digest in table_hashes(connection, times, scope).items():
        total.update(f"{table}={digest}\n".encode())
    return total.hexdigest()


def table_hashes(
    connection: duckdb.DuckDBPyConnection, times: bool = False, scope: str | None = None
) -> dict[str, str]:
    """The same by table, to tell where two stores differ."""
    left_out = SCHEDULE if times else SCHEDULE | APPEND_TIMES
    hashes = {}
    for row_type, columns in COLUMNS.items():
        names = [name for name in columns if name not in left_out]
        where = "" if scope is None else "WHERE scope = ?"
        row = connection.execute(
            f"SELECT coalesce(sha256(string_agg(digest, '' ORDER BY digest)), '') FROM ("
            f" SELECT sha256(CAST(to_json(logical) AS VARCHAR)) AS digest FROM ("
            f"  SELECT {', '.join(names)} FROM {row_type.TABLE} {where}) AS logical)",
            [] if scope is None else [scope],
        ).fetchone()
        assert row is not None
        hashes[row_type.TABLE] = str(row[0])
    return hashes
