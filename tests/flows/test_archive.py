"""Archived states in files: read with the others, erased like them, the same memory as before."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import duckdb
import pytest

from palimpsest.ops.lifecycle import archive as moving
from palimpsest.ops.lifecycle.archive import Moved, move_states
from palimpsest.ops.maintenance.erasing import execute_in
from palimpsest.schemas.commands import ForgetCommand, ModifyCommand
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.rows.memories import ArchiveRow
from palimpsest.stores.database import archive
from palimpsest.stores.database.snapshot import copy_shard, gather_store, join_copies, restore_shard
from palimpsest.stores.database.state_hash import state_hash
from palimpsest.stores.database.tables import select
from palimpsest.stores.lock import StoreLock
from palimpsest.stores.shard import Shard, StoreError
from palimpsest.streams.store_port import Progress, Put
from tests.erased_bytes import where
from tests.fault.driver import processes
from tests.flows.program import Program
from tests.harness import FULL, Pipeline, pipeline_settings

STATES = "SELECT memory_id, version, content, reason FROM archived_states ORDER BY ALL"
SECRET = "The spare key lies under flowerpot number"


def opened(folder: Path) -> Pipeline:
    return Pipeline(folder, pipeline_settings(FULL))


def remember(pipeline: Pipeline, scope: str, changes: int, text: str = SECRET) -> str:
    """A memory that was modified so often, each time in a command of its own."""
    pipeline.say(f"My cat is called {scope.title()}.", scope=scope)
    pipeline.run()
    query = "SELECT memory_id FROM memory_rows WHERE scope = ? AND type <> 'episodic' LIMIT 1"
    [memory_id] = pipeline.values(query, scope)
    for number in range(changes):
        change = ModifyCommand.model_validate(
            {
                "patches": [{"memory_id": memory_id, "content": f"{text} {number} of {scope}"}],
                "reason": "moved",
            }
        )
        pipeline.command(change, first=100 + number, scope=scope)
        pipeline.run()
    return str(memory_id)


def move(pipeline: Pipeline, days: float = -999.0) -> Moved:
    """What is older than so many days; by default everything."""
    pipeline.shard.lock, pipeline.shard.archiving = StoreLock(), asyncio.Lock()
    return asyncio.run(move_states(pipeline.shard, pipeline.clock() - timedelta(days=days)))


def files(pipeline: Pipeline) -> list[Path]:
    return sorted((pipeline.shard.folder / archive.FOLDER).glob("*"))


@pytest.fixture(scope="module")
def remembered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("remembered")
    with opened(folder) as pipeline:
        remember(pipeline, "ana", 4)
        pipeline.clock.advance(days=40)
        remember(pipeline, "ben", 3)
    return folder


@pytest.fixture
def pipeline(remembered: Path, tmp_path: Path) -> Iterator[Pipeline]:
    folder = shutil.copytree(remembered, tmp_path / "folder")
    with opened(folder) as found:
        found.clock.advance(days=40)
        yield found


def test_moved_states_count_as_before(pipeline: Pipeline) -> None:
    states, state = pipeline.rows(STATES), pipeline.state_by_table()
    shown = pipeline.rows("FROM main.memory_archive ORDER BY ALL")
    assert len(states) == 7
    assert move(pipeline, 30).states == 4  # Ana's: Ben's are new
    assert pipeline.values("SELECT count(*) FROM memory_archive") == [3]
    for _ in range(2):
        assert pipeline.rows(STATES) == states
        assert pipeline.state_by_table() == state
        assert pipeline.rows("FROM main.memory_archive ORDER BY ALL") == shown
        pipeline.reopen()
    assert move(pipeline).states == 3
    assert move(pipeline) == Moved()
    assert pipeline.rows(STATES) == states
    assert pipeline.state_by_table() == state


def test_a_repeated_state_counts_once(pipeline: Pipeline) -> None:
    move(pipeline)
    states = pipeline.rows(STATES)
    with pipeline.shard.reading() as reader:
        rows = select(reader, ArchiveRow, "true", [])
    unit = pipeline.shard.unit()
    unit.stage(Put(row) for row in rows)
    unit.commit(Progress("apply-writes", {}, (), (), -1))
    assert pipeline.rows(STATES) == states


def test_small_files_are_merged(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    states = pipeline.rows(STATES)
    monkeypatch.setattr(archive, "_OLDEST", archive._OLDEST.replace("20000", "2"))
    moved = move(pipeline)
    assert (moved.states, moved.files, moved.merged) == (7, 4, 4)
    assert pipeline.rows(STATES) == states
    assert len(files(pipeline)) == 5  # those that were merged may still be read
    pipeline.reopen()
    assert len(files(pipeline)) == 1
    assert pipeline.rows(STATES) == states


def test_an_erasure_leaves_no_byte_in_files(pipeline: Pipeline) -> None:
    [memory_id] = pipeline.values(
        "SELECT DISTINCT memory_id FROM archived_states WHERE scope = 'ana'"
    )
    move(pipeline)
    others = [row for row in pipeline.rows(STATES) if row["memory_id"] != memory_id]
    secret = f"{SECRET} 1 of ana"
    plain = duckdb.connect()
    read = "SELECT content FROM read_parquet(?)"
    held = [c for (c,) in plain.execute(read, [str(files(pipeline)[0])]).fetchall()]
    assert secret in held
    forget = ForgetCommand(memory_ids=(memory_id,), reason="gone", hard=True, cascade=True)
    pipeline.command(forget, first=900)
    pipeline.run()
    execute_in(pipeline.log, 0, pipeline.shard)
    assert pipeline.rows(STATES) == others
    for path in files(pipeline):
        assert not [c for (c,) in plain.execute(read, [str(path)]).fetchall() if "ana" in c]
    assert where(pipeline.folder, secret) == []
    pipeline.reopen()
    assert pipeline.rows(STATES) == others


def test_an_earlier_text_of_a_memory_that_stays_leaves_the_files(tmp_path: Path) -> None:
    """With the turn that said it; the other states of the memory stay."""
    homes = ("I live in Oslo.", "I live in Bergen now.", "I live in Lisbon now.")
    with opened(tmp_path) as pipeline:
        for number, text in enumerate(homes, 1):
            pipeline.say(text, first=number, speaker="Ana")
            pipeline.run()
        move(pipeline)
        turn = turn_memory_id("ana", "t1")
        forget = ForgetCommand(memory_ids=(turn,), reason="gone", hard=True, cascade=True)
        pipeline.command(forget, first=900)
        pipeline.run()
        execute_in(pipeline.log, 0, pipeline.shard)
        left = pipeline.rows(STATES)
        assert [row["version"] for row in left] == [1, 2]
        assert "Oslo" not in left[0]["content"]
        assert left[1]["content"] == "Ana lives in Bergen."
        assert where(tmp_path, "Oslo") == []
        move(pipeline)
        assert pipeline.rows(STATES) == left


def test_dropped_memories_leave_the_files_with_the_next_run(pipeline: Pipeline) -> None:
    """As the retention sweep drops them; a state of one is imported before the next run."""
    move(pipeline)
    with pipeline.shard.reading() as reader:
        [first, *_] = select(reader, ArchiveRow, "scope = 'ana' ORDER BY version", [])
    others = pipeline.rows(STATES.replace("ORDER", "WHERE scope <> 'ana' ORDER"))
    with pipeline.shard.writing() as connection:
        archive.drop_states(connection, "ana", [first.memory_id])
    assert pipeline.rows(STATES) == others
    unit = pipeline.shard.unit()
    unit.stage([Put(replace(first, content="as imported"))])
    unit.commit(Progress("apply-writes", {}, (), (), -1))
    states = pipeline.rows(STATES)
    assert len(states) == len(others) + 1
    assert move(pipeline) == Moved(states=1, files=1, dropped=1)
    assert pipeline.rows(STATES) == states
    pipeline.reopen()
    with duckdb.connect() as plain:
        found = plain.execute(
            "SELECT content FROM read_parquet(?)", [[str(path) for path in files(pipeline)]]
        ).fetchall()
    assert sorted(found) == sorted((row["content"],) for row in states)


def test_an_erasure_during_a_move_is_not_undone(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the writing of the file and its naming."""
    real = moving._named
    calls = []

    async def named(
        shard: Shard, step: Callable[..., bool], written: list[archive.ArchiveFile]
    ) -> bool:
        if not calls:
            with shard.writing() as connection:
                [(one,)] = connection.execute(
                    "SELECT memory_id FROM memory_archive WHERE scope = 'ana' LIMIT 1"
                ).fetchall()
                archive.drop_states(connection, "ana", [one])
        calls.append(await real(shard, step, written))
        return calls[-1]

    monkeypatch.setattr(moving, "_named", named)
    assert move(pipeline).states == 3
    assert calls == [False, True]
    assert {row["content"][-3:] for row in pipeline.rows(STATES)} & {"ana"} == set()
    assert len(files(pipeline)) == 1


