"""Drives the stages on a log that is read by offset: one task a stage, all in one event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from schemas.topics import MEMORY_WRITES
from streams.failures import first_failure
from streams.logs.base import LogError, LogReader, Position
from streams.pace import Pace, pace_of
from streams.runner import StageRunner
from streams.settings import WorkerSettings

IDLE_SECONDS = 1.0
"""How long an idle stage waits before it looks again by itself; new records wake it at once."""


class ReadableLog(LogReader, Protocol):
    """A log that can be waited on."""

    async def wait(self, positions: Iterable[Position], timeout_seconds: float) -> bool: ...


@dataclass(slots=True)
class _Lane:
    """One stage on one partition: its runner and where it is in each of its topics."""

    runner: StageRunner
    pace: Pace
    next_offsets: dict[str, int] = field(default_factory=dict)
    taken: int = 0
    """Records of the batch under way; 0 between batches."""

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

    `model_stages` are those that ask a language model in this set-up, each with how many questions
    it answers at the same time. `on_batch` is awaited after every batch, with the runner that has
    finished it.
    """

    def __init__(
        self,
        log: ReadableLog,
        runners: Sequence[StageRunner],
        limits: WorkerSettings,
        model_stages: Mapping[str, int] = MappingProxyType({}),
        on_batch: Callable[[StageRunner], Awaitable[None]] | None = None,
    ) -> None:
        self._log = log
        self._limits = limits
        self._on_batch = on_batch
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self.drained = False
        """Whether every stage had read its topics to the end; with `until_drained` only."""
        self._progress = asyncio.Condition()
        self._lanes = [
            _Lane(runner, pace_of(runner.stage, limits, model_stages.get(runner.stage.name)))
            for runner in runners
        ]

    def stop(self) -> None:
        """Finish the batches under way, then end `run`; told again, let go of them: they are then
        as if never begun."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def under_way(self) -> dict[str, int]:
        """Records of the batches that are being processed now, by stage."""
        found: Counter[str] = Counter()
        for lane in self._lanes:
            found[lane.name] += lane.taken
        return dict(+found)

    def left(self) -> dict[str, int]:
        """Records that wait for each stage, those of batches under way among them."""
        found: Counter[str] = Counter()
        for lane in self._lanes:
            for at in lane.positions():
                end = self._log.end_offset(at.topic, at.partition)
                found[lane.name] += max(0, end - at.next_offset)
        return dict(+found)

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
        await self._ended(tasks)
        stopping.cancel()
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        failures = [r for r in results if r is not None and not _is_cancelled(r)]
        if failures:
            raise first_failure(failures[0])

    async def _ended(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Until all have ended, for as long as a stop may take. A batch that waits for a model may
        wait for ever; cancelled, it is as if never begun."""
        hurry = asyncio.create_task(self._hurry_told())
        ended = asyncio.create_task(_all_of(tasks))
        await asyncio.wait(
            {ended, hurry},
            timeout=self._limits.stop_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        hurry.cancel()
        ended.cancel()

    async def _hurry_told(self) -> None:
        await self._hurry.wait()

    async def _start(self, lane: _Lane) -> None:
        runner = lane.runner
        for topic in runner.stage.reads:
            lane.next_offsets[topic.name] = self._first_offset(runner, topic.name)
        if runner.stage.waits_for is not None:
            awaited = [other for other in self._lanes if other.name == runner.stage.waits_for]
            if awaited:
                runner.ready = lambda: self._applied(awaited)
        await runner.start(*runner.committed_outbox(self._log))

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

    async def _work(self, lane: _Lane, until_drained: bool) -> None:
        while not self._stop.is_set():
            if await self._pass(lane):
                continue
            if until_drained and self._drained():
                self.drained = True
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
            for record in lane.pace.taken(
                self._log.read(
                    topic.name,
                    lane.runner.partition,
                    lane.next_offsets[topic.name],
                    lane.pace.size,
                    self._limits.batch_bytes,
                )
            )
        ]
        if not records:
            return False
        lane.taken = len(records)
        try:
            before = spent_seconds(lane.runner)
            await lane.runner.process(records)
            lane.pace.note(records, spent_seconds(lane.runner) - before)
        except Interrupted:
            return True
        finally:
            lane.taken = 0
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
        return not any(lane.taken for lane in self._lanes) and all(
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


def spent_seconds(runner: StageRunner) -> float:
    """What its batches took in all, without the waiting for other stages before each."""
    return sum(runner.counts.seconds.values())


async def _all_of(tasks: Sequence[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)


async def _wait_for(event: asyncio.Event) -> bool:
    return await event.wait()


def _is_cancelled(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError)
