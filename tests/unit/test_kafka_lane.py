"""A lane: in order, nothing twice, nothing left out, nothing after the partition is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any

import pytest

from streams.logs import kafka_lane
from streams.logs.base import LogUnavailable, Record
from streams.logs.kafka import FAUST_VERSION
from streams.logs.kafka_lane import (
    MOST_PATIENCE_SECONDS,
    Arrival,
    Lane,
    Opened,
    Progress,
    Turns,
    patience,
)
from streams.pace import Pace
from streams.runner import Counts

TOPIC = "memory-writes"
OTHER = "memory-changes"


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


def record(offset: int, topic: str = TOPIC) -> Record:
    return Record(topic, 0, offset, b"k", b"v", datetime(2026, 3, 1, tzinfo=UTC))


@dataclass
class Stage:
    waits_for: str | None = None
    window: int = 0


@dataclass
class Runner:
    """Keeps what it was given; `gate` holds it where a model would."""

    done: list[tuple[str, list[int]]] = field(default_factory=list)
    gate: asyncio.Event | None = None
    lane: Lane | None = None
    stage: Stage = field(default_factory=Stage)
    counts: Counts = field(default_factory=Counts)
    ready: Any = None
    started: int = 0
    working: asyncio.Event = field(default_factory=asyncio.Event)

    def committed_outbox(self, log: object) -> tuple[list[Any], list[Any]]:
        return [], []

    async def start(self, committed: Sequence[Any], missing: Sequence[Any]) -> None:
        self.started += 1

    async def process(self, records: Sequence[Record]) -> None:
        if self.ready is not None:
            await self.ready()
        self.working.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.lane is not None:
            self.lane.at("step")
        self.done.append((records[0].topic, [r.offset for r in records]))

    @property
    def offsets(self) -> list[int]:
        return [offset for _, offsets in self.done for offset in offsets]


@dataclass
class Tenure:
    why: str | None = None
    is_sure: bool = True

    def lost(self) -> str | None:
        return self.why

    def sure(self) -> bool:
        return self.is_sure


@dataclass
class World:
    """A lane with everything around it in the test's hand."""

    log_records: dict[int, Record] = field(default_factory=dict)
    outages: int = 0
    tenure: Tenure = field(default_factory=Tenure)
    held: list[str] = field(default_factory=list)
    let: list[str] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    runner: Runner = field(default_factory=Runner)
    sent: int = 0

    def __post_init__(self) -> None:
        self.lane = Lane(
            "apply-writes",
            0,
            [TOPIC, OTHER],
            Pace(1.0, 4, 4),
            self.tenure,
            self,
            self.failures.append,
            Turns(),
        )
        self.runner.lane = self.lane
        self.progress = Progress(lambda: self.sent)

    def hold(self, topic: str, partition: int) -> None:
        self.held.append(topic)

    def let_go(self, topic: str, partition: int) -> None:
        self.let.append(topic)

    def read(
        self, topic: str, partition: int, offset: int, max_records: int, max_bytes: int = 0
    ) -> list[Record]:
        if self.outages:
            self.outages -= 1
            raise LogUnavailable("the broker is away")
        found = [r for o, r in sorted(self.log_records.items()) if o >= offset]
        return found[:max_records]

    def open(self, cursor: int = 0, committed: int = 0) -> None:
        self.lane.open(
            Opened(
                self.runner,  # type: ignore[arg-type]
                self,  # type: ignore[arg-type]
                self.progress,
                {TOPIC: cursor, OTHER: 0},
                {TOPIC: committed},
            )
        )

    def put(self, *offsets: int, topic: str = TOPIC) -> None:
        for offset in offsets:
            done = partial(self.acknowledged.append, offset)
            self.lane.put(topic, Arrival(record(offset, topic), done))

    async def until_acknowledged(self, count: int) -> None:
        await until(lambda: len(self.acknowledged) >= count)

    async def close(self) -> None:
        self.lane.close()
        await self.lane.ended(0.01, 1.0)


async def test_records_wait_for_the_store_and_come_in_order_in_batches() -> None:
    world = World()
    world.put(*range(6))
    world.open()
    await world.until_acknowledged(6)
    assert [len(offsets) for _, offsets in world.runner.done] == [4, 2]
    assert world.runner.offsets == world.acknowledged == list(range(6))
    assert world.runner.started == 1
    await world.close()


async def test_what_the_store_has_done_is_only_acknowledged() -> None:
    world = World()
    world.open(cursor=3)
    world.put(1, 2, 3, 4)
    await world.until_acknowledged(4)
    assert world.runner.offsets == [3, 4]
    await world.close()


