"""Drives the stages on a log that is read by offset: one task a stage, all in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from schemas.topics import MEMORY_WRITES
from streams.logs.base import LogError, LogReader, Position, Record
from streams.runner import StageRunner

IDLE_SECONDS = 1.0
"""How long an idle stage waits before it looks again by itself; new records wake it at once."""


class ReadableLog(LogReader, Protocol):
    """A log that can be waited on."""

    async def wait(self, positions: Iterable[Position], timeout_seconds: float) -> bool: ...


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How many records a stage takes at once: those that ask a language model take fewer, so that
    a stop or a crash repeats little and results show early."""

    records: int = 512
    model_records: int = 8
    bytes: int = 4 * 1024 * 1024
    warm_records: int = 1_000
    stop_seconds: float = 10.0


@dataclass(slots=True)
class _Lane:
    """One stage on one partition: its runner and where it is in each of its topics."""

    runner: StageRunner
    batch: int
    next_offsets: dict[str, int] = field(default_factory=dict)
    busy: bool = False

    @property
    def name(self) -> str:
        return self.runner.stage.name

    def positions(self) -> list[Position]:
        return [
            Position(self.name, topic, self.runner.partition, offset)
            for topic, offset in self.next_offsets.items()
        ]


class Worker:
    """Runs stages until told to stop, or until all is processed.

    `model_stages` are those that ask a language model in this set-up. `idle` is awaited whenever
    a stage with a store has finished a batch or found nothing to do.
    """

    def __init__(
        self,
        log: ReadableLog,
        runners: Sequence[StageRunner],
        limits: BatchLimits,
        model_stages: frozenset[str] = frozenset(),
        on_batch: Callable[[StageRunner], Awaitable[None]] | None = None,
    ) -> None:
        self._log = log
        self._limits = limits
        self._on_batch = on_batch
        self._stop = asyncio.Event()
        self._progress = asyncio.Condition()
        self._lanes = [
            _Lane(
                runner,
                limits.model_records if runner.stage.name in model_stages else limits.records,
            )
            for runner in runners
        ]

    def stop(self) -> None:
        """Finish the batches under way, then end `run`."""
        self._stop.set()

    async def run(self, until_drained: bool = False) -> None:
        """Process until `stop`, or with `until_drained` until every stage has read its topics to
        the end. Raises what a stage raised; the other stages are then stopped."""
        for lane in self._lanes:
            await self._start(lane)
        tasks = [
            asyncio.create_task(self._work(lane, until_drained), name=lane.name)
            for lane in self._lanes
        ]
        stopping = asyncio.create_task(self._stop.wait())
        waiting = {*tasks, stopping}
        while waiting and not self._stop.is_set():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if any(task.exception() is not None for task in done):
                self._stop.set()
        await self._notify()
        # A batch that waits for a model may wait for ever; cancelled, it is as if never begun.
        await asyncio.wait(tasks, timeout=self._limits.stop_seconds)
        stopping.cancel()
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        failures = [r for r in results if r is not None and not _is_cancelled(r)]
        if failures:
            raise first_failure(failures[0])

    async def _start(self, lane: _Lane) -> None:
        runner = lane.runner
        for topic in runner.stage.reads:
            lane.next_offsets[topic.name] = self._first_offset(runner, topic.name)
        if runner.stage.waits_for is not None:
            awaited = [other for other in self._lanes if other.name == runner.stage.waits_for]
            if awaited:
                runner.ready = lambda: self._applied(awaited)
        await runner.start(self._before(lane))

    def _first_offset(self, runner: StageRunner, topic: str) -> int:
        end = self._log.end_offset(topic, runner.partition)
        if runner.store is None:
            return self._log.position(runner.stage.name, topic, runner.partition)
        cursor = runner.store.cursor_of(runner.stage.name, topic)
        if cursor > end:
            raise LogError(
                f"the store has processed {topic}[{runner.partition}] up to offset {cursor}, but"
                f" the log ends at {end}: they do not belong together. Give each log its own data"
                " folder, or restore the log that this store was made from."
            )
        return cursor

    def _before(self, lane: _Lane) -> list[Record]:
        """The records that fill the window of a stage that is shown earlier turns."""
        stage = lane.runner.stage
        if not stage.window:
            return []
        topic, position = next(iter(lane.next_offsets.items()))
        start = max(0, position - self._limits.warm_records)
        if start == position:
            return []
        return self._log.read(topic, lane.runner.partition, start, position - start)

    async def _work(self, lane: _Lane, until_drained: bool) -> None:
        while not self._stop.is_set():
            if await self._pass(lane):
                continue
            if until_drained and self._drained():
                self._stop.set()
                await self._notify()
                return
            await self._wait(lane)
        # Whoever waits for this stage must not wait for ever.
        await self._notify()

    async def _pass(self, lane: _Lane) -> bool:
        """One batch of what every topic has; whether there was any."""
        records = [
            record
            for topic in lane.runner.stage.reads
            for record in self._log.read(
                topic.name,
                lane.runner.partition,
                lane.next_offsets[topic.name],
                lane.batch,
                self._limits.bytes,
            )
        ]
        if not records:
            return False
        lane.busy = True
        try:
            await lane.runner.process(records)
        except Interrupted:
            return True
        finally:
            lane.busy = False
        lane.next_offsets.update((record.topic, record.offset + 1) for record in records)
        if self._on_batch is not None:
            await self._on_batch(lane.runner)
        await self._notify()
        return True

    async def _wait(self, lane: _Lane) -> None:
        waiting = [
            asyncio.create_task(self._log.wait(lane.positions(), IDLE_SECONDS)),
            asyncio.create_task(_wait_for(self._stop)),
        ]
        done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        for task in done:
            task.result()

    def _drained(self) -> bool:
        return not any(lane.busy for lane in self._lanes) and all(
            self._log.end_offset(position.topic, position.partition) == position.next_offset
            for lane in self._lanes
            for position in lane.positions()
        )

    async def _applied(self, awaited: Sequence[_Lane]) -> None:
        """Until the awaited stage has processed all that is in its topic now: what this stage
        proposed before is then in the store, and the next decision sees it."""
        ends = {
            lane.runner.partition: self._log.end_offset(MEMORY_WRITES.name, lane.runner.partition)
            for lane in awaited
        }
        async with self._progress:
            while any(
                lane.next_offsets[MEMORY_WRITES.name] < ends[lane.runner.partition]
                for lane in awaited
            ):
                if self._stop.is_set():
                    raise Interrupted
                await self._progress.wait()

    async def _notify(self) -> None:
        async with self._progress:
            self._progress.notify_all()


class Interrupted(Exception):
    """A batch that was not begun because the worker stops."""


async def _wait_for(event: asyncio.Event) -> bool:
    return await event.wait()


def _is_cancelled(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError)


def first_failure(failure: BaseException) -> BaseException:
    """The failure itself, out of the groups that task groups wrap it in."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure
