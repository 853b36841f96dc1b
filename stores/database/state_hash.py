"""The state hash: equal for two stores that hold the same memory, however they came to it."""

from __future__ import annotations

import hashlib

import duckdb

from palimpsest.schemas.rows import Row
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

NOT_KNOWN_BEFORE = frozenset({"role"})
"""Columns that came to memories later and that no migration can fill: a store of an earlier release
lacks what a rebuild from its log has, and holds the same memory all the same."""

RECORDED_LATER = {"proposals": frozenset({"recorded_at"})}
"""Columns whose time is another one in a store of an earlier release: proposals had the time of the
extraction that they were about, and have that of the intent with which they were sent."""


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
    hashes = {}
    for row_type in COLUMNS:
        where = "" if scope is None else "WHERE scope = ?"
        row = connection.execute(
            "SELECT coalesce(sha256(string_agg(digest, '' ORDER BY digest)), '')"
            f" FROM ({_digests(row_type, row_type.TABLE, times)} {where}) AS logical)",
            [] if scope is None else [scope],
        ).fetchone()
        assert row is not None
        hashes[row_type.TABLE] = str(row[0])
    return hashes


def differing_rows(
    connection: duckdb.DuckDBPyConnection, one: str, other: str, scope: str | None = None
) -> dict[str, int]:
    """By table how many logical rows only one of two stores has, their append times included;
    tables that are equal are left out. `one` and `other` are schemas, with the names under which
    their files are attached. `scope` takes the rows of one scope only."""
    where = "" if scope is None else "WHERE scope = $scope"
    given = {} if scope is None else {"scope": scope}
    differing = {}
    for row_type in COLUMNS:
        first, second = (
            f"({_digests(row_type, f'{schema}.{row_type.TABLE}', times=True)} {where}) AS logical)"
            for schema in (one, other)
        )
        row = connection.execute(
            f"SELECT (SELECT count(*) FROM (FROM {first} EXCEPT ALL FROM {second}))"
            f" + (SELECT count(*) FROM (FROM {second} EXCEPT ALL FROM {first}))",
            given,
        ).fetchone()
        assert row is not None
        if row[0]:
            differing[row_type.TABLE] = int(row[0])
    return differing


def row_count(connection: duckdb.DuckDBPyConnection, schema: str) -> int:
    """All logical rows."""
    counts = " + ".join(f"(SELECT count(*) FROM {schema}.{each.TABLE})" for each in COLUMNS)
    row = connection.execute(f"SELECT {counts}").fetchone()
    assert row is not None
    return int(row[0])


def _digests(row_type: type[Row], table: str, times: bool) -> str:
    """The query of the digests of a table's logical rows, but for a condition and its end."""
    left_out = SCHEDULE | NOT_KNOWN_BEFORE | (frozenset() if times else APPEND_TIMES)
    left_out |= RECORDED_LATER.get(row_type.TABLE, frozenset())
    names = ", ".join(name for name in COLUMNS[row_type] if name not in left_out)
    return (
        "SELECT sha256(CAST(to_json(logical) AS VARCHAR)) AS digest"
        f" FROM (SELECT {names} FROM {table}"
    )
