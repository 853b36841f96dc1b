"""Many wait for the results of commands, and the stores are asked once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import duckdb
import pytest

from palimpsest.ops.awaited_results import AwaitedResults
from palimpsest.ops.errors import NotOpenError
from palimpsest.ops.operations.pipeline import command_results
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.sources import Sources
from palimpsest.schemas.commands import RememberCommand
from tests.harness import Pipeline

PATIENCE_S = 30.0
TEXTS = ("Ana likes green tea", "Ben plays the oboe", "Eva moved to Porto")


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path) as made:
        yield made


def results_of(pipeline: Pipeline) -> AwaitedResults[str]:
    sources = Sources(
        pipeline.settings, pipeline.log, {0: pipeline.shard}, 1, pipeline.embedding, lambda _: None
    )
    results = AwaitedResults[str]()
    results.find = partial(asyncio.to_thread, command_results, sources)
    return results


def carried_out(pipeline: Pipeline) -> list[str]:
    """The ids of commands that have their results."""
    pipeline.command(*(RememberCommand(content=text) for text in TEXTS))
    pipeline.run()
    with pipeline.shard.reading() as reader:
        found = reader.execute("SELECT command_id FROM command_results").fetchall()
    return [str(command_id) for (command_id,) in found]


async def test_all_who_wait_are_answered_by_one_query(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = await asyncio.to_thread(carried_out, pipeline)
    asked: list[list[str]] = []
    results = results_of(pipeline)
    real = results.find

    async def counted(command_ids: Sequence[str]) -> Mapping[str, JsonObject]:
        asked.append([*command_ids])
        return await real(command_ids)

    monkeypatch.setattr(results, "find", counted)
    async with asyncio.timeout(PATIENCE_S):
        found = await asyncio.gather(*(results.of(each) for each in (*known, known[0])))
    assert [each["command_id"] for each in found] == [*known, known[0]]
    assert [sorted(each) for each in asked] == [sorted(known)]


async def test_who_gives_up_hinders_nobody(pipeline: Pipeline) -> None:
    [known, *_] = await asyncio.to_thread(carried_out, pipeline)
    results = results_of(pipeline)
    never = asyncio.create_task(results.of("no such command"))
    async with asyncio.timeout(PATIENCE_S):
        assert (await results.of(known))["error"] is None
        never.cancel()
        with pytest.raises(asyncio.CancelledError):
            await never
        assert (await results.of(known))["command_id"] == known


async def test_a_batch_wakes_who_waits(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palimpsest.ops.awaited_results.LOOK_SECONDS", 10 * PATIENCE_S)
    [known, *_] = await asyncio.to_thread(carried_out, pipeline)
    [apply_writes] = pipeline.worker("apply-writes").runners
    results = results_of(pipeline)
    waiting = asyncio.create_task(results.of(known))
    await results.note(apply_writes)
    async with asyncio.timeout(PATIENCE_S):
        assert (await waiting)["command_id"] == known


async def test_a_store_that_is_closed_is_told(pipeline: Pipeline) -> None:
    results = results_of(pipeline)
    waiting = asyncio.create_task(results.of("a command"))
    await asyncio.to_thread(pipeline.shard.close)
    with pytest.raises(NotOpenError, match="closed"):
        async with asyncio.timeout(PATIENCE_S):
            await waiting


async def test_a_store_that_cannot_be_read_leaves_nobody_waiting(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise duckdb.IOException("the disk is gone")

    results = results_of(pipeline)
    [known, *_] = await asyncio.to_thread(carried_out, pipeline)
    with monkeypatch.context() as broken:
        broken.setattr(results, "find", fails)
        async with asyncio.timeout(PATIENCE_S):
            found = await asyncio.gather(
                *(results.of(known) for _ in range(2)), return_exceptions=True
            )
    assert [type(each) for each in found] == [duckdb.IOException] * 2
    async with asyncio.timeout(PATIENCE_S):
        assert (await results.of(known))["error"] is None
