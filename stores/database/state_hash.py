"""The state hash: equal for two stores that hold the same memory, however they came to it."""

from __future__ import annotations

import hashlib

import duckdb

from palimpsest.schemas.row_types import ROW_TYPES
from palimpsest.schemas.rows import APPEND_TIME, NOT_KNOWN_BEFORE, SCHEDULE, Row, columns_of


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
    for row_type in ROW_TYPES:
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
    for row_type in ROW_TYPES:
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
    counts = " + ".join(f"(SELECT count(*) FROM {schema}.{each.TABLE})" for each in ROW_TYPES)
    row = connection.execute(f"SELECT {counts}").fetchone()
    assert row is not None
    return int(row[0])


def _digests(row_type: type[Row], table: str, times: bool) -> str:
    """The query of the digests of a table's logical rows, but for a condition and its end."""
    left_out = {SCHEDULE, NOT_KNOWN_BEFORE} | (set() if times else {APPEND_TIME})
    columns = columns_of(row_type).values()
    names = ", ".join(each.name for each in columns if not each.marks & left_out)
    return (
        "SELECT sha256(CAST(to_json(logical) AS VARCHAR)) AS digest"
        f" FROM (SELECT {names} FROM {table}"
    )
