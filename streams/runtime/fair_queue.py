"""When a batch of delivered records begins: with room for records to arrive before it.

A broker delivers a few records at a time, and a batch costs about the same however small it is.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from palimpsest.streams.runtime.pace import Pace

CROWD = 4
"""This many waiting batches double the patience."""
ROUNDS = 8
ROOM_SECONDS = 0.001
MAX_GATHER_SECONDS = 0.02
PATIENCE_SECONDS: Mapping[str, float] = {"decide": 0.2, "graph-persist": 0.5, "audit": 1.0}
"""How long a stage lets records gather that no one waits for: a turn can be found once normalize
and apply-writes are done with it."""
MOST_PATIENCE_SECONDS = 3.0
STORE_SHARE = 0.2
"""Part of the time that such a stage may spend in its stores, on all partitions together. A commit
costs about the same however small it is: were each partition to make one as soon as it can, few
turns a second on many partitions would take all of the time."""


class FairQueue:
    """Lets batches begin one after another, with room between them.

    A batch keeps the event loop to itself while it computes and commits. Were all tasks to begin
    as soon as they can, records would hardly arrive between their batches, and each would find
    only a few. One that waits for a model or a broker holds up no one.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = itertools.count()
        self._task: asyncio.Task[None] | None = None

    async def wait(self, patience_seconds: float = 0.0) -> None:
        """Until the caller may begin. One with patience lets those go first that come within it
        and have none; the more are waiting, the longer."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        due = loop.time() + patience_seconds * (1 + len(self._waiting) / CROWD)
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
    """How long one stage of one partition lets records gather before it begins a batch. `share` is
    the part of the time that it may spend in its store where no one waits for it."""

    queue: FairQueue
    stage: str
    share: float = STORE_SHARE

    async def wait(self, pace: Pace, full: bool) -> None:
        """Until a batch may begin. With `full` there is as much as it can take."""
        least = PATIENCE_SECONDS.get(self.stage, 0.0)
        if not full:
            gather = min(pace.last_seconds, MAX_GATHER_SECONDS)
            spare = patience(least, pace.last_store_seconds, self.share)
            await asyncio.sleep(max(gather, spare))
        await self.queue.wait(least)


def patience(least: float, store_seconds: float, share: float) -> float:
    """Seconds to let records gather: what keeps a task whose last batch spent so many in its store
    within its share of the time. None, where somebody waits (`least` is 0)."""
    return max(least, min(store_seconds / share, MOST_PATIENCE_SECONDS)) if least else 0.0