def test_a_snapshot_holds_them_and_a_restored_store_too(pipeline: Pipeline, tmp_path: Path) -> None:
    move(pipeline, 30)
    states, state = pipeline.rows(STATES), pipeline.state()
    copy, snapshot = tmp_path / "0.duckdb", tmp_path / "whole.duckdb"
    copy_shard(pipeline.shard, 0, copy)
    join_copies({0: copy}, snapshot, 1, pipeline.clock())
    with duckdb.connect(str(snapshot), read_only=True) as plain:
        assert plain.execute("SELECT count(*) FROM memory_archive").fetchall() == [(7,)]
    restored = tmp_path / "restored"
    (restored / "log").mkdir(parents=True)
    (restored / "shard").mkdir()
    restore_shard(snapshot, 0, restored / "shard" / "memory.duckdb")
    with opened(restored) as other:
        assert other.rows(STATES) == states
        assert other.state() == state
        assert move(other).states == 7
        assert other.state() == state
    gathered = tmp_path / "gathered" / "memory.duckdb"
    gathered.parent.mkdir()
    source = pipeline.shard.folder / "memory.duckdb"
    pipeline.close()
    gather_store(gathered, [source], ["ana"])
    with duckdb.connect(str(gathered)) as made:
        assert made.execute("SELECT count(*) FROM internal.memory_archive").fetchall() == [(4,)]


