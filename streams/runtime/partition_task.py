"""One stage on one partition: batches one after another, identical for the embedded log and Kafka.

`Source` hides the differences between the two."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.logs.base import UNAVAILABLE_SECONDS, LogReader, LogUnavailable, Record
from palimpsest.streams.runtime.failures import first_failure, may_pass
from palimpsest.streams.runtime.pace import Pace
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.stage import Stage
from palimpsest.streams.store_port import Outbound

logger = logging.getLogger(__name__)

ROOM_SECONDS = 1.0
"""Delay before a batch that lacked room is retried."""
ASK_AGAIN_SECONDS = 0.05
"""Delay before the lease is checked again."""


@dataclass(slots=True)
class Barrier:
    """The progress of apply-writes on one partition, for the stage that waits for it.

    `proposed` is the offset after the last record of memory-writes whose effects must be visible,
    `proposed_before` that of the previous worker, used where `proposed` has no entry."""

    proposed: Callable[[], int]
    proposed_before: int = 0
    applied: int = 0
    _advanced: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, applied: int) -> None:
        self.applied = max(self.applied, applied)
        self.wake()

    def wake(self) -> None:
        """Wakes every waiter to check again."""
        self._advanced.set()
        self._advanced = asyncio.Event()

    async def passed(self, given_up: Callable[[], bool]) -> None:
        """Waits until all current proposals are in the store. Raises Interrupted once
        `given_up`."""
        target = max(self.proposed_before, self.proposed())
        while self.applied < target:
            if given_up():
                raise Interrupted("while waiting for what was proposed before")
            await self._advanced.wait()


class PartitionTask:
    """Serial processing of one partition by one stage, from `start` to `close`.

    `failed` receives an error that must end the worker. A batch for which memory or the disk lacked
    room is retried until it fits, if `patient`. `on_batch` is awaited after every batch; `on_idle`
    is called when there were no records to take. `ready` and `before_commit` are the hooks of the
    runner that it is started with."""

    def __init__(
        self,
        stage: Stage,
        partition: int,
        pace: Pace,
        source: Source,
        failed: Callable[[BaseException], None],
        barrier: Barrier | None = None,
        on_batch: Callable[[StageRunner], Awaitable[None]] | None = None,
        on_idle: Callable[[], None] | None = None,
        patient: Callable[[], bool] = lambda: True,
    ) -> None:
        self.stage = stage
        self.partition = partition
        self.taken = 0
        """Records of the current batch; 0 between batches."""
        self.started = False
        """Whether the output committed by an earlier run is sent, and batches are taken."""
        self.closed = False
        self.hindered: str | None = None
        """What currently prevents the batch from being committed."""
        self._patient = patient
        self._pace = pace
        self._source = source
        self._failed = failed
        self._barrier = barrier
        self._on_batch = on_batch
        self._on_idle = on_idle
        self._uncommitted = asyncio.Event()
        self._uncommitted.set()
        self._task: asyncio.Task[None] | None = None

    # --- from outside ------------------------------------------------------------------------

    def start(self, runner: StageRunner) -> None:
        """Starts work, unless the task was closed in the meantime."""
        if self.closed:
            return
        name = f"{self.stage.name}[{self.partition}]"
        self._task = asyncio.create_task(self._run(runner), name=name)

    def close(self) -> None:
        """Takes and begins nothing more; the next owner processes the rest."""
        self.closed = True
        self._source.close()
        if self._barrier is not None:
            self._barrier.wake()

    async def join(self, grace_seconds: float, limit_seconds: float | None = None) -> None:
        """After `close`: waits until the current batch is done. If it is not being committed after
        `grace_seconds` (it waits for a model), it is cancelled as if it had never begun. Raises
        LogUnavailable after `limit_seconds` more; the next owner then sends what was committed and
        not sent."""
        task = self._task
        if task is None:
            return
        try:
            await asyncio.wait([task], timeout=grace_seconds)
            async with asyncio.timeout(limit_seconds):
                await self._uncommitted.wait()
        except TimeoutError:
            raise LogUnavailable(
                f"{self.stage.name}[{self.partition}] did not finish its batch"
            ) from None
        finally:
            task.cancel()
            await asyncio.wait([task])

    @property
    def idle(self) -> bool:
        return self.started and not self.taken

    def left(self) -> int:
        """Number of records that wait for the stage, including the current batch."""
        return self._source.left()

    # --- the runner's hooks -----------------------------------------------------------------

    async def ready(self) -> None:
        """Waits until a batch may begin. Raises Interrupted if it never will."""
        if self.stage.waits_for is not None and self._barrier is not None:
            await self._barrier.passed(lambda: self.closed)

    def before_commit(self) -> None:
        """The last check before results are committed; from here on the batch is not cancelled.
        Raises Interrupted or Unsure."""
        why = self._source.lease.lost()
        if why is not None:
            raise Interrupted(why)
        if not self._source.lease.sure():
            raise Unsure
        self._uncommitted.clear()

    # --- the work ----------------------------------------------------------------------------

    async def _run(self, runner: StageRunner) -> None:
        try:
            self._note_applied()
            await self._until_sure()
            await runner.start(*await self._outbox(runner))
            self.started = True
            while not self.closed:
                records = await self._source.take()
                if records:
                    await self._process(runner, records)
                else:
                    if self._on_idle is not None:
                        self._on_idle()
                    await self._source.wait()
            await self._mark_sent(runner)
        except asyncio.CancelledError:
            raise
        except Interrupted:
            self.close()
        except BaseException as error:
            self.close()
            self._failed(first_failure(error))

    async def _outbox(self, runner: StageRunner) -> tuple[list[Outbound], list[Outbound]]:
        while True:
            try:
                return await asyncio.to_thread(runner.committed_outbox, self._source.log)
            except LogUnavailable:
                await asyncio.sleep(UNAVAILABLE_SECONDS)

    async def _process(self, runner: StageRunner, records: Sequence[Record]) -> None:
        self.taken = len(records)
        try:
            await self._until_done(runner, records)
            self._source.acknowledge(records)
        finally:
            self.taken = 0
        self._note_applied()
        if self._on_batch is not None:
            await self._on_batch(runner)

    async def _until_done(self, runner: StageRunner, records: Sequence[Record]) -> None:
        while True:
            await self._until_sure()
            spent, stored = runner.counts.spent, runner.counts.stored
            try:
                if self.hindered is not None:
                    # Output that was committed before the failure and not sent comes first.
                    await runner.start(*await self._outbox(runner))
                await runner.process(records)
            except Unsure:
                continue
            except Exception as error:
                await self._hindered_by(first_failure(error), runner)
                continue
            finally:
                self._uncommitted.set()
            self.hindered = None
            counts = runner.counts
            self._pace.note(records, counts.spent - spent, counts.stored - stored)
            return

    async def _mark_sent(self, runner: StageRunner) -> None:
        """Leaves no room on the disk to what was sent; if that fails, the next start does it."""
        if self._source.lease.lost() is not None:
            return
        self._uncommitted.clear()
        try:
            await runner.mark_sent()
        except Exception as error:
            logger.info("the outbox of %s stays as it is: %s", self.stage.name, error)
        finally:
            self._uncommitted.set()

    async def _hindered_by(self, error: BaseException, runner: StageRunner) -> None:
        """Waits a moment before the batch is retried. Raises errors that will not pass."""
        if not may_pass(error, runner.store) or not self._patient():
            raise error
        if self.hindered is None:
            logger.error("%s waits: %s", self.stage.name, error)
        self.hindered = f"{self.stage.name} waits: {error}"
        await asyncio.sleep(ROOM_SECONDS)

    def _note_applied(self) -> None:
        applied = self._source.next_offsets.get(MEMORY_WRITES.name)
        if applied is not None and self._barrier is not None:
            self._barrier.note(applied)

    async def _until_sure(self) -> None:
        """Waits until the lease is confirmed. Raises Interrupted if it is lost."""
        while True:
            why = self._source.lease.lost()
            if why is not None or self.closed:
                raise Interrupted(why or "closed")
            if self._source.lease.sure():
                return
            await asyncio.sleep(ASK_AGAIN_SECONDS)


async def end_all(
    tasks: Iterable[PartitionTask], grace_seconds: float, limit_seconds: float | None = None
) -> None:
    """Begins nothing new and waits for the commits under way; if cancelled, abandons those too.
    Raises what `PartitionTask.join` raises, once all have ended."""
    ending = list(tasks)
    for task in ending:
        task.close()
    ended = await asyncio.gather(
        *(task.join(grace_seconds, limit_seconds) for task in ending), return_exceptions=True
    )
    for outcome in ended:
        if isinstance(outcome, BaseException):
            raise outcome


def by_stage(
    tasks: Iterable[PartitionTask], count: Callable[[PartitionTask], int]
) -> dict[str, int]:
    """Sums a count over partitions, by stage; omits stages whose sum is zero."""
    found: Counter[str] = Counter()
    for task in tasks:
        found[task.stage.name] += count(task)
    return dict(+found)


# --- where a task reads its records ---------------------------------------------------------------


class Lease(Protocol):
    """Whether this worker owns a partition."""

    def lost(self) -> str | None:
        """Returns why the partition is no longer owned; None while it is."""
        ...

    def sure(self) -> bool:
        """Returns whether ownership was confirmed recently enough that no other worker can own
        it."""
        ...


class Owned:
    """The lease of the log's only user: the folder's lock guarantees it."""

    def lost(self) -> str | None:
        return None

    def sure(self) -> bool:
        return True


class Source(Protocol):
    """The records that one stage reads of one partition.

    `next_offsets` is the stage's position in each of its topics: earlier records were acknowledged,
    or need not be delivered again. A batch is taken and acknowledged before the next one is taken;
    an unacknowledged one is delivered again by a source opened at the same offsets."""

    @property
    def log(self) -> LogReader:
        """The log to search for output that was committed and not sent. Blocking."""
        ...

    @property
    def lease(self) -> Lease: ...

    @property
    def next_offsets(self) -> Mapping[str, int]: ...

    async def take(self) -> Sequence[Record]:
        """Returns the next batch, with at most the pace's size of records per topic: each topic's
        records in offset order without gaps, and all in the order in which they came, as far as
        that is known. Empty if there is nothing now, and after `close`."""
        ...

    async def wait(self) -> None:
        """Waits until there may be something to take; `close` ends the wait."""
        ...

    def acknowledge(self, records: Sequence[Record]) -> None:
        """Marks the batch as processed: it is never taken again. Raises Interrupted if the lease is
        lost; the group then receives no commit."""
        ...

    def left(self) -> int:
        """Number of records that are known here and not acknowledged."""
        ...

    def close(self) -> None:
        """Delivers nothing more."""
        ...


class Interrupted(Exception):
    """The batch is abandoned as if it had never begun: the worker stops, or the partition has
    another owner."""


class Unsure(Exception):
    """Ownership of the partition is not known now: begin the batch again once it is."""


def in_time_order(
    by_topic: Sequence[Sequence[Record]], with_more: Sequence[Sequence[Record]] = ()
) -> list[Record]:
    """Merges the records of several topics in the order of their times, keeping each topic's own
    order: a request made before an utterance comes before it. The log holds later records of the
    topics in `with_more`, so records newer than the last one of such a topic wait for them."""
    until = min((records[-1].timestamp for records in with_more), default=None)
    return [
        record
        for record in heapq.merge(*by_topic, key=lambda record: record.timestamp)
        if until is None or record.timestamp <= until
    ]
