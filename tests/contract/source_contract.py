"""What any source of records promises, as tests. An adapter's test class inherits `SourceContract`
and gives a `feed` fixture: an empty log, and sources on its partition 0."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

from palimpsest.schemas.codec import encode
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS
from palimpsest.streams.logs.base import LogSender, Record
from palimpsest.streams.models.hashing import HashingEmbeddingModel
from palimpsest.streams.rules.model import RulesLanguageModel
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.pace import Pace
from palimpsest.streams.runtime.partition_task import PartitionTask, Source, end_all
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.stage import Stage, Step, without_asks
from tests.messages import published, turn
from tests.unit.memory_ports import MemoryStore

TURNS, COMMANDS = CONVERSATION_TURNS.name, MEMORY_COMMANDS.name
NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Feed(Protocol):
    """A log with one partition a topic, and the sources that a stage may have on it."""

    sender: LogSender

    async def append(self, topic: str, *values: bytes) -> None:
        """Append; the sources that are open find it."""
        ...

    def opened(self, consumer: str, pace: Pace, turns: int = 0, commands: int = 0) -> Source:
        """A source of both topics that begins at these offsets."""
        ...


def texts(count: int, first: int = 0) -> list[bytes]:
    return [str(number).encode() for number in range(first, first + count)]


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [record.value for record in records]


async def taken(source: Source) -> Sequence[Record]:
    """The next batch, waited for."""
    async with asyncio.timeout(60):
        while not (records := await source.take()):
            await source.wait()
    return records


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


class SourceContract:
    async def test_all_is_given_once_in_order_by_the_pace(self, feed: Feed) -> None:
        source = feed.opened("normalize", Pace(1.0, 4, 4))
        await feed.append(TURNS, *texts(10))
        found = []
        while len(found) < 10:
            records = await taken(source)
            assert len(records) <= 4
            found += values(records)
            source.acknowledge(records)
        assert found == texts(10)
        assert await source.take() == []
        assert source.next_offsets[TURNS] == 10

    async def test_it_begins_where_the_stage_is(self, feed: Feed) -> None:
        await feed.append(TURNS, *texts(6))
        source = feed.opened("normalize", Pace(1.0, 4, 4), turns=3)
        assert source.next_offsets == {TURNS: 3, COMMANDS: 0}
        assert values(await taken(source)) == texts(3, 3)

    async def test_who_waits_is_woken_by_what_comes(self, feed: Feed) -> None:
        source = feed.opened("normalize", Pace(1.0, 4, 4))
        assert await source.take() == []
        waiting = asyncio.create_task(taken(source))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await feed.append(TURNS, b"0")
        assert values(await waiting) == [b"0"]

    async def test_each_topic_of_a_batch_comes_in_one_piece(self, feed: Feed) -> None:
        await feed.append(TURNS, *texts(3))
        await feed.append(COMMANDS, *texts(2, 10))
        source = feed.opened("normalize", Pace(1.0, 4, 4))
        found: list[Record] = []
        while len(found) < 5:
            records = await taken(source)
            found += records
            source.acknowledge(records)
        assert values(found) == [*texts(3), *texts(2, 10)]
        assert source.next_offsets == {TURNS: 3, COMMANDS: 2}

    async def test_what_was_not_acknowledged_comes_again(self, feed: Feed) -> None:
        await feed.append(TURNS, *texts(6))
        source = feed.opened("normalize", Pace(1.0, 2, 2))
        source.acknowledge(await taken(source))
        lost = await taken(source)
        assert source.next_offsets[TURNS] == 2
        source.close()
        again = feed.opened("normalize", Pace(1.0, 2, 2), turns=source.next_offsets[TURNS])
        assert values(await taken(again)) == values(lost) == texts(2, 2)

    async def test_what_is_left_counts_the_batch_under_way(self, feed: Feed) -> None:
        await feed.append(TURNS, *texts(5))
        source = feed.opened("normalize", Pace(1.0, 2, 2))
        assert source.left() == 5
        records = await taken(source)
        assert source.left() == 5
        source.acknowledge(records)
        assert source.left() == 3

    async def test_closed_it_gives_nothing_and_keeps_nobody_waiting(self, feed: Feed) -> None:
        source = feed.opened("normalize", Pace(1.0, 4, 4))
        waiting = asyncio.create_task(source.wait())
        await asyncio.sleep(0.01)
        source.close()
        async with asyncio.timeout(60):
            await waiting
            await source.wait()
        await feed.append(TURNS, b"0")
        assert await source.take() == []

    # --- under the one driver ----------------------------------------------------------------

    async def test_a_stage_goes_on_where_it_was_stopped(self, feed: Feed) -> None:
        store = MemoryStore()
        await feed.append(TURNS, *(encode(published(turn("text", n))) for n in range(40)))
        for stop_at in (7, 23, 40):
            driven = Driven(feed, store)
            await until(lambda at=stop_at: len(committed(store)) >= at)
            await driven.end()
            assert driven.failures == []
        assert committed(store) == list(range(40))


def committed(store: MemoryStore) -> list[int]:
    return [offset for progress in store.progress for _, offset in progress.seen]


class Driven:
    """A stage with a store on a source, run by a partition task."""

    def __init__(self, feed: Feed, store: MemoryStore) -> None:
        self.failures: list[BaseException] = []
        process = without_asks(lambda message, context: Step())
        stage = Stage("normalize", (CONVERSATION_TURNS, MEMORY_COMMANDS), process, stateful=True)
        pace = Pace(1.0, 4, 4)
        source = feed.opened("normalize", pace, store.cursor_of("normalize", TURNS))
        self.task = PartitionTask(stage, 0, pace, source, self.failures.append)
        self.runner = StageRunner(
            stage,
            0,
            ModelPort(RulesLanguageModel(), HashingEmbeddingModel(8)),
            feed.sender,
            store,
            lambda: NOW,
            lambda: 0.0,
            ready=self.task.ready,
            before_commit=self.task.before_commit,
        )
        self.task.start(self.runner)

    async def end(self) -> None:
        await end_all([self.task], 0.0, 5.0)
