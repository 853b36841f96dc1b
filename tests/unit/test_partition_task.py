"""A partition task: in order, nothing twice, nothing left out, nothing after the lease is lost."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from palimpsest.streams.kafka import role
from palimpsest.streams.kafka.role import Delivery, DeliverySource
from palimpsest.streams.logs.base import LogError, LogFull, LogUnavailable, Record
from palimpsest.streams.runtime import partition_task
from palimpsest.streams.runtime.pace import (
    MAX_IDLE_GATHER_SECONDS,
    FairQueue,
    Gathering,
    Pace,
    unawaited_gather_seconds,
)
from palimpsest.streams.runtime.partition_task import Barrier, PartitionTask, end_all
from palimpsest.streams.runtime.runner import Counts

TOPIC = "memory-writes"
OTHER = "memory-changes"


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


def record(offset: int, topic: str = TOPIC) -> Record:
    return Record(topic, 0, offset, b"k", b"v", datetime(2026, 3, 1, tzinfo=UTC))


@dataclass
class Stage:
    name: str = "apply-writes"
    waits_for: str | None = None


@dataclass
class Runner:
    """Keeps what it was given; `gate` holds it where a model would, `saving` in its commit."""

    task: PartitionTask | None = None
    done: list[tuple[str, list[int]]] = field(default_factory=list)
    gate: asyncio.Event | None = None
    saving: asyncio.Event | None = None
    counts: Counts = field(default_factory=Counts)
    store: None = None
    started: int = 0
    marked: int = 0
    raises: list[Exception] = field(default_factory=list)
    working: asyncio.Event = field(default_factory=asyncio.Event)

    def committed_outbox(self, log: object) -> tuple[list[Any], list[Any]]:
        return [], []

    async def start(self, committed: Sequence[Any], missing: Sequence[Any]) -> None:
        self.started += 1

    async def mark_sent(self) -> None:
        self.marked += 1

    async def process(self, records: Sequence[Record]) -> None:
        assert self.task is not None
        await self.task.ready()
        self.working.set()
        if self.gate is not None:
            await self.gate.wait()
        self.task.before_commit()
        if self.saving is not None:
            await self.saving.wait()
        if self.raises:
            raise self.raises.pop(0)
        self.done.append((records[0].topic, [r.offset for r in records]))

    @property
    def offsets(self) -> list[int]:
        return [offset for _, offsets in self.done for offset in offsets]


@dataclass
class HeldLease:
    why: str | None = None
    is_sure: bool = True

    def lost(self) -> str | None:
        return self.why

    def sure(self) -> bool:
        return self.is_sure


@dataclass
class World:
    """A task with everything around it in the test's hand."""

    stage: Stage = field(default_factory=Stage)
    topics: Sequence[str] = (TOPIC, OTHER)
    log_records: dict[int, Record] = field(default_factory=dict)
    outages: int = 0
    lease: HeldLease = field(default_factory=HeldLease)
    held: list[str] = field(default_factory=list)
    let: list[str] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    runner: Runner = field(default_factory=Runner)
    sent: int = 0

    def __post_init__(self) -> None:
        pace = Pace(1.0, 4, 4)
        log: Any = self
        gathering = Gathering(FairQueue(), "apply-writes")
        self.source = DeliverySource(log, 0, self.topics, pace, self.lease, self, gathering)
        self.barrier = Barrier(lambda: self.sent)
        stage: Any = self.stage
        self.task = PartitionTask(stage, 0, pace, self.source, self.failures.append, self.barrier)
        self.runner.task = self.task

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
        first = dict.fromkeys(self.topics, 0) | {self.topics[0]: cursor}
        self.source.open(first, {self.topics[0]: committed})
        self.task.start(self.runner)  # type: ignore[arg-type]

    def put(self, *offsets: int, topic: str | None = None) -> None:
        topic = topic or self.topics[0]
        for offset in offsets:
            done = partial(self.acknowledged.append, offset)
            self.source.put(topic, Delivery(record(offset, topic), done))

    async def until_acknowledged(self, count: int) -> None:
        await until(lambda: len(self.acknowledged) >= count)

    async def close(self) -> None:
        await end_all([self.task], 0.01, 1.0)


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
    monkeypatch.setattr(role, "UNAVAILABLE_SECONDS", 0.0)
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


async def test_a_hole_between_two_that_came_is_filled_too() -> None:
    world = World(log_records={n: record(n) for n in range(4)})
    world.put(0, 3)
    world.open()
    await world.until_acknowledged(2)
    assert world.runner.offsets == [0, 1, 2, 3]
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