async def test_a_store_behind_the_group_is_caught_up_from_the_log() -> None:
    world = World(log_records={n: record(n) for n in range(10)})
    world.open(cursor=2, committed=8)
    world.put(8, 9)
    await world.until_acknowledged(2)
    assert world.runner.offsets == [2, 3, 4, 5, 6, 7, 8, 9]
    await world.close()


async def test_a_log_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_lane, "UNAVAILABLE_SECONDS", 0.0)
    world = World(log_records={n: record(n) for n in range(4)}, outages=3)
    world.open(cursor=0, committed=3)
    world.put(3)
    await world.until_acknowledged(1)
    assert world.runner.offsets == [0, 1, 2, 3]
    assert world.failures == []
    await world.close()


async def test_a_hole_is_filled_from_the_log_or_is_none() -> None:
    world = World(log_records={n: record(n) for n in (0, 1, 2, 5)})
    world.open()
    world.put(2)
    world.put(5)  # 3 and 4 were removed from the log
    await world.until_acknowledged(2)
    assert world.runner.offsets == [0, 1, 2, 5]
    await world.close()


async def test_a_topic_that_waits_too_long_is_held_and_let_go() -> None:
    world = World()
    world.put(*range(16))
    assert world.held == [TOPIC]
    world.open()
    await world.until_acknowledged(16)
    assert world.let == [TOPIC]
    await world.close()


async def test_a_batch_that_waits_for_a_model_gives_way() -> None:
    world = World()
    world.runner.gate = asyncio.Event()
    world.open()
    world.put(0)
    await world.runner.working.wait()
    await world.close()
    assert world.runner.done == []
    assert world.acknowledged == []
    assert world.failures == []


async def test_nothing_is_committed_once_the_partition_is_lost() -> None:
    world = World()
    world.runner.gate = asyncio.Event()
    world.open()
    world.put(0)
    await world.runner.working.wait()
    world.tenure.why = "another's"
    world.runner.gate.set()
    await until(lambda: bool(world.lane.closed))
    assert world.runner.done == []
    assert world.acknowledged == []
    world.put(1)
    await world.close()
    assert world.failures == []


async def test_a_doubt_before_the_commit_begins_the_batch_again() -> None:
    world = World()
    world.runner.gate = asyncio.Event()
    world.open()
    world.put(0)
    await world.runner.working.wait()
    world.tenure.is_sure = False
    world.runner.gate.set()
    await asyncio.sleep(0.01)
    assert world.runner.done == []
    world.tenure.is_sure = True
    await world.until_acknowledged(1)
    assert world.runner.offsets == [0]
    await world.close()


async def test_a_failure_is_told_and_acknowledges_nothing() -> None:
    world = World()
    world.open()
    bug = ValueError("a bug")

    async def fail(records: Sequence[Record]) -> None:
        raise bug

    world.runner.process = fail  # type: ignore[method-assign]
    world.put(0)
    await until(lambda: bool(world.failures))
    assert world.failures == [bug]
    assert world.acknowledged == []
    world.put(1)
    await world.close()


def test_the_more_a_store_costs_the_longer_records_gather() -> None:
    assert patience(0.0, store_seconds=9.0, share=0.1) == 0.0
    assert patience(0.2, store_seconds=0.001, share=0.1) == 0.2
    assert patience(0.2, store_seconds=0.05, share=0.1) == pytest.approx(0.5)
    assert patience(0.2, store_seconds=9.0, share=0.1) == MOST_PATIENCE_SECONDS


async def test_a_stage_waits_until_what_was_proposed_is_applied() -> None:
    world = World()
    world.runner.stage = Stage(waits_for="apply-writes")
    world.runner.lane = None
    world.progress.awaited = 5
    world.lane.next_offsets = {OTHER: 0}
    decide = Lane(
        "decide", 0, [OTHER], Pace(1.0, 4, 4), world.tenure, world, world.failures.append, Turns()
    )
    opened = Opened(world.runner, world, world.progress, {OTHER: 0}, {})  # type: ignore[arg-type]
    decide.open(opened)
    done: list[int] = []
    decide.put(OTHER, Arrival(record(0, OTHER), partial(done.append, 0)))
    world.progress.note(4)
    await asyncio.sleep(0.02)
    assert done == []
    world.progress.note(5)
    await until(lambda: bool(done))
    world.sent = 9
    decide.put(OTHER, Arrival(record(1, OTHER), partial(done.append, 1)))
    await asyncio.sleep(0.02)
    assert done == [0]
    decide.close()  # revoked meanwhile: it gives up, and the rebalance goes on
    async with asyncio.timeout(5):
        await decide.ended(1.0, 1.0)
    assert done == [0]
    assert world.failures == []


def test_the_private_parts_of_faust_are_those_of_the_version_tried() -> None:
    installed = version("faust-streaming")
    if installed != FAUST_VERSION:
        pytest.fail(f"faust-streaming {installed}: try streams/logs/kafka.py on it, then say so")
