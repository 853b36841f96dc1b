"""When a batch of delivered records begins, leaving room for more records to arrive first.

A broker delivers a few records at a time, and the cost of a batch hardly depends on its size."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from palimpsest.streams.runtime.pace import Pace

DOUBLING_WAITERS = 4
"""Number of waiting batches that doubles the gathering time."""
ROUNDS = 8
ROOM_SECONDS = 0.001
MAX_GATHER_SECONDS = 0.02
GATHER_SECONDS: Mapping[str, float] = {"decide": 0.2, "graph-persist": 0.5, "audit": 1.0}
"""How long a stage gathers records when no caller waits for them: a turn is searchable as soon as
normalize and apply-writes have processed it."""
MAX_IDLE_GATHER_SECONDS = 3.0
STORE_SHARE = 0.2
"""The maximum share of time that such a stage spends in its stores, over all partitions. The cost
of a commit hardly depends on its size: if each partition committed as soon as it could, a few turns
per second on many partitions would use all of the time."""


class FairQueue:
    """Lets batches begin one after another, with room between them.

    A batch occupies the event loop while it computes and commits. If all tasks began as soon as
    they could, few records would arrive between their batches, and each batch would be small. A
    batch that waits for a model or a broker does not delay others."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = itertools.count()
        self._task: asyncio.Task[None] | None = None

    async def wait(self, gather_seconds: float = 0.0) -> None:
        """Waits until the caller may begin. A caller with a gathering time lets callers without one
        that arrive within it go first; it waits longer the more callers are waiting."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        due = loop.time() + gather_seconds * (1 + len(self._waiting) / DOUBLING_WAITERS)
        heapq.heappush(self._waiting, (due, next(self._count), place))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve())
        await place

    async def _serve(self) -> None:
        while self._waiting:
            _, _, place = heapq.heappop(self._waiting)
            if place.cancelled():
                continue
            place.set_result(None)
            for _ in range(ROUNDS):
                await asyncio.sleep(0)
            await asyncio.sleep(ROOM_SECONDS)


@dataclass(slots=True)
class Gathering:
    """How long one stage of one partition gathers records before it begins a batch. `share` is the
    maximum share of time spent in its store when no caller waits."""

    queue: FairQueue
    stage: str
    share: float = STORE_SHARE

    async def wait(self, pace: Pace, full: bool) -> None:
        """Waits until a batch may begin. `full`: the batch is already as large as it may be."""
        least = GATHER_SECONDS.get(self.stage, 0.0)
        if not full:
            gather = min(pace.last_seconds, MAX_GATHER_SECONDS)
            spare = unawaited_gather_seconds(least, pace.last_store_seconds, self.share)
            await asyncio.sleep(max(gather, spare))
        await self.queue.wait(least)


def unawaited_gather_seconds(least: float, store_seconds: float, share: float) -> float:
    """Returns the seconds to gather records that keep a task, whose last batch spent
    `store_seconds` in its store, within its share of the time. Returns 0 when a caller waits
    (`least` is 0)."""
    return max(least, min(store_seconds / share, MAX_IDLE_GATHER_SECONDS)) if least else 0.0