async def test_a_commit_is_waited_for_and_never_cut_short() -> None:
    world = World()
    world.runner.saving = asyncio.Event()
    world.open()
    world.put(0)
    await world.runner.working.wait()
    ending = asyncio.create_task(end_all([world.task], 0.0, 60.0))
    await asyncio.sleep(0.01)
    assert not ending.done()
    world.runner.saving.set()
    await ending
    assert world.acknowledged == [0]


async def test_a_commit_that_does_not_end_is_told() -> None:
    world = World()
    world.runner.saving = asyncio.Event()
    world.open()
    world.put(0)
    await world.runner.working.wait()
    with pytest.raises(LogError, match=r"apply-writes\[0\] did not finish its batch"):
        await end_all([world.task], 0.0, 0.01)
    assert world.acknowledged == []


async def test_a_partition_lost_after_the_commit_acknowledges_nothing() -> None:
    world = World()
    world.runner.saving = asyncio.Event()
    world.open()
    world.put(0, 1)
    await world.runner.working.wait()
    world.lease.why = "another's"
    world.runner.saving.set()
    await until(lambda: bool(world.task.closed))
    assert world.runner.offsets == [0, 1]
    assert world.acknowledged == []
    await world.close()
    # Its next owner gets them again, and its store knows them.
    after = World()
    after.open(cursor=2)
    after.put(0, 1, 2)
    await after.until_acknowledged(3)
    assert after.runner.offsets == [2]
    await after.close()


async def test_nothing_is_committed_once_the_partition_is_lost() -> None:
    world = World()
    world.runner.gate = asyncio.Event()
    world.open()
    world.put(0)
    await world.runner.working.wait()
    world.lease.why = "another's"
    world.runner.gate.set()
    await until(lambda: bool(world.task.closed))
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
    world.lease.is_sure = False
    world.runner.gate.set()
    await asyncio.sleep(0.01)
    assert world.runner.done == []
    world.lease.is_sure = True
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


@pytest.mark.parametrize(
    "error", [LogFull("the disk is full"), MemoryError(), OSError(errno.ENOSPC, "no room")]
)
async def test_a_batch_for_which_there_was_no_room_is_tried_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_task, "ROOM_SECONDS", 0.0)
    world = World(runner=Runner(raises=[error] * 3))
    world.open()
    world.put(0)
    await until(lambda: world.task.hindered is not None)
    await world.until_acknowledged(1)
    assert (world.runner.offsets, world.failures) == ([0], [])
    assert world.runner.started > 1  # what had been committed before was sent first
    assert world.task.hindered is None
    await world.close()


async def test_who_stops_removes_what_was_sent_unless_the_partition_was_lost() -> None:
    stopped = World()
    stopped.open()
    stopped.put(0)
    await stopped.until_acknowledged(1)
    assert stopped.runner.marked == 0
    await stopped.close()
    assert (stopped.runner.marked, stopped.failures) == (1, [])
    lost = World()
    lost.open()
    await until(lambda: lost.task.started)
    lost.lease.why = "another owner"
    await lost.close()
    assert lost.runner.marked == 0


async def test_who_has_no_patience_fails_for_want_of_room() -> None:
    world = World(runner=Runner(raises=[LogFull("the disk is full")]))
    world.task._patient = lambda: False
    world.open()
    world.put(0)
    await until(lambda: bool(world.failures))
    assert isinstance(world.failures[0], LogFull)
    assert world.acknowledged == []


def test_the_more_a_store_costs_the_longer_records_gather() -> None:
    assert unawaited_gather_seconds(0.0, store_seconds=9.0, share=0.1) == 0.0
    assert unawaited_gather_seconds(0.2, store_seconds=0.001, share=0.1) == 0.2
    assert unawaited_gather_seconds(0.2, store_seconds=0.05, share=0.1) == pytest.approx(0.5)
    assert unawaited_gather_seconds(0.2, store_seconds=9.0, share=0.1) == MAX_IDLE_GATHER_SECONDS


async def test_a_stage_waits_until_what_was_proposed_is_applied() -> None:
    world = World(stage=Stage("decide", waits_for="apply-writes"), topics=(OTHER,))
    world.barrier.proposed_before = 5
    world.open()
    world.put(0)
    world.barrier.note(4)
    await asyncio.sleep(0.02)
    assert world.acknowledged == []
    world.barrier.note(5)
    await world.until_acknowledged(1)
    world.sent = 9
    world.put(1)
    await asyncio.sleep(0.02)
    assert world.acknowledged == [0]
    world.task.close()  # revoked meanwhile: it gives up, and the rebalance goes on
    async with asyncio.timeout(60):
        await world.task.join(1.0, 1.0)
    assert world.acknowledged == [0]
    assert world.failures == []
