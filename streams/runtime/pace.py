"""Sets the size of a batch so that processing it takes about a second.

A batch is committed whole or not at all. With a fixed size, a stop, a crash or a restart would lose
as much time as a slow model takes for the whole batch, and a worker that restarts more often than
that would make no progress. So the size follows the cost of the records: for a stage that calls a
language model it begins at one, grows while batches are quick and shrinks after a slow one. The
results do not depend on it. Time that a batch waits for other stages, the store or the event loop
does not count: smaller batches would wait as long, and more often."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from palimpsest.streams.logs.base import Record
from palimpsest.streams.settings import WorkerSettings
from palimpsest.streams.stage import Stage

GROWTH = 16
"""After a quick batch, the next one may be at most this many times as large: the time of a single
record predicts that of many only roughly. With a larger factor, one cheap record before expensive
ones could cost many seconds; with a smaller one, every start would make more small commits."""
FEW_RECORDS = 8
"""Up to this size the commit dominates the cost of a batch; beyond it the records do."""


@dataclass(slots=True)
class Pace:
    """The size of the next batch of one stage on one partition.

    `seconds` is the target time of a batch, `most` its maximum number of records. `width` is how
    many records a model answers concurrently: fewer would not finish any sooner. With `by_scope`
    the model answers the records of one scope one after another, and only different scopes
    concurrently."""

    seconds: float
    most: int
    width: int = 1
    by_scope: bool = False
    rounds: int = 1
    last_seconds: float = 0.0
    last_store_seconds: float = 0.0
    """Seconds that the last batch spent in the store, if the commit and not the records took
    them."""

    @property
    def size(self) -> int:
        """The maximum number of records of the next batch."""
        return min(self.rounds * self.width, self.most)

    def taken(self, records: Sequence[Record]) -> Sequence[Record]:
        """Returns the first of these records, as many as make the next batch."""
        records = records[: self.size]
        if not self.by_scope:
            return records
        met: Counter[bytes | None] = Counter()
        for number, record in enumerate(records):
            met[record.key] += 1
            if met[record.key] > self.rounds:
                return records[:number]
        return records

    def note(self, records: Sequence[Record], seconds: float, store_seconds: float = 0.0) -> None:
        """Records the time of the last batch, and its part spent in the store."""
        self.last_seconds = seconds
        self.last_store_seconds = store_seconds * min(1.0, FEW_RECORDS / len(records))
        # The consecutive model calls that these records need.
        rounds = max(1, -(-len(records) // self.width))
        if self.by_scope:
            rounds = max([rounds, *Counter(record.key for record in records).values()])
        if seconds > self.seconds:
            self.rounds = max(1, int(min(rounds, self.rounds) * self.seconds / seconds))
            return
        grown = rounds * GROWTH
        if seconds > 0:
            grown = int(min(grown, rounds * self.seconds / seconds))
        # A batch that was small for lack of records does not predict the time of a larger one.
        self.rounds = min(max(self.rounds, grown), self.most)


def pace_of(stage: Stage, limits: WorkerSettings, width: int | None) -> Pace:
    """Returns the initial pace of a stage. `width` is how many of its requests a language model
    answers concurrently, 0 for a stage that only requests embeddings: for its first few records the
    commit dominates the cost, too. None stands for a stage without slow requests, whose first batch
    has the full size."""
    if width is None:
        return Pace(limits.batch_seconds, limits.batch_records, rounds=limits.batch_records)
    if width == 0:
        return Pace(limits.batch_seconds, limits.batch_records, rounds=FEW_RECORDS)
    most = limits.model_batch_records
    return Pace(limits.batch_seconds, most, min(width, most), by_scope=stage.asks_in_order)


# When a batch of delivered records begins, leaving room for more records to arrive first. A
# broker delivers a few records at a time, and the cost of a batch hardly depends on its size.

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
