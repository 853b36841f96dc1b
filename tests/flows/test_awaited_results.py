"""Many wait for the results of commands, and the stores are asked once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import pytest

from palimpsest.ops.errors import NotOpenError
from palimpsest.ops.operations.awaited_results import (
    AwaitedResults,
    TurnKey,
    awaited_commands,
    awaited_turns,
    key_of,
)
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.transport.attached import Attached
from palimpsest.schemas.commands import RememberCommand
from palimpsest.streams.runtime.output import outgoing
from tests.harness import Pipeline
from tests.messages import commanded, published, topic_of, turn

PATIENCE_S = 30.0
TEXTS = ("Ana likes green tea", "Ben plays the oboe", "Eva moved to Porto")


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path) as made:
        yield made


def sources_of(pipeline: Pipeline) -> Sources:
    return Sources(
        pipeline.settings, pipeline.log, {0: pipeline.shard}, 1, pipeline.embedding, lambda _: None
    )


def results_of(pipeline: Pipeline) -> AwaitedResults[str, JsonObject]:
    return awaited_commands(sources_of(pipeline))


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


async def test_a_commit_wakes_who_waits(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palimpsest.ops.operations.awaited_results.LOOK_SECONDS", 10 * PATIENCE_S)
    message = commanded(RememberCommand(content=TEXTS[0]), 1)
    command_id = message.id
    pipeline.publish(message)
    results = results_of(pipeline)
    waiting = asyncio.create_task(results.of(command_id))
    await asyncio.to_thread(pipeline.run)
    async with asyncio.timeout(PATIENCE_S):
        assert (await waiting)["command_id"] == command_id


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


async def test_turns_are_waited_for_alone_whatever_else_is_published(pipeline: Pipeline) -> None:
    messages = [published(turn(text, number)) for number, text in enumerate(TEXTS, start=1)]
    stored, later, last = (outgoing(topic_of(each), each) for each in messages)
    positions = pipeline.log.append([stored])
    await asyncio.to_thread(pipeline.run)
    positions += pipeline.log.append([later, last])
    queries = DirectQueries(sources_of(pipeline))
    attached = Attached(queries, pipeline.log.append)
    assert await attached.storing([stored, stored], positions[:1])()
    assert not await attached.storing([stored, later], positions[:2])()
    keys = [key_of(record)[0] for record in (stored, later, stored)]
    turns = awaited_turns(queries.answer)
    assert await found_in_time(turns, keys) == keys[:1]
    assert await turns.within([], None) == {}
    assert not turns._awaited


async def found_in_time(turns: AwaitedResults[TurnKey, JsonObject], keys: list[TurnKey]) -> object:
    """The keys of what was found when the time was over, which a busy machine may need more of
    before the first look at the store has ended."""
    seconds = 0.25
    while not (found := await turns.within(keys, seconds)):
        seconds *= 2
        assert seconds < PATIENCE_S
    return [*found]
