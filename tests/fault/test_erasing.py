"""The part of an erasure that lies in files, stopped at every step: the next start ends it."""

from __future__ import annotations

import os
import shutil
import signal
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
from palimpsest.stores import shard as shards
from palimpsest.stores.database import snapshot
from palimpsest.stores.index.lance import VectorTable
from palimpsest.streams.logs.embedded import EmbeddedLog
from tests.erased_bytes import where
from tests.fault.driver import processes
from tests.harness import FULL, Crash, Pipeline, differing, pipeline_settings

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
    "rewrite": (shards, "rewrite"),
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
    erasing.carry_out_in(pipeline.log, 0, pipeline.shard)


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
    assert [path for path in folder.rglob("*.new*") if path.is_file()] == []
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
