"""Work that is repeated alongside the stages of a worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar

import duckdb

from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS, MEMORY_WRITES
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.database.damage import StoreDamaged
from palimpsest.stores.shard import Shard, StoreError
from palimpsest.streams.logs.base import LogError, LogReader, Outgoing

logger = logging.getLogger(__name__)

Round: TypeAlias = Callable[[], Awaitable[float | None]]
PASSING: Final = (LogError, StoreError, StoreDamaged, StoreClosed, duckdb.Error, OSError)
"""Errors that a later round may not meet again."""


@dataclass(eq=False)
class PeriodicTask:
    """Calls `round` every `every` seconds, counted from the first one, however long a round takes.
    A round that returns a number is followed by the next after that many seconds instead.

    An error of `passing` is logged under `name`, once while it stays the same, and the next round
    tries again. Any other error ends the task: `stop` of `running` is called.
    """

    name: str
    every: float
    round: Round
    first: float = 0.0
    """Seconds until the first round."""
    last: bool = False
    """Whether a round follows when the block of `running` ends."""
    passing: tuple[type[Exception], ...] = PASSING
    monotonic: Callable[[], float] = time.monotonic
    wait: Callable[[float], Awaitable[object]] | None = None
    """Waits for the next round, instead of for the time or `wake`."""

    def __post_init__(self) -> None:
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reported: tuple[type[Exception], object] | None = None

    def wake(self) -> None:
        """The next round begins now; the one after it at its time. Any thread may call it."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._woken.set)

    async def once(self) -> float | None:
        """One round. Returns its number, None also after an error that may pass."""
        try:
            pause = await self.round()
        except self.passing as error:
            failure = (type(error), error.args)
            if failure != self._reported:
                logger.warning("%s, to be tried again: %s", self.name, error)
            self._reported = failure
            return None
        self._reported = None
        return pause

    @contextlib.asynccontextmanager
    async def running(self, stop: Callable[[], object] = lambda: None) -> AsyncIterator[None]:
        """Runs in the background until the block ends. An error that does not pass calls `stop`,
        which ends the block, and is raised there."""
        task = asyncio.create_task(self._run(), name=self.name)
        task.add_done_callback(lambda done: None if done.cancelled() else stop())
        try:
            yield
        finally:
            task.cancel()
            [failure] = await asyncio.gather(task, return_exceptions=True)
            if self.last and not isinstance(failure, Exception):
                await self.once()
        if isinstance(failure, Exception):
            raise failure

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        due = self.monotonic() + self.first
        if self.first:
            await self._pause(self.first)
        try:
            while True:
                pause = await self.once()
                now = self.monotonic()
                if pause is not None:
                    due = now + pause
                elif now >= due:
                    due += self.every * max(1, math.ceil((now - due) / self.every))
                await self._pause(due - now)
        finally:
            self._loop = None

    async def _pause(self, seconds: float) -> None:
        if self.wait is not None:
            await self.wait(seconds)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()


@contextlib.asynccontextmanager
async def running(
    tasks: Iterable[PeriodicTask], stop: Callable[[], object] = lambda: None
) -> AsyncIterator[None]:
    """Runs all of these in the background until the block ends."""
    async with contextlib.AsyncExitStack() as stack:
        for task in tasks:
            await stack.enter_async_context(task.running(stop))
        yield


def in_thread(work: Callable[[], object]) -> Round:
    """Returns a round that does `work` in a thread, never twice at the same time: a cancelled round
    continues in its thread."""
    lock = threading.Lock()

    def alone() -> None:
        with lock:
            work()

    async def one() -> None:
        await asyncio.to_thread(alone)

    return one


@contextlib.contextmanager
def passing(what: str, partition: int) -> Iterator[None]:
    """Work on a shard, whose errors must not keep the others from theirs: logs one that may pass.
    A closed shard has moved to another worker."""
    try:
        yield
    except StoreClosed:
        pass
    except PASSING as error:
        logger.warning("%s of partition %d, to be tried again: %s", what, partition, error)


# --- timers of partitions -------------------------------------------------------------------------
# Timers that check every open partition periodically alongside the stages, and publish.
#
# Their only output is records of the log. They wait for records in flight: only a store that has
# applied the whole log shows what is still to do, also while it is rebuilt or after days without a
# worker.

D = TypeVar("D", bound=Sized)

SOON_SECONDS = 0.5
"""Delay before checking again whether records in flight have been applied."""
PUBLISHED = (CONVERSATION_TURNS.name, MEMORY_COMMANDS.name)


