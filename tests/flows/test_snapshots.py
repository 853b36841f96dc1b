"""Snapshots: taken beside a worker, opened with plain DuckDB, restored, never half there."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from pathlib import Path

import duckdb
import pytest

from palimpsest.stores.database.state_hash import state_hash
from tests.flows.program import PATIENCE_S, SAID, Program

SCOPES = ("ana", "eve")
KILLED = """
import os, signal
from palimpsest.ops.service import snapshots
snapshots.join_copies = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Two scopes in two of three partitions."""
    program = Program(tmp_path_factory.mktemp("spread"), PALIMPSEST_LOG__PARTITIONS="3")
    for scope in SCOPES:
        said = program.turns(*SAID, name=f"{scope}.jsonl", session_id=scope)
        program.ok("ingest", said, "--scope", scope)
    program.ok("run", "--once")
    return program


def copied_log(program: Program, folder: Path) -> None:
    """As the README copies it."""
    (folder / "log").mkdir(parents=True)
    with (
        sqlite3.connect(program.data / "log" / "log.sqlite") as source,
        sqlite3.connect(folder / "log" / "log.sqlite") as target,
    ):
        source.backup(target)


def hashes(data: Path, times: bool) -> list[str]:
    found = []
    for number in range(3):
        store = data / "shards" / str(number) / "memory.duckdb"
        with duckdb.connect(str(store), read_only=True) as plain:
            plain.execute("SET search_path = 'internal,main'")
            plain.execute("SET TimeZone = 'UTC'")
            found.append(state_hash(plain, times))
    return found


def test_a_snapshot_holds_all_partitions_and_opens_with_plain_duckdb(spread: Program) -> None:
    queries = (
        "SELECT partition, memory_id, content FROM memories ORDER BY memory_id",
        "SELECT partition, turns_accepted, holds FROM pipeline_total ORDER BY partition",
        "SELECT * FROM entities ORDER BY entity_id",
        "SELECT count(*) AS n FROM entity_attributes",
        "SELECT outcome, outcome_reason FROM facts ORDER BY ALL",
    )
    with spread.worker():
        told = [spread.json("sql", query) for query in queries]
        views = {row["view"] for row in spread.json("sql", ".tables")}
        spread.ok("snapshot", "beside.duckdb")
        spread.ok("snapshot", "files")
    moved = (spread.folder / "beside.duckdb").rename(spread.folder / "other-name.duckdb")
    with duckdb.connect(str(moved), read_only=True) as plain:
        for query, rows in zip(queries, told, strict=True):
            assert len(plain.execute(query).fetchall()) == len(rows)
        assert plain.execute(queries[0]).fetchall() == [
            (row["partition"], row["memory_id"], row["content"]) for row in told[0]
        ]
        listed = plain.execute("SELECT table_name, table_schema FROM information_schema.tables")
        names = {name for name, schema in listed.fetchall() if schema == "main"}
        assert names == views
        for name in names:
            plain.execute(f"FROM {name}").fetchall()
        unsaid = plain.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE schema_name = 'main'"
            " AND NOT internal AND comment IS NULL AND column_name <> 'partition'"
        )
        assert unsaid.fetchall() == []
    with duckdb.connect() as plain:
        file = spread.folder / "files" / "memories.parquet"
        [(count,)] = plain.execute(f"SELECT count(*) FROM '{file}'").fetchall()
        assert count == len(told[0])


@pytest.mark.parametrize("name", ["back.duckdb", "back"])
def test_a_snapshot_is_restored_and_goes_on_from_the_log(
    spread: Program, tmp_path: Path, name: str
) -> None:
    program = Program(tmp_path, PALIMPSEST_LOG__PARTITIONS="3")
    shutil.copytree(spread.data, program.data)
    program.ok("snapshot", name)
    late = program.turns("I moved to Porto.", name="late.jsonl", turn_id="late", session_id="ana")
    program.ok("ingest", late, "--scope", "ana")
    restored = tmp_path / "restored"
    assert "there is no log" in program.fails("restore", name, "--data-dir", str(restored))
    copied_log(program, restored)
    program.ok("restore", name, "--data-dir", str(restored))
    calls = "SELECT count(*) AS n FROM model_calls"
    assert hashes(restored, times=True) == hashes(program.data, times=True)
    ran = program.json("run", "--once", "--data-dir", str(restored))
    assert ran["stages"]["extract"]["records"] == 1
    program.ok("run", "--once")
    assert hashes(restored, times=False) == hashes(program.data, times=False)
    assert program.json("sql", calls, "--data-dir", str(restored)) == program.json("sql", calls)
    query = ("recall", "where does Ana live?", "-s", "ana")
    there = program.json(*query, "--data-dir", str(restored))
    assert [row["id"] for row in there["results"]] == [
        row["id"] for row in program.json(*query)["results"]
    ]
    assert "there is a store" in program.fails("restore", name)
    assert sorted(path.name for path in (restored / "shards").iterdir()) == ["0", "1", "2"]


def test_a_snapshot_of_one_partition(spread: Program) -> None:
    number = spread.json("sql", "SELECT partition FROM scopes WHERE scope = 'eve'")[0]["partition"]
    spread.ok("snapshot", "one.duckdb", "--partition", str(number))
    with duckdb.connect(str(spread.folder / "one.duckdb"), read_only=True) as plain:
        assert plain.execute("SELECT partition, scope FROM scopes").fetchall() == [(number, "eve")]
    assert "there are 3" in spread.fails("snapshot", "x.duckdb", "--partition", "3", code=2)
    assert "is there already" in spread.fails("snapshot", "one.duckdb")
    assert "--format" in spread.fails("snapshot", "one.xlsx", code=2)
    assert "no folder" in spread.fails("snapshot", "nowhere/one.duckdb")


def test_only_stores_of_the_folders_log_are_restored(spread: Program, tmp_path: Path) -> None:
    spread.ok("snapshot", "snapshot.duckdb")
    own = str(spread.folder / "snapshot.duckdb")
    other = Program(tmp_path, PALIMPSEST_LOG__PARTITIONS="3")
    for scope in SCOPES:
        other.ok("ingest", other.turns(*reversed(SAID)), "--scope", scope)
    assert "it ends at" in other.fails("restore", own)
    other.ok("run", "--once")
    shutil.rmtree(other.data / "shards")
    assert "not the one" in other.fails("restore", own)
    (tmp_path / "no.duckdb").write_bytes(b"nothing of the kind")
    assert "no snapshot" in other.fails("restore", "no.duckdb")
    assert "no snapshot" in other.fails("restore", "palimpsest-data")
    with duckdb.connect(str(tmp_path / "empty.duckdb")) as plain:
        plain.execute("SELECT 1")
    assert "no snapshot" in other.fails("restore", "empty.duckdb")
    assert not (other.data / "shards").exists()
    with spread.worker():
        assert "process" in spread.fails("restore", own)


@pytest.mark.parametrize("beside", [False, True])
def test_a_snapshot_that_is_killed_leaves_nothing_that_looks_whole(
    spread: Program, tmp_path: Path, beside: bool
) -> None:
    program = Program(tmp_path, PALIMPSEST_LOG__PARTITIONS="3")
    shutil.copytree(spread.data, program.data)

    def kill_one() -> None:
        process = program.start("snapshot", "out.duckdb", changed=KILLED)
        assert process.wait(PATIENCE_S) == -signal.SIGKILL, process.communicate()
        process.communicate()
        assert [*program.folder.glob(".out.duckdb.*/*")]

    if beside:
        with program.worker():
            kill_one()
            assert not (program.folder / "out.duckdb").exists()
            program.ok("snapshot", "out.duckdb")
            assert not [*program.data.glob("copy-*")]
    else:
        kill_one()
        assert not (program.folder / "out.duckdb").exists()
        program.ok("snapshot", "out.duckdb")
    with duckdb.connect(str(program.folder / "out.duckdb"), read_only=True) as plain:
        assert len(plain.execute("FROM palimpsest_snapshot.shards").fetchall()) == 3
