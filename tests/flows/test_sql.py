"""`palimpsest sql`: what it shows, how it prints that, what it refuses."""

from __future__ import annotations

import re

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet

from palimpsest.streams.logs.base import partition_for
from tests.flows.program import SAID, Program, one


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


def test_every_state_says_whose_it_is(told: Program) -> None:
    active = "SELECT memory_id, who, role FROM {} WHERE state = 'active' ORDER BY memory_id"
    shown = told.json("sql", active.format("memories_all"))
    assert shown == told.json("sql", active.format("(SELECT *, 'active' AS state FROM memories)"))
    assert {row["role"] for row in shown} == {"", "user"}
    [archived] = told.json(
        "sql",
        "SELECT old.who = new.who AS same_who, old.who <> '' AS has_who FROM memories_all old"
        " JOIN memories new USING (memory_id) WHERE state = 'archived'",
    )
    assert archived == {"same_who": True, "has_who": True}


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


def test_saved_queries_answer(told: Program) -> None:
    listed = {row["query"]: row for row in told.json("sql", ".queries")}
    answers = {name: told.json("sql", f".run {name}") for name in listed}
    [updated] = [row for row in answers["facts-by-outcome"] if row["outcome"] == "updated"]
    assert (updated["facts"], bool(updated["reason"])) == (1, True)
    [changed] = answers["changed-memories"]
    assert changed["event"] == "updated"
    assert changed["new_content"] == "Ana no longer drinks coffee every morning."
    assert changed["reason"]
    assert answers["turns-without-facts"] == []
    assert {row["stage"] for row in answers["model-calls"]} == {"extract"}
    assert all(row["p50_ms"] <= row["p95_ms"] <= row["max_ms"] for row in answers["model-calls"])
    assert answers["top-entities"][0]["mentions"] > 0
    assert answers["balance"] == told.json("sql", str(listed["balance"]["sql"]))
    assert (answers["balance"][0]["turns_accepted"], answers["balance"][0]["holds"]) == (5, True)
    assert "there are facts-by-outcome" in told.fails("sql", ".run nothing", code=2)


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Two scopes in two of three partitions, and a turn that says nothing."""
    program = Program(tmp_path_factory.mktemp("spread"), PALIMPSEST_LOG__PARTITIONS="3")
    for scope in ("ana", "eve"):
        said = program.turns(*SAID, "Hm.", name=f"{scope}.jsonl", session_id=scope)
        program.ok("ingest", said, "--scope", scope)
    program.ok("run", "--once")
    return program


def test_sql_answers_over_all_partitions_with_a_worker_and_without(spread: Program) -> None:
    own = [partition_for(scope, 3) for scope in ("ana", "eve")]
    queries = (
        "SELECT partition, scope, count(*) AS n FROM turns GROUP BY ALL ORDER BY scope",
        "SELECT memory_id, count(*) AS n FROM memories_all GROUP BY ALL HAVING n > 9",
        ".schema facts",
        ".run balance",
    )
    answers = [spread.json("sql", query) for query in queries]
    assert answers[0] == [
        {"partition": number, "scope": scope, "n": 6}
        for number, scope in zip(own, ("ana", "eve"), strict=True)
    ]
    assert answers[1] == []
    assert answers[2][0]["column"] == "partition"
    [balance] = spread.json("sql", ".run balance")
    assert (balance["turns_accepted"], balance["turns_stored"], balance["holds"]) == (12, 12, True)
    nothing = spread.json("sql", ".run turns-without-facts")
    assert {(row["scope"], row["content"]) for row in nothing} == {("ana", "Hm."), ("eve", "Hm.")}
    one = spread.json("sql", "SELECT DISTINCT scope FROM turns", "--partition", str(own[0]))
    assert one == [{"scope": "ana"}]
    assert "there are 3" in spread.fails("sql", "SELECT 1", "--partition", "3")
    found = spread.json("sql", "SELECT content FROM match_bm25('eve', 'walnuts')")
    assert "walnuts" in found[0]["content"]
    with spread.worker():
        assert [spread.json("sql", query) for query in queries] == answers
        refused = spread.fails("sql", "SELECT * FROM read_text('/etc/passwd')")
        assert "read_text is not allowed" in refused
        slow = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
        assert "longer than" in spread.fails("sql", slow, "--seconds", "0.5")
        assert "more than 3 rows" in spread.fails("sql", "FROM turns", "--rows", "3")


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
