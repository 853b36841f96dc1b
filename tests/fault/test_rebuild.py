"""Stores made anew from the log hold what the live ones hold, whatever has happened to these."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from palimpsest.ops.replay.branches import branch_settings, read_branch
from palimpsest.ops.replay.rebuild import rebuild
from palimpsest.ops.replay.requests import Rebuild, ReplayProgress, Watch
from palimpsest.schemas.topics import MEMORY_WRITES
from tests.rebuilding import live_on, opened, rebuilt, settings_of, state_of

ROUNDS = 4
STOPS = 3
"""Each after the first batch that is done."""


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a memory with many commands and several crashes behind it."""
    folder = tmp_path_factory.mktemp("past")
    assert live_on(folder, ROUNDS) >= ROUNDS - 1
    return folder


def test_a_rebuild_that_is_interrupted_and_one_that_goes_on_hold_what_is_live(past: Path) -> None:
    settings = settings_of(past)
    told: list[ReplayProgress] = []

    def batch_is_done() -> bool:
        return runs <= STOPS and any(each.unit == "records" for each in told)

    runs = 0
    while True:
        told.clear()
        runs += 1
        done = asyncio.run(rebuild(settings, Rebuild(), Watch(told.append, batch_is_done)))
        if not done.stopped:
            break
        assert not read_branch(settings, "rebuild").whole
    [partition] = done.partitions
    assert runs == STOPS + 1
    assert (partition.not_compared, partition.differing) == (None, {}), partition
    assert partition.rows > 150
    assert read_branch(settings, "rebuild").whole
    # A second one goes on from the first.
    live_on(past, 1, seed=2)
    done = rebuilt(settings)
    [partition] = done.partitions
    assert (partition.not_compared, partition.differing) == (None, {}), partition
    assert 0 < done.records < 200


@pytest.mark.parametrize("seed", [6, 28, 15, 37])
def test_what_was_erased_is_rebuilt_as_it_is(tmp_path: Path, seed: int) -> None:
    """In the first two pasts memories are erased that mention renamed entities; in the third one
    the relation of two names that a later memory mentions together; in the last one a name of a
    dead letter that another memory has."""
    live_on(tmp_path, ROUNDS, seed=seed)
    [partition] = rebuilt(settings_of(tmp_path)).partitions
    assert (partition.not_compared, partition.differing) == (None, {}), partition


def test_a_store_that_was_changed_beside_the_log_is_found_to_differ(
    past: Path, tmp_path: Path
) -> None:
    settings = settings_of(past)
    with opened(past) as pipeline, pipeline.shard.writing() as connection:
        key = "(SELECT min(memory_id) FROM memory_rows)"
        [before] = connection.execute(
            f"SELECT importance FROM memory_rows WHERE memory_id = {key}"
        ).fetchall()
        change = f"UPDATE memory_rows SET importance = ? WHERE memory_id = {key}"
        connection.execute(change, [0.123])
    try:
        done = rebuilt(settings, swap=True)
        [partition] = done.partitions
        assert partition.differing == {"memory_rows": 2}
        assert done.kept is None
    finally:
        with opened(past) as pipeline, pipeline.shard.writing() as connection:
            connection.execute(change, [*before])


def test_as_of_an_offset_it_is_what_was_there_then(tmp_path: Path) -> None:
    then: list[tuple[int, str]] = []
    for seed in range(3):
        live_on(tmp_path, 1, seed=seed, commands=0)
        with opened(tmp_path) as pipeline:
            then.append((pipeline.log.end_offset(MEMORY_WRITES.name, 0), pipeline.state()))
    settings = settings_of(tmp_path)
    for number, (offset, _) in enumerate(then):
        done = rebuilt(settings, name=f"then-{number}", until=offset)
        assert done.partitions[0].offset == offset
    states = [
        state_of(branch_settings(settings, read_branch(settings, f"then-{number}")))
        for number in range(len(then))
    ]
    assert states == [state for _, state in then]
