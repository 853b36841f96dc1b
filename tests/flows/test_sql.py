"""`palimpsest sql`: what it shows, how it prints that, what it refuses."""

from __future__ import annotations

import re

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.flows.program import Program, one


def test_sql_in_every_format(told: Program) -> None:
    query = "SELECT type, count(*) AS n FROM memories WHERE type = 'episodic' GROUP BY type"
    assert "episodic" in told.ok("sql", query)
    assert told.json("sql", query) == [{"type": "episodic", "n": 5}]
    assert told.ok("sql", query, "--format", "csv").split() == ['"type","n"', '"episodic",5']
    told.ok("sql", query, "-o", "out.parquet")
    assert parquet.read_table(told.folder / "out.parquet").to_pylist()[0]["n"] == 5
    told.ok("sql", query, "--format", "arrow", "-o", "out.arrow")
    with pa.ipc.open_stream((told.folder / "out.arrow").read_bytes()) as stream:
        assert stream.read_all().to_pylist()[0]["n"] == 5
    assert "5" in told.ok("sql", "-", stdin=query.encode())
    balance = told.json("sql", "SELECT holds FROM pipeline_total")
    assert balance == [{"holds": True}]


def test_an_outcome_has_one_word_wherever_it_is_told(told: Program) -> None:
    counted = told.json("sql", "SELECT facts_updated AS n FROM pipeline_total")
    for query in (
        "SELECT count(*) AS n FROM facts WHERE outcome = 'updated'",
        "SELECT count(*) AS n FROM memory_history WHERE event = 'updated'",
        "SELECT count(*) AS n FROM pipeline_items WHERE state = 'updated'",
    ):
        assert told.json("sql", query) == counted == [{"n": 1}], query
    assert told.json("status")["balance"]["facts"]["updated"] == 1
    provenance = told.ok("explain", str(one(told, "coffee")["id"]))
    assert "→ updated" in provenance
    assert "modified" not in provenance


def test_the_balance_can_be_added_up(told: Program) -> None:
    summed = told.json("sql", "SELECT sum(turns_accepted)::INT AS n FROM pipeline_balance")
    assert summed == told.json("sql", "SELECT turns_accepted AS n FROM pipeline_total")


def test_views_and_their_columns_are_listed_and_explained(told: Program) -> None:
    listed = told.json("sql", ".tables")
    names = {row["view"] for row in listed}
    assert {"memories", "pipeline_balance", "pipeline_items", "scopes"} <= names
    assert not names & {"memory_rows", "outbox", "cursors"}
    assert all(row["meaning"] for row in listed)
    columns = told.json("sql", ".schema facts")
    assert {"content", "outcome"} <= {row["column"] for row in columns}
    assert all(row["meaning"] for row in columns)
    assert len(told.json("sql", ".schema")) > len(columns)


def test_rows_that_are_too_wide_are_printed_a_line_a_column_with_ids_whole(told: Program) -> None:
    memory_id = str(one(told, "coffee")["id"])
    shown = told.ok("sql", f"SELECT * FROM memories WHERE memory_id = '{memory_id}'")
    assert re.search(rf"^memory_id +{memory_id}$", shown, re.MULTILINE)
    narrow = told.ok("sql", f"SELECT memory_id, type FROM memories WHERE memory_id = '{memory_id}'")
    assert re.search(rf"^{memory_id} ", narrow, re.MULTILINE)


def test_a_plain_client_finds_the_views_and_nothing_else(told: Program) -> None:
    listed = {row["view"] for row in told.json("sql", ".tables")}
    store = told.data / "shards" / "0" / "memory.duckdb"
    with duckdb.connect(str(store), read_only=True) as plain:
        shown = {name for (name,) in plain.execute("SHOW TABLES").fetchall()}
        assert shown == listed
        [total] = plain.execute("SELECT turns_accepted, holds FROM pipeline_total").fetchall()
        assert total == (5, True)
        for name in shown:
            plain.execute(f"SELECT * FROM {name}").fetchall()
        assert "open in another program" in told.fails("status")


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM internal.memory_rows",
        "SELECT 1; SELECT 2",
        "COPY (SELECT 1) TO '/tmp/x'",
        "SELECT * FROM nowhere",
        "ATTACH 'x.duckdb'",
        "",
    ],
)
def test_sql_only_reads(told: Program, query: str) -> None:
    assert "palimpsest:" in told.fails("sql", query)
