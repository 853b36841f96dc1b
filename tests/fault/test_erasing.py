"""The part of an erasure that lies in files, stopped at every step: the next start ends it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.maintenance import erasing
from palimpsest.schemas.commands import ForgetCommand
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.rows.row_types import ROW_TYPES
from palimpsest.schemas.topics import ALL_TOPICS
from palimpsest.stores import shard as shards
from palimpsest.stores.database import snapshot
from palimpsest.stores.database.membership import DEDUP_KEYS, SOURCE_IDS, joined, keys_of
from palimpsest.stores.index.lance import VectorTable
from palimpsest.stores.index.loading import load_index
from palimpsest.streams.logs.embedded import EmbeddedLog
from tests.erased_bytes import where
from tests.fault.driver import processes
from tests.harness import FULL, Crash, Pipeline, differing, pipeline_settings
from tests.resident_index import described

SECRET = "Ana keeps the spare key under the third flowerpot"
OTHER = "Ben works at a bakery in Ghent"

STEPS: dict[str, tuple[Any, str]] = {
    "redact": (EmbeddedLog, "redact"),
    "null values": (EmbeddedLog, "append"),
    "erase": (EmbeddedLog, "erase"),
    "log": (EmbeddedLog, "forget_bytes"),
    "texts": (erasing, "finish_log"),
    "copy": (snapshot, "fill"),
    "swap": (snapshot.os, "replace"),
    "rewrite": (shards, "write_again"),
    "vectors": (VectorTable, "remove"),
    "end": (erasing, "finish_files"),
}


@contextmanager
def told(step: str, before: Callable[[], None], after: Callable[[], None]) -> Iterator[None]:
    """Calls these around the step."""
    owner, name = STEPS[step]
    real = getattr(owner, name)

    def call(*given: Any, **named: Any) -> Any:
        before()
        result = real(*given, **named)
        after()
        return result

    setattr(owner, name, call)
    try:
        yield
    finally:
        setattr(owner, name, real)


def nothing() -> None:
    pass


def crash() -> None:
    raise Crash


def opened(folder: Path) -> Pipeline:
    """With the vectors in use, as where something was recalled."""
    pipeline = Pipeline(folder, pipeline_settings(FULL))
    pipeline.shard.vector_table()
    return pipeline


@pytest.fixture(scope="module")
def erased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text erased from the tables, and from no file yet."""
    folder = tmp_path_factory.mktemp("erased")
    with opened(folder) as pipeline:
        pipeline.say(SECRET, OTHER)
        pipeline.run()
        pipeline.shard.vector_table().sync()
        gone = turn_memory_id("ana", "t1")
        pipeline.command(
            ForgetCommand(memory_ids=(gone,), reason="gone", hard=True, cascade=True), first=9
        )
        pipeline.run()
        assert pipeline.shard.has_erasures
    assert where(folder, SECRET)
    return folder