@dataclass(slots=True)
class _Seen:
    """The positions that the stages of a shard must reach before it has applied everything that was
    in the log when work was first found."""

    published: Mapping[str, int]
    writes: int | None = None


@dataclass(eq=False)
class PartitionTimer(ABC, Generic[D]):
    """Checks all open shards that `shards` returns, which may change at any time, every `seconds`,
    sooner if records are in flight. `what` names it in warnings."""

    what: ClassVar[str]
    seconds: ClassVar[float]

    shards: Callable[[], Mapping[int, Shard]]
    log: LogReader
    append: Callable[[Sequence[Outgoing]], object]
    settings: Settings
    clock: Callable[[], datetime]

    def __post_init__(self) -> None:
        self._seen: dict[Shard, _Seen] = {}
        self._task = PeriodicTask(self.what, self.seconds, self.once)

    @abstractmethod
    def due(self, shard: Shard) -> D:
        """Returns what there is to do, empty for nothing; records in flight may settle it.
        Blocks."""

    @abstractmethod
    async def act(self, partition: int, shard: Shard, due: D) -> None:
        """Does what is due once the store has applied everything that was in the log."""

    def task(self) -> PeriodicTask:
        return self._task

    def busy(self) -> bool:
        """Whether there is something to do in some partition, which then begins now."""
        for shard in self.shards().values():
            with contextlib.suppress(StoreClosed):  # the partition has moved to another worker
                if self.due(shard):
                    self._task.wake()
                    return True
        return False

    async def once(self) -> float | None:
        """Checks every shard; returns the seconds until the next check if records are in flight.
        While some shards take long, the others go on being checked."""
        checks: dict[Shard, asyncio.Task[None]] = {}
        try:
            while True:
                shards = self.shards()
                here = {*shards.values()}
                for known in [*self._seen]:
                    if known not in here:  # a partition may leave and come back
                        self._seen.pop(known, None)
                for partition, shard in shards.items():
                    if shard not in checks:
                        checks[shard] = asyncio.create_task(self._looked(partition, shard))
                if checks:
                    pause = SOON_SECONDS if self._seen else self.seconds
                    await asyncio.wait(checks.values(), timeout=pause)
                for shard in [shard for shard, check in checks.items() if check.done()]:
                    checks.pop(shard).result()
                if not checks:
                    return SOON_SECONDS if self._seen else None
        finally:
            for check in checks.values():
                check.cancel()
            await asyncio.gather(*checks.values(), return_exceptions=True)

    async def _looked(self, partition: int, shard: Shard) -> None:
        with passing(self.what, partition):
            await self.look(partition, shard)

    async def look(self, partition: int, shard: Shard) -> None:
        """Acts once everything is applied that was in the log when work was first found."""
        if not await asyncio.to_thread(self.due, shard):
            self._seen.pop(shard, None)
        elif await asyncio.to_thread(self._has_applied, partition, shard):
            self._seen.pop(shard, None)
            if due := await asyncio.to_thread(self.due, shard):
                await self.act(partition, shard, due)

    def _has_applied(self, partition: int, shard: Shard) -> bool:
        """Blocks. Raises LogError and the errors of a shard."""
        writes = MEMORY_WRITES.name
        seen = self._seen.get(shard)
        if seen is None:
            ends = {topic: self.log.end_offset(topic, partition) for topic in PUBLISHED}
            seen = self._seen[shard] = _Seen(ends)
        if seen.writes is None:
            for topic, end in seen.published.items():
                if self.log.position("normalize", topic, partition) < end:
                    return False
            seen.writes = self.log.end_offset(writes, partition)
        return shard.cursor_of("apply-writes", writes) >= seen.writes


@dataclass(eq=False)
class CommandTimer(PartitionTimer[dict[str, Outgoing]]):
    """Appends the commands that are due, each once: one that is refused is not repeated."""

    _published: dict[Path, set[str]] = field(default_factory=dict, init=False)

    @abstractmethod
    def commands(self, shard: Shard) -> dict[str, Outgoing]:
        """Returns the commands by id that the present state of the store asks for. Blocks."""

    def due(self, shard: Shard) -> dict[str, Outgoing]:
        found = self.commands(shard)
        published = self._published.get(shard.folder, set()) & found.keys()
        self._published[shard.folder] = published
        return {key: record for key, record in found.items() if key not in published}

    async def act(self, partition: int, shard: Shard, due: dict[str, Outgoing]) -> None:
        await asyncio.to_thread(self.append, [*due.values()])
        self._published[shard.folder] |= due.keys()
