"""The state hash: equal for two stores that hold the same memory, however they came to it."""

from __future__ import annotations

import hashlib

import duckdb

from palimpsest.schemas.rows.columns import APPEND_TIME, NOT_KNOWN_BEFORE, SCHEDULE, Row, columns_of
from palimpsest.schemas.rows.row_types import ROW_TYPES


def state_hash(connection: duckdb.DuckDBPyConnection, times: bool = False) -> str:
    """SHA-256 hex over the sorted logical rows of every table that is no cache.

    Full-text postings, vectors and the runner's own tables are caches or bookkeeping. `times`
    includes the append times.
    """
    total = hashlib.sha256()
    for table, digest in table_hashes(connection, times).items():
        total.update(f"{table}={digest}\n".encode())
    return total.hexdigest()


def table_hashes(
    connection: duckdb.DuckDBPyConnection, times: bool = False, scope: str | None = None
) -> dict[str, str]:
    """The same by table, to tell where two stores differ; `scope` takes the rows of one scope
    only."""
    where = "" if scope is None else "WHERE scope = $1"
    # One statement for all tables: it takes half the time of one for each.
    query = " UNION ALL ".join(
        f"SELECT '{row_type.TABLE}', coalesce(sha256(string_agg(digest, '' ORDER BY digest)), '')"
        f" FROM ({_digests(row_type, row_type.SOURCE, times, where)})"
        for row_type in ROW_TYPES
    )
    found = dict(connection.execute(query, [] if scope is None else [scope]).fetchall())
    return {row_type.TABLE: str(found[row_type.TABLE]) for row_type in ROW_TYPES}


def differing_rows(
    connection: duckdb.DuckDBPyConnection, one: str, other: str
) -> dict[str, dict[str, int]]:
    """By table and scope how many logical rows only one of two stores has, their append times
    included; what is equal is left out. `one` and `other` are schemas, with the names under which
    their files are attached."""
    differing = {}
    for row_type in ROW_TYPES:
        first, second = (
            f"FROM ({_digests(row_type, f'{schema}.{row_type.SOURCE}', times=True)})"
            for schema in (one, other)
        )
        rows = connection.execute(
            f"SELECT scope, count(*) FROM (({first} EXCEPT ALL {second})"
            f" UNION ALL ({second} EXCEPT ALL {first})) GROUP BY scope ORDER BY scope"
        ).fetchall()
        if rows:
            differing[row_type.TABLE] = dict(rows)
    return differing


def row_count(connection: duckdb.DuckDBPyConnection, schema: str) -> int:
    """All logical rows."""
    counts = " + ".join(f"(SELECT count(*) FROM {schema}.{each.SOURCE})" for each in ROW_TYPES)
    row = connection.execute(f"SELECT {counts}").fetchone()
    assert row is not None
    return int(row[0])


def _digests(row_type: type[Row], table: str, times: bool, where: str = "") -> str:
    """The query of the scopes and digests of a table's logical rows."""
    left_out = {SCHEDULE, NOT_KNOWN_BEFORE} | (set() if times else {APPEND_TIME})
    columns = columns_of(row_type).values()
    names = ", ".join(each.name for each in columns if not each.marks & left_out)
    return (
        "SELECT scope, sha256(CAST(to_json(logical) AS VARCHAR)) AS digest"
        f" FROM (SELECT {names} FROM {table} {where}) AS logical"
    )
