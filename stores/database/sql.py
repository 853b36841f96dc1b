"""Read-only SQL for analysts, over everything a shard holds, also while it is written."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa

from palimpsest.stores.database.balance import install_balance
from palimpsest.stores.database.cursors import Readable, interrupted_after
from palimpsest.stores.index.analysis import query_tokens
from palimpsest.streams.store_port import FindItems

ALLOWED = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
ON_DEMAND = ("pipeline_items", "pipeline_balance", "pipeline_total")


class QueryRefused(ValueError):
    """A query that is not run; the text says why."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """`seconds` a query may take and `rows` it may return."""

    seconds: float = 30.0
    rows: int = 1_000_000


def read_only_query(
    shard: Readable,
    find_items: FindItems,
    query: str,
    limits: QueryLimits = QueryLimits(),
) -> pa.Table:
    """The result of one SELECT (or EXPLAIN, DESCRIBE, SHOW) as an Arrow table.

    Nothing can be written: the statement is checked, the transaction is read-only, and the
    connection has no access to files or the network. Raises QueryRefused for anything else, for
    SQL that DuckDB cannot run (with its message), and past the limits; StoreClosed.
    """
    with shard.reading() as reader:
        statement = checked(reader, query)
        if any(name in query.lower() for name in ON_DEMAND):
            install_balance(reader, find_items)
        reader.execute("SET search_path = 'main'")
        table = _run(reader, statement, limits.seconds)
    if table.num_rows > limits.rows:
        raise QueryRefused(
            f"the result has {table.num_rows} rows, more than {limits.rows}; add a LIMIT"
        )
    return table


def _run(reader: duckdb.DuckDBPyConnection, statement: str, seconds: float) -> pa.Table:
    with interrupted_after(seconds, reader) as is_late:
        try:
            reader.execute("BEGIN TRANSACTION READ ONLY")
            table: pa.Table = reader.sql(statement).to_arrow_table()
        except duckdb.InterruptException as error:
            if is_late.is_set():
                raise QueryRefused(f"the query took longer than {seconds:g} s") from error
            raise  # the store is being closed
        except duckdb.Error as error:
            raise QueryRefused(str(error)) from error
    return table


def checked(connection: duckdb.DuckDBPyConnection, query: str) -> str:
    """The query, when it is one statement that only reads."""
    try:
        statements = connection.extract_statements(query)
    except duckdb.Error as error:
        raise QueryRefused(str(error)) from error
    if len(statements) != 1:
        raise QueryRefused(f"one statement at a time; this has {len(statements)}")
    if statements[0].type not in ALLOWED:
        raise QueryRefused(
            f"only SELECT, EXPLAIN, DESCRIBE and SHOW are allowed here, not"
            f" {statements[0].type.name}; memory is changed by commands"
        )
    return query


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