@pytest.fixture
def folder(erased: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(erased, tmp_path / "folder")


def execute(pipeline: Pipeline) -> None:
    erasing.execute_in(pipeline.log, 0, pipeline.shard)


@dataclass(frozen=True)
class Whole:
    state: dict[str, str]


@pytest.fixture(scope="module")
def whole(erased: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = shutil.copytree(erased, tmp_path_factory.mktemp("whole") / "folder")
    with opened(folder) as pipeline:
        execute(pipeline)
        assert where(folder, SECRET) == []
        return Whole(pipeline.state_by_table())


def assert_ends_as(whole: Whole, folder: Path, pipeline: Pipeline) -> None:
    assert pipeline.shard.has_erasures
    execute(pipeline)
    assert not pipeline.shard.has_erasures
    assert where(folder, SECRET) == []
    assert [path for path in folder.rglob("*[.~]new*") if path.is_file()] == []
    assert differing(pipeline.state_by_table(), whole.state) == []
    assert pipeline.balance().holds
    pipeline.reopen()
    assert not pipeline.shard.has_erasures
    assert where(folder, SECRET) == []


# After a step is before the next one.
@pytest.mark.parametrize(
    ("step", "when"), [*((step, "before") for step in STEPS), ("swap", "after"), ("end", "after")]
)
def test_a_stop_at_a_step_changes_nothing(step: str, when: str, folder: Path, whole: Whole) -> None:
    with opened(folder) as pipeline:
        crashes = (crash, nothing) if when == "before" else (nothing, crash)
        with told(step, *crashes), pytest.raises(Crash):
            execute(pipeline)
        if (step, when) == ("end", "after"):
            assert not pipeline.reopen().shard.has_erasures
            assert where(folder, SECRET) == []
        else:
            assert_ends_as(whole, folder, pipeline.reopen())


def run(folder: Path, step: str, after: bool, line: Connection) -> None:
    """Stop at the step, and stay there."""

    def stay() -> None:
        line.send_bytes(b"there")
        signal.pause()

    around = (nothing, stay) if after else (stay, nothing)
    with opened(folder) as pipeline, told(step, *around):
        execute(pipeline)


@pytest.mark.parametrize(
    ("step", "after"),
    [("redact", True), ("texts", False), ("swap", False), ("swap", True), ("end", True)],
)
def test_killed_at_a_step(step: str, after: bool, folder: Path, whole: Whole) -> None:
    context = processes()
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(folder, step, after, there))
    process.start()
    there.close()
    assert here.recv_bytes() == b"there"
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with opened(folder) as pipeline:
        if (step, after) != ("end", True):
            assert_ends_as(whole, folder, pipeline)
        assert where(folder, SECRET) == []


def test_what_the_graph_forgets_later_leaves_the_file_too(tmp_path: Path) -> None:
    """The stages are stopped for the files as soon as the tables have lost the texts: the graph may
    come to its part only afterwards."""
    with Pipeline(tmp_path, pipeline_settings(FULL)) as pipeline:
        pipeline.say("I am allergic to zebrafish", OTHER)
        pipeline.run()
        assert where(tmp_path, "zebrafish", "allergic_to")
        gone = turn_memory_id("ana", "t1")
        forget = ForgetCommand(memory_ids=(gone,), reason="gone", hard=True, cascade=True)
        pipeline.command(forget, first=9)
        pipeline.run("normalize", "apply-writes")
        execute(pipeline)
        pipeline.run()
        assert pipeline.shard.has_erasures
        execute(pipeline)
        assert where(tmp_path, "zebrafish", "allergic_to") == []
        pipeline.reopen()
        assert not pipeline.shard.has_erasures


# --- beside the stages ------------------------------------------------------------------------


def beside(pipeline: Pipeline) -> tuple[erasing.FileErasing, Callable[[], Any], list[str]]:
    """The erasing of a running program, one round of its background, and the pauses it asked
    for."""
    pauses: list[str] = []
    files = erasing.FileErasing(pipeline.log, {0: pipeline.shard})
    task = files.background_task(lambda: pauses.append("paused"))
    return files, lambda: asyncio.run(task.round()), pauses


def with_only_files_left(pipeline: Pipeline) -> Callable[[], Any]:
    """After the pause; returns one round of the background."""
    files, round_of, _ = beside(pipeline)
    round_of()
    asyncio.run(files.execute(files=False))
    return round_of


def test_the_background_ends_as_the_stages_paused_do(folder: Path, whole: Whole) -> None:
    with opened(folder) as pipeline:
        files, round_of, pauses = beside(pipeline)
        round_of()
        assert pauses == ["paused"]
        asyncio.run(files.execute(files=False))
        assert pipeline.shard.has_erasures
        round_of()
        assert pauses == ["paused"]
        assert not pipeline.shard.has_erasures
        assert where(folder, SECRET) == []
        assert differing(pipeline.state_by_table(), whole.state) == []


def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Topics and first offsets of what is looked through from now on."""
    read: list[tuple[str, int]] = []
    values = EmbeddedLog.values

    def noted(log: EmbeddedLog, topic: str, partition: int, first: int, end: int) -> Any:
        for block in values(log, topic, partition, first, end):
            read.append((topic, block[0][0]))
            yield block

    monkeypatch.setattr(EmbeddedLog, "values", noted)
    return read


def test_what_comes_while_the_log_is_read_is_redacted_in_the_pause(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was there before is not read again."""
    with opened(folder) as pipeline:
        files, round_of, _ = beside(pipeline)
        ends = {each.name: pipeline.log.end_offset(each.name, 0) for each in ALL_TOPICS}
        round_of()
        pipeline.say(SECRET)  # as what a stage still held
        read = reads(monkeypatch)
        asyncio.run(files.execute(files=False))
        assert read
        assert [each for each in read if each[1] < ends[each[0]]] == []
        round_of()
        assert where(folder, SECRET) == []


def test_the_log_is_read_once_however_often_the_task_is_woken_before_the_pause(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch wakes it while the stages end theirs, which would wait for the reading."""
    with opened(folder) as pipeline:
        _, round_of, pauses = beside(pipeline)
        round_of()
        read = reads(monkeypatch)
        round_of()
        assert pauses == ["paused", "paused"]
        assert read == []


def test_the_pause_does_not_wait_for_an_erasure_that_came_after_the_log_was_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder) as pipeline:
        files, round_of, pauses = beside(pipeline)
        ends = {each.name: pipeline.log.end_offset(each.name, 0) for each in ALL_TOPICS}
        round_of()
        gone = turn_memory_id("ana", "t2")
        later = ForgetCommand(memory_ids=(gone,), reason="gone", hard=True, cascade=True)
        pipeline.command(later, first=20)
        pipeline.run()
        with monkeypatch.context() as patched:
            read = reads(patched)
            asyncio.run(files.execute(files=False))
            assert read
            assert [each for each in read if each[1] < ends[each[0]]] == []
        assert where(folder, OTHER)
        round_of()
        asyncio.run(files.execute(files=False))
        round_of()
        assert pauses == ["paused", "paused"]
        assert not pipeline.shard.has_erasures
        assert where(folder, SECRET, OTHER) == []


def test_killed_after_the_log_was_read(folder: Path, whole: Whole) -> None:
    with opened(folder) as pipeline:
        _, round_of, _ = beside(pipeline)
        round_of()
        assert_ends_as(whole, folder, pipeline.reopen())


STORED_MEANWHILE = (
    "UPDATE memory_rows SET importance = 0.123",
    "UPDATE memory_rows SET tags = ['changed'], dedup_key = dedup_key || ' too'",
    "DELETE FROM seen_messages WHERE stage = 'extract'",
    "INSERT INTO seen_messages BY NAME SELECT * FROM seen_messages",  # all rows twice
    "DELETE FROM fts_postings",
    "INSERT INTO embeddings BY NAME SELECT * REPLACE ('other' AS embedding_key) FROM embeddings"
    " LIMIT 1",
)


def test_what_is_stored_while_the_file_is_written_again_is_not_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder) as pipeline:
        round_of = with_only_files_left(pipeline)
        shard = pipeline.shard
        tables = [name for (name,) in shard.fetch(snapshot.TABLES, ["internal"])]
        stored: list[dict[str, list[Any]]] = []

        def rows() -> dict[str, list[Any]]:
            return {
                name: sorted(map(repr, pipeline.shard.fetch(f"FROM internal.{name}")))
                for name in tables
            }

        real = shard.write_again

        def write_again(beside: bool) -> shards.AsOf:
            as_of = real(beside)
            with shard.writing() as connection:
                for statement in STORED_MEANWHILE:
                    connection.execute(statement)
            stored.append(rows())
            return as_of

        monkeypatch.setattr(shard, "write_again", write_again)
        round_of()
        assert not shard.has_erasures
        [before] = stored
        after = rows()
        assert [name for name in tables if before[name] != after[name]] == ["erasures"]
        assert where(folder, SECRET) == []
        pipeline.reopen()
        assert rows() == after


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["sync", "write_again"])
def test_a_stop_while_vectors_are_written_again_changes_nothing(
    step: str, when: str, folder: Path, whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder) as pipeline:
        round_of = with_only_files_left(pipeline)
        table = pipeline.shard.vector_table()
        table.sync()
        real = getattr(VectorTable, step)

        def stop(written: VectorTable) -> Any:
            if when == "after":
                real(written)
            raise Crash

        monkeypatch.setattr(VectorTable, step, stop)
        with pytest.raises(Crash):
            round_of()
        monkeypatch.undo()
        assert_ends_as(whole, folder, pipeline.reopen())


def test_recall_goes_on_with_what_it_has_read(tmp_path: Path) -> None:
    """An erase does not let the scope be loaded again, nor its vectors be written while someone
    waits: in a large scope recall would wait for seconds each time."""
    texts = ("Ana knows Ben", SECRET, OTHER, "Ben is allergic to zebrafish")
    with Pipeline(tmp_path, pipeline_settings(FULL)) as pipeline:
        shard = pipeline.shard
        pipeline.say(*texts)
        pipeline.run()
        shard.vector_table().sync()
        index = shard.indexes.get("ana")
        before = described(index)
        gone = [turn_memory_id("ana", turn) for turn in ("t2", "t4")]
        forget = ForgetCommand(memory_ids=tuple(gone), reason="gone", hard=True, cascade=True)
        pipeline.command(forget, first=9)
        pipeline.run()
        with_only_files_left(pipeline)()
        assert not shard.has_erasures
        assert shard.indexes.resident("ana") is index
        assert shard.vector_table().is_open
        with shard.reading() as reader:
            options = shard.options
            loaded = load_index(reader, "ana", options.embedding_model, options.dimensions)
        assert described(index) == described(loaded) != before
        for segment in index.segments:
            assert not any("flowerpot" in each or "zebrafish" in each for each in segment.contents)
            dead = ~segment.alive
            assert not segment.vectors[dead].any()
            assert not segment.codes.numbers[dead].any()
        assert shard.vector_table().vectors(gone).num_rows == 0  # type: ignore[union-attr]
        assert where(tmp_path, SECRET, "zebrafish") == []


def test_files_are_written_again_for_the_erase_whose_graph_is_late_alone(tmp_path: Path) -> None:
    with Pipeline(tmp_path, pipeline_settings(FULL)) as pipeline:
        pipeline.say("I am allergic to zebrafish", SECRET, OTHER)
        pipeline.run()
        late = pipeline.shard.late_in_graph
        for number, turn in enumerate(("t1", "t2"), 1):
            gone = (turn_memory_id("ana", turn),)
            forget = ForgetCommand(memory_ids=gone, reason="gone", hard=True, cascade=True)
            pipeline.command(forget, first=10 * number)
            pipeline.run()
            phases = pipeline.values("SELECT phase FROM erasures ORDER BY position")
            assert phases == ["done"] * (number - 1) + ["log"]
            execute(pipeline)
        assert pipeline.shard.late_in_graph == late
        assert where(tmp_path, SECRET, "zebrafish") == []


def test_no_key_of_the_tables_is_unknown_after_an_erase(folder: Path) -> None:
    """The hashes of keys stay in memory, too."""
    with opened(folder) as pipeline:
        pipeline.say("Cleo met Ben in Ghent", first=20)
        pipeline.run()
        shard, known = pipeline.shard, pipeline.shard.known
        keys = [of for of in (keys_of(each) for each in ROW_TYPES) if of is not None]
        keys += [DEDUP_KEYS, SOURCE_IDS]
        for of in keys:
            known.among(of, ["any"])
        gone = (turn_memory_id("ana", "t20"),)
        forget = ForgetCommand(memory_ids=gone, reason="gone", hard=True, cascade=True)
        pipeline.command(forget, first=30)
        pipeline.run()
        with_only_files_left(pipeline)()
        pipeline.say("Dora met Ben in Oslo", first=40)
        pipeline.run()
        for of in keys:
            table, *columns = of
            rows = shard.fetch(
                f"SELECT {', '.join(columns)} FROM {table} WHERE {columns[0]} IS NOT NULL"
            )
            stored = {joined(row) for row in rows}
            assert known.among(of, sorted(stored)) == stored, table


def test_what_the_graph_forgets_while_the_file_is_written_again_leaves_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Pipeline(tmp_path, pipeline_settings(FULL)) as pipeline:
        pipeline.say("I am allergic to zebrafish", OTHER)
        pipeline.run()
        gone = turn_memory_id("ana", "t1")
        forget = ForgetCommand(memory_ids=(gone,), reason="gone", hard=True, cascade=True)
        pipeline.command(forget, first=9)
        pipeline.run("normalize", "apply-writes")
        round_of = with_only_files_left(pipeline)
        written = [pipeline.shard.write_again()]
        pipeline.run()
        real = pipeline.shard.write_again
        monkeypatch.setattr(
            pipeline.shard, "write_again", lambda *_: written.pop() if written else real()
        )
        round_of()
        assert written == []
        assert not pipeline.shard.has_erasures
        assert where(tmp_path, "zebrafish", "allergic_to") == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_stop_while_the_file_gets_what_was_stored_meanwhile_changes_nothing(
    when: str, folder: Path, whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder) as pipeline:
        round_of = with_only_files_left(pipeline)
        write_again = pipeline.shard.write_again
        earlier = {"written": -1}
        monkeypatch.setattr(
            pipeline.shard, "write_again", lambda *given: write_again(*given)._replace(**earlier)
        )
        real = shards.bring_up_to_date

        def stop(*given: Any) -> None:
            if when == "after":
                real(*given)
            raise Crash

        monkeypatch.setattr(shards, "bring_up_to_date", stop)
        with pytest.raises(Crash):
            round_of()
        monkeypatch.undo()
        assert_ends_as(whole, folder, pipeline.reopen())


def test_an_erasure_that_comes_while_the_file_is_written_again_stays_due(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder) as pipeline:
        files, round_of, pauses = beside(pipeline)
        round_of()
        asyncio.run(files.execute(files=False))
        real = pipeline.shard.take_written

        def take_written(as_of: shards.AsOf) -> None:
            real(as_of)
            with pipeline.shard.writing() as connection:
                connection.execute(
                    "INSERT INTO erasures BY NAME SELECT * REPLACE ('later' AS erasure_id,"
                    " 9 AS position, 'log' AS phase) FROM erasures"
                )

        monkeypatch.setattr(pipeline.shard, "take_written", take_written)
        round_of()
        assert pipeline.shard.has_erasures
        monkeypatch.undo()
        round_of()
        assert pauses == ["paused", "paused"]


def test_readers_read_while_the_file_is_written_again(folder: Path) -> None:
    with opened(folder) as pipeline:
        read: list[Any] = []

        def reads() -> None:
            read.append(pipeline.values("SELECT count(*) FROM memory_rows"))

        def in_a_thread() -> None:
            reader = threading.Thread(target=reads)
            reader.start()
            reader.join()

        with told("copy", in_a_thread, nothing):
            execute(pipeline)
        assert read