def test_a_store_in_another_folder_reads_its_own_files(pipeline: Pipeline, tmp_path: Path) -> None:
    move(pipeline)
    states, state = pipeline.rows(STATES), pipeline.state()
    pipeline.close()
    moved = pipeline.folder.rename(tmp_path / "it's, elsewhere")
    with opened(moved) as found:
        assert found.rows(STATES) == states
        assert found.state() == state
    with opened(moved) as found:
        [path] = files(found)
    path.rename(tmp_path / path.name)
    with pytest.raises(StoreError, match=path.name):
        opened(moved)


def test_a_rewritten_file_keeps_its_archive(pipeline: Pipeline) -> None:
    move(pipeline)
    states = pipeline.rows(STATES)
    pipeline.shard.rewrite()
    assert pipeline.rows(STATES) == states
    with pipeline.shard.reading() as reader:
        for path in ("/etc/hostname", str(pipeline.folder / "log" / "log.sqlite")):
            with pytest.raises(duckdb.PermissionException):
                reader.execute(f"SELECT * FROM read_text('{path}')")


def test_sql_reads_both(tmp_path: Path) -> None:
    """By the processes that have no other file."""
    program = Program(tmp_path, PALIMPSEST_PIPELINE__ALLOW_UPDATE_DELETE="true")
    said = ("My sister Ana works at Acme.", "My sister Ana works at Globex now.")
    program.ok("ingest", program.turns(*said), "--scope", "ana")
    program.ok("run", "--once")
    query = (
        "SELECT memory_id, version, content, reason, archived_at FROM memory_archive ORDER BY ALL"
    )
    states = program.json("sql", query)
    assert states
    told = program.json("archive", "--after-days", "0", "--dry-run")
    assert (told["due"], told["moved"], told["in_files"]) == (len(states), 0, 0)
    told = program.json("archive", "--after-days", "0")
    assert (told["moved"], told["in_tables"], told["in_files"]) == (len(states), 0, len(states))
    assert program.json("sql", query) == states
    assert program.json("explain", states[0]["memory_id"])["before"]
    with program.worker():
        assert program.json("sql", query) == states
        program.ok("snapshot", "beside.duckdb")
    with duckdb.connect(str(tmp_path / "beside.duckdb"), read_only=True) as plain:
        [(count,)] = plain.execute("SELECT count(*) FROM memory_archive").fetchall()
        assert count == len(states)


