"""Work that is repeated alongside the stages of a worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import duckdb

from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.database.damage import StoreDamaged
from palimpsest.stores.shard import StoreError
from palimpsest.streams.logs.base import LogError

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
        self._reported: tuple[type[Exception], object] | None = None

    def wake(self) -> None:
        """The next round begins now; the one after it at its time."""
        self._woken.set()

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
        due = self.monotonic() + self.first
        if self.first:
            await self._pause(self.first)
        while True:
            pause = await self.once()
            now = self.monotonic()
            if pause is not None:
                due = now + pause
            elif now >= due:
                due += self.every * max(1, math.ceil((now - due) / self.every))
            await self._pause(due - now)

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
