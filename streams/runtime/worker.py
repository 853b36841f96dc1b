"""Runs the stages on a log that is read by offset: one task per stage and partition, in one
loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.logs.base import LogError, Position, Record, ahead_of_log
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.runtime.pace import Pace, pace_of
from palimpsest.streams.runtime.partition_task import (
    Barrier,
    Lease,
    Owned,
    PartitionTask,
    end_all,
    in_time_order,
)
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.settings import WorkerSettings
from palimpsest.streams.stage import Stage


@dataclass(frozen=True, slots=True)
class _Driven:
    source: OffsetSource
    task: PartitionTask
    runner: StageRunner


@dataclass(slots=True)
class Worker:
    """Runs stages once: until stopped, or until everything is processed.

    `make_runner` creates the runner of a task, with the task's hooks. `model_stages` are those that
    use a slow model in this set-up, each with its width (see `pace_of`). `busy` returns whether
    something alongside the stages will still publish. `on_batch` is awaited after every batch, with
    the runner that finished it."""

    log: EmbeddedLog
    stages: Sequence[Stage]
    partitions: int
    make_runner: Callable[[PartitionTask], StageRunner]
    limits: WorkerSettings
    model_stages: Mapping[str, int] = field(default_factory=dict)
    on_batch: Callable[[StageRunner], Awaitable[None]] | None = None
    busy: Callable[[], bool] = lambda: False
    drained: bool = field(init=False, default=False)
    """Whether every stage read its topics to the end; with `until_drained` only."""
    _driven: list[_Driven] = field(init=False)
    _until_drained: bool = field(init=False, default=False)
    _failure: BaseException | None = field(init=False, default=None)
    _stop: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _hurry: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        # Nobody waits for a stage that does not run here.
        awaited = {each.waits_for for each in self.stages} & {each.name for each in self.stages}
        self._driven = []
        for partition in range(self.partitions):
            end = partial(self.log.end_offset, MEMORY_WRITES.name, partition)
            barrier = Barrier(end) if awaited else None
            self._driven += [self._drive(stage, partition, barrier) for stage in self.stages]

    def _drive(self, stage: Stage, partition: int, barrier: Barrier | None) -> _Driven:
        pace = pace_of(stage, self.limits, self.model_stages.get(stage.name))
        source = OffsetSource(self.log, stage.name, partition, pace, self.limits.batch_bytes)
        task = PartitionTask(
            stage,
            partition,
            pace,
            source,
            self._fail,
            barrier,
            self.on_batch,
            self._look,
            patient=lambda: not self._until_drained,
        )
        return _Driven(source, task, self.make_runner(task))

    @property
    def runners(self) -> list[StageRunner]:
        return [driven.runner for driven in self._driven]

    @property
    def tasks(self) -> list[PartitionTask]:
        return [driven.task for driven in self._driven]

    def stop(self) -> None:
        """Finishes the current batches, then ends `run`; a second call abandons them as if they had
        never begun."""
        if self._stop.is_set():
            self._hurry.set()
        self._close()

    def pause(self) -> None:
        """Finishes the current batches, then ends `run`; `resumed` continues from there."""
        self._close()

    def resumed(self) -> Worker:
        """Returns a worker that continues where this one ended, including its counts."""
        worker = replace(self)
        for before, after in zip(self._driven, worker._driven, strict=True):
            after.runner.counts = before.runner.counts
        return worker

    def _close(self) -> None:
        self._stop.set()
        for task in self.tasks:
            task.close()

    def hindered(self) -> str | None:
        """What currently prevents a stage from making progress: no memory, or no disk space."""
        return next((task.hindered for task in self.tasks if task.hindered is not None), None)

    async def run(self, until_drained: bool = False) -> None:
        """Processes until `stop`, or with `until_drained` until every stage has read its topics to
        the end. Raises what a stage raised; the other stages are then stopped."""
        self._until_drained = until_drained
        for driven in self._driven:
            reads = driven.runner.stage.reads
            offsets = {each.name: self._first_offset(driven.runner, each.name) for each in reads}
            driven.source.open(offsets)
            # Lets the log know where a store is in a topic that another stage read in its stead
            # before an upgrade.
            runner = driven.runner
            name, partition = runner.stage.name, runner.partition
            unknown = [
                Position(name, topic, partition, offset)
                for topic, offset in offsets.items()
                if offset and not self.log.position(name, topic, partition)
            ]
            if unknown:
                await runner.sender.commit([], unknown)
        for driven in self._driven:
            driven.task.start(driven.runner)
        try:
            await self._stop.wait()
        finally:
            # For at most the time that a stop may take.
            ending = asyncio.create_task(end_all(self.tasks, self.limits.stop_seconds))
            hurried = asyncio.create_task(self._hurry.wait())
            await asyncio.wait([ending, hurried], return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
            ending.cancel()
            await asyncio.wait([ending])
        if self._failure is not None:
            raise self._failure

    def _first_offset(self, runner: StageRunner, topic: str) -> int:
        store = runner.state_store
        if store is None:
            return self.log.position(runner.stage.name, topic, runner.partition)
        cursor = store.cursor_of(runner.stage.name, topic)
        wrong = ahead_of_log(self.log, runner.partition, [(topic, cursor)])
        if wrong is not None:
            raise LogError(wrong)
        return cursor

    def _fail(self, error: BaseException) -> None:
        """Ends the worker with this error; the first one counts."""
        if self._failure is None:
            self._failure = error
        self._close()

    def _look(self) -> None:
        """Stops when everything is processed; called whenever a stage finds no records."""
        if self._until_drained and self.idle:
            self.drained = True
            self._close()

    @property
    def idle(self) -> bool:
        """Returns whether every stage has begun and nothing published is left to process."""
        # Checked again at the end: background work may have published just before it finished.
        return self._are_idle and not self.busy() and self._are_idle

    @property
    def _are_idle(self) -> bool:
        return all(driven.task.idle and not driven.source.left() for driven in self._driven)


# --- the embedded log as a source -----------------------------------------------------------------


IDLE_SECONDS = 1.0
"""How long an idle stage waits before it checks again by itself; new records wake it at once."""


class OffsetSource:
    """A Source on a log that is read by offset. Progress is recorded with a batch's output, in one
    transaction, so there is nothing else to acknowledge."""

    def __init__(
        self, log: EmbeddedLog, consumer: str, partition: int, pace: Pace, max_bytes: int
    ) -> None:
        self.log = log
        self.lease: Lease = Owned()
        self.next_offsets: dict[str, int] = {}
        self._consumer = consumer
        self._partition = partition
        self._pace = pace
        self._max_bytes = max_bytes
        self._closed = False
        self._waiting: asyncio.Task[bool] | None = None

    def open(self, next_offsets: Mapping[str, int]) -> None:
        """Begins at these offsets, by topic."""
        self.next_offsets = dict(next_offsets)

    async def take(self) -> list[Record]:
        if self._closed:
            return []
        taken = [
            self._pace.taken(
                self.log.read(topic, self._partition, offset, self._pace.size, self._max_bytes)
            )
            for topic, offset in self.next_offsets.items()
        ]
        some = [records for records in taken if records]
        if len(some) < 2:
            return [*chain(*some)]
        ends = {
            each[-1].topic: self.log.end_offset(each[-1].topic, self._partition) for each in some
        }
        with_more = [each for each in some if ends[each[-1].topic] > each[-1].offset + 1]
        return in_time_order(some, with_more)

    async def wait(self) -> None:
        if self._closed:
            return
        positions = [
            Position(self._consumer, topic, self._partition, offset)
            for topic, offset in self.next_offsets.items()
        ]
        self._waiting = asyncio.create_task(self.log.wait(positions, IDLE_SECONDS))
        try:
            await asyncio.wait([self._waiting])
        finally:
            self._waiting.cancel()
        if not self._waiting.cancelled():
            self._waiting.result()

    def acknowledge(self, records: Sequence[Record]) -> None:
        self.next_offsets.update((record.topic, record.offset + 1) for record in records)

    def left(self) -> int:
        return sum(
            max(0, self.log.end_offset(topic, self._partition) - offset)
            for topic, offset in self.next_offsets.items()
        )

    def close(self) -> None:
        self._closed = True
        if self._waiting is not None:
            self._waiting.cancel()