# --- kill -9 --------------------------------------------------------------------------------------

BOUNDARIES = ("copied", "renamed", "named", "committed")
STEPS = {"move": "take", "merge": "take_rewritten", "purge": "take_rewritten"}
"""What a run does, and the function that names the files of it."""


def prepared(pipeline: Pipeline, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves to the next run this step alone, or as the first one."""
    if step == "move":
        return
    with monkeypatch.context() as patched:
        if step == "merge":
            patched.setattr(archive, "_OLDEST", archive._OLDEST.replace("20000", "2"))
            patched.setattr(archive, "MERGED_FILES", 99)
        move(pipeline)
    if step == "purge":
        [one] = pipeline.values("SELECT memory_id FROM archived_states WHERE scope = 'ana' LIMIT 1")
        with pipeline.shard.writing() as connection:
            archive.drop_states(connection, "ana", [one])


def run_and_die(folder: Path, step: str, at: str, told: Connection) -> None:
    def die() -> None:
        told.send_bytes(at.encode())
        os.kill(os.getpid(), signal.SIGKILL)

    real_synced, real_committed = archive.synced, moving._committed
    real_take = getattr(moving, STEPS[step])

    def synced(path: Path) -> None:
        if at == "copied" or (at == "renamed" and path.is_dir()):
            die()
        real_synced(path)

    def take(*given: object, **named: object) -> bool:
        done = real_take(*given, **named)
        if at == "named":
            die()
        return bool(done)

    def committed(shard: Shard, call: Callable[..., bool]) -> bool:
        done = real_committed(shard, call)
        if at == "committed":
            die()
        return done

    archive.synced, moving._committed = synced, committed
    setattr(moving, STEPS[step], take)
    with opened(folder) as pipeline:
        pipeline.clock.advance(days=40)
        move(pipeline)
    told.send_bytes(b"")


@pytest.mark.parametrize("at", BOUNDARIES)
@pytest.mark.parametrize("step", STEPS)
def test_a_killed_run_leaves_every_state_once(
    pipeline: Pipeline, step: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(pipeline, step, monkeypatch)
    before = len(files(pipeline))
    states, state = pipeline.rows(STATES), pipeline.state()
    pipeline.close()
    context = processes()
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=run_and_die, args=(pipeline.folder, step, at, there))
    process.start()
    there.close()
    assert here.recv_bytes() == at.encode()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with opened(pipeline.folder) as found:
        assert found.rows(STATES) == states
        assert found.state() == state
        assert len(files(found)) == (1 if at == "committed" else before)
        move(found)
        assert found.rows(STATES) == states
        assert found.state() == state
        with found.shard.reading() as reader:
            assert state_hash(reader) == state
            [named] = archive.files_of(reader)
        with duckdb.connect() as plain:
            query = "SELECT memory_id, version FROM read_parquet(?)"
            path = str(archive.path_of(found.shard.folder, named))
            held = plain.execute(query, [path]).fetchall()
        assert sorted(held) == [(row["memory_id"], row["version"]) for row in states]
