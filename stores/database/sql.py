"""Read-only SQL for analysts, over everything a shard holds, also while it is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from palimpsest.stores.database.arrow_errors import as_duckdb_error
from palimpsest.stores.database.balance import install_balance
from palimpsest.stores.database.cursors import Readable, interrupted_after
from palimpsest.stores.database.damage import is_damage
from palimpsest.stores.database.sql_check import QueryInvalid, QueryRefused, Reading, checked
from palimpsest.stores.database.view_columns import PARTITION
from palimpsest.stores.index.analysis import query_tokens
from palimpsest.streams.store_port import FindItems

AS_OF_NOW = {
    "pipeline_items": "temp.items_now",
    "pipeline_balance": "temp.balance_now",
    "pipeline_total": "temp.total_now",
}
"""Views that are made for the query: they look into the log."""
BATCH_ROWS = 10_000


class QueryTooSlow(QueryRefused):
    """A query that was stopped after its time."""


class QueryTooLarge(QueryRefused):
    """A query with a larger result, or with more memory, than it may have."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """`seconds` a query may take; `rows` and `megabytes` it may return."""

    seconds: float = 30.0
    rows: int = 1_000_000
    megabytes: int = 512


def read_only_query(
    shard: Readable,
    find_items: FindItems,
    query: str,
    limits: QueryLimits = QueryLimits(),
    partition: int = 0,
) -> pa.Table:
    """The result of one SELECT (or EXPLAIN, DESCRIBE, SHOW) as an Arrow table. The views have a
    column `partition`.

    Nothing can be written: the parsed statement is checked (`sql_check`), the transaction is
    read-only, and the connection has no access to files or the network. Raises QueryRefused for
    anything else, QueryInvalid for SQL that cannot be run, QueryTooSlow and QueryTooLarge past the
    limits; StoreClosed.
    """
    with shard.reading() as reader:
        reading = checked(reader, query)
        if AS_OF_NOW.keys() & set(reading.views):
            install_balance(reader, find_items)
        reader.execute("SET search_path = 'main'")
        _number(reader, reading, partition)
        return run_query(reader, query, limits)


def _number(reader: duckdb.DuckDBPyConnection, reading: Reading, partition: int) -> None:
    """Give this connection the views that are read with the column `partition`, before those of
    the store."""
    [(database,)] = reader.execute("SELECT current_database()").fetchall()
    for view in reading.views:
        source = AS_OF_NOW.get(view, f'"{database}".main.{view}')
        reader.execute(
            f"CREATE TEMP VIEW {view} AS SELECT {int(partition)}::BIGINT AS {PARTITION},"
            f" COLUMNS(lambda c: c <> '{PARTITION}') FROM {source}"
        )


def run_query(connection: duckdb.DuckDBPyConnection, query: str, limits: QueryLimits) -> pa.Table:
    """The result of a query that was checked, in a read-only transaction and within the limits."""
    with interrupted_after(limits.seconds, connection) as is_late:
        try:
            with _errors_told():
                connection.execute("BEGIN TRANSACTION READ ONLY")
                return _within(connection.sql(query).to_arrow_reader(BATCH_ROWS), limits)
        except duckdb.InterruptException as error:
            if is_late.is_set():
                raise QueryTooSlow(f"the query took longer than {limits.seconds:g} s") from error
            raise  # the store is being closed


@contextmanager
def _errors_told() -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:  # Arrow's: as rows are fetched
        known = as_duckdb_error(error)
        if isinstance(known, duckdb.InterruptException):
            raise known from error
        if is_damage(known):
            raise known from error
        if isinstance(known, duckdb.OutOfMemoryException):
            raise QueryTooLarge(f"the query needs more memory than it may have: {error}") from error
        raise QueryInvalid(str(error)) from error


def _within(batches: pa.RecordBatchReader, limits: QueryLimits) -> pa.Table:
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rows += batch.num_rows
        size += batch.nbytes
        if rows > limits.rows:
            raise QueryTooLarge(f"the result has more than {limits.rows} rows; add a LIMIT")
        if size > limits.megabytes * 1024 * 1024:
            raise QueryTooLarge(
                f"the result is larger than {limits.megabytes} MiB; add a LIMIT, or name the"
                " columns that you need"
            )
        kept.append(batch)
    return pa.Table.from_batches(kept, batches.schema)


MATCH_BM25 = """
CREATE OR REPLACE MACRO main.match_bm25(in_scope, query) AS TABLE
WITH asked AS (SELECT DISTINCT unnest(bm25_terms(query)) AS term),
hits AS (
    SELECT p.term, p.memory_id, p.tf, d.length,
        count(*) OVER (PARTITION BY p.term) AS df
    FROM internal.fts_postings p JOIN asked USING (term)
    JOIN internal.fts_docs d USING (memory_id)
    WHERE p.scope = in_scope
), stats AS (
    SELECT count(*) AS documents, avg(length) AS average FROM internal.fts_docs
    WHERE scope = in_scope
)
SELECT h.memory_id,
    sum(ln(1 + (s.documents - h.df + 0.5) / (h.df + 0.5)) * h.tf * 2.2
        / (h.tf + 1.2 * (0.25 + 0.75 * h.length / s.average))) AS score,
    any_value(m.content) AS content
FROM hits h CROSS JOIN stats s JOIN internal.memory_rows m USING (memory_id)
GROUP BY h.memory_id ORDER BY score DESC, h.memory_id
"""


def install_terms(connection: duckdb.DuckDBPyConnection, language: str) -> None:
    """What `match_bm25(scope, query)` needs: memories by BM25 (k1 1.2, b 0.75, statistics of the
    scope). The terms come from the same analyzer as the index, as a function of the open database.
    """

    def bm25_terms(query: str) -> list[str]:
        return query_tokens(query, language)

    connection.create_function(
        "bm25_terms", bm25_terms, ["VARCHAR"], "VARCHAR[]", side_effects=False
    )
