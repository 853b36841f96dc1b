"""kill -9 in every step to another number of partitions: it goes on, and what is live stays."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

from palimpsest.ops.folder_swap import SWAP_FILE
from palimpsest.ops.opening import open_log
from palimpsest.ops.replay.repartition import (
    repartition,
)
from palimpsest.ops.replay.requests import Rebuild, ReplayProgress, Watch
from tests.fault.driver import processes
from tests.fault.dying import die_at_write
from tests.repartitioning import goes_on, partitions_of, repartitioned, settings_of, states

SCOPES = ("ana", "ben", "cleo")
TURNS = [(scope, f"{scope} likes tea number {n}") for n in range(4) for scope in SCOPES]
STEPS = (
    "copying the live stores",
    "planning the log",
    "writing conversation-turns",
    "writing memory-history",
    "audit",
    "apply-writes",
    "graph-persist",
    "comparing",
)
"""In the order in which they come: the new log, its stores. A killed process resumes behind what is
done."""
LAST_WRITES = 16
"""More than an exchange of two folders has writes to the disk that are waited for."""


def dying_at(folder: Path, phase: str) -> None:
    """Repartitions, and is killed when this step is reported."""

    def report(progress: ReplayProgress) -> None:
        if progress.phase == phase:
            os.kill(os.getpid(), signal.SIGKILL)

    request = Rebuild(name="two", shards=2, swap=True)
    asyncio.run(repartition(settings_of(folder), request, Watch(report)))


def dying_in_exchange(folder: Path, after: int) -> None:
    """Exchange, and be killed at a write to the disk."""
    die_at_write(after)
    repartitioned(settings_of(folder), 2, name="two")


def killed(target: object, *given: object) -> bool:
    process = processes().Process(target=target, args=given)  # type: ignore[arg-type]
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("past") / "data"
    goes_on(settings_of(folder), *TURNS, first=1)
    return folder


def test_killed_in_every_step(past: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(past, folder)
    settings = settings_of(folder)
    before = states(settings, SCOPES)
    for step in STEPS:
        assert killed(dying_at, folder, step), step
        assert partitions_of(settings) == 1
        assert not (folder / SWAP_FILE).exists()
    assert states(settings, SCOPES) == before
    assert not killed(dying_at, folder, "no step")
    assert partitions_of(settings) == 2
    assert states(settings, SCOPES) == before
    assert sorted(each.name for each in (folder / "branches").iterdir())[0].startswith("replaced-")
    goes_on(settings, ("ana", "Ana has a dog"))


@pytest.mark.soak
def test_killed_in_the_exchange(past: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    shutil.copytree(past, made)
    before = states(settings_of(made), SCOPES)
    assert repartitioned(settings_of(made), 2, name="two", swap=False).is_equal
    exchanged = []
    for after in range(0, LAST_WRITES, 2):
        folder = tmp_path / str(after)
        shutil.copytree(made, folder)
        was_killed = killed(dying_in_exchange, folder, after)
        decided = (folder / SWAP_FILE).exists()
        settings = settings_of(folder)
        with open_log(settings, "read") as log:
            partitions = log.partitions("memory-writes")
        assert partitions == 2 or not decided
        shards = sorted(each.name for each in (folder / "shards").iterdir())
        assert shards == [str(number) for number in range(partitions)]
        exchanged.append(partitions == 2)
        shutil.rmtree(folder) if was_killed and after not in (0, 6) else None
        if not was_killed:
            break
    assert exchanged[0] is False
    assert exchanged == sorted(exchanged)
    assert len(exchanged) > 3
    for after in (0, 6):
        assert states(settings_of(tmp_path / str(after)), SCOPES) == before
