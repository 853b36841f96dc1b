"""A broker's deliveries as a source: queued, gathered, and completed from the log.

This module does not know Faust: it receives deliveries, each with a means to acknowledge it. It
counts offsets itself and reads undelivered records from the log: those that the group has
acknowledged but this store has not seen, and those missing before a delivered one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from palimpsest.streams.logs.base import UNAVAILABLE_SECONDS, LogReader, LogUnavailable, Record
from palimpsest.streams.runtime.fair_queue import Gathering
from palimpsest.streams.runtime.pace import Pace
from palimpsest.streams.runtime.source import Interrupted, Lease, in_time_order

FULL_BATCHES = 4
"""A topic is not fetched further while this many batches of it wait; fetching resumes at half."""


class Flow(Protocol):
    """The stream of records of one role."""

    def hold(self, topic: str, partition: int) -> None:
        """Stops fetching the partition for now; records already fetched are still delivered."""
        ...

    def let_go(self, topic: str, partition: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record and its acknowledgement."""

    record: Record
    acknowledge: Callable[[], None]


class DeliverySource:
    """A Source of the deliveries to one stage on one partition in one generation of the group.
    Records may be `put` before it is opened; they wait."""

    def __init__(
        self,
        log: LogReader,
        partition: int,
        topics: Sequence[str],
        pace: Pace,
        lease: Lease,
        flow: Flow,
        gathering: Gathering,
    ) -> None:
        self.log = log
        self.lease = lease
        self.next_offsets = dict.fromkeys(topics, 0)
        self._partition = partition
        self._pace = pace
        self._flow = flow
        self._gathering = gathering
        self._queues: dict[str, deque[Delivery]] = {topic: deque() for topic in topics}
        self._begin: Mapping[str, int] = {}
        self._held: set[str] = set()
        self._taken: list[Delivery] = []
        self._wake = asyncio.Event()
        self._closed = False

    # --- what comes --------------------------------------------------------------------------

    def open(self, next_offsets: Mapping[str, int], committed: Mapping[str, int]) -> None:
        """`next_offsets` is the stage's position in each of its topics, `committed` where the
        deliveries begin."""
        self.next_offsets = dict(next_offsets)
        self._begin = committed

    def put(self, topic: str, delivery: Delivery) -> None:
        """Queues a record, without waiting; those of a partition arrive in offset order."""
        if self._closed:
            return
        queue = self._queues[topic]
        queue.append(delivery)
        self._wake.set()
        if len(queue) >= FULL_BATCHES * self._pace.most:
            self._held.add(topic)
            self._flow.hold(topic, self._partition)

    def wanted(self) -> Mapping[str, int]:
        """The offset that it waits for in each topic; empty while records are queued."""
        return {} if self._closed or any(self._queues.values()) else self.next_offsets

    # --- what is given -----------------------------------------------------------------------

    async def take(self) -> Sequence[Record]:
        for topic in self._queues:
            self._leave_done(topic)
            missing = await self._missing(topic)
            if missing:
                return missing
        if not any(self._queues.values()):
            return []
        full = any(len(queue) >= self._pace.size for queue in self._queues.values())
        await self._gathering.wait(self._pace, full)
        return in_time_order([self._popped(topic) for topic in self._queues])

    async def wait(self) -> None:
        if self._closed or any(self._queues.values()):
            return
        self._wake.clear()
        await self._wake.wait()

    def acknowledge(self, records: Sequence[Record]) -> None:
        self.next_offsets.update((record.topic, record.offset + 1) for record in records)
        done, self._taken = self._taken, []
        self._tell(done)

    def left(self) -> int:
        behind = (self._begin.get(topic, 0) - at for topic, at in self.next_offsets.items())
        fetched = sum(map(len, self._queues.values()))
        return len(self._taken) + fetched + sum(max(0, count) for count in behind)

    def close(self) -> None:
        self._closed = True
        for topic in self._held:
            self._flow.let_go(topic, self._partition)
        self._held.clear()
        for queue in self._queues.values():
            queue.clear()
        self._wake.set()

    # --- one topic ---------------------------------------------------------------------------

    def _tell(self, done: Sequence[Delivery]) -> None:
        why = self.lease.lost()
        if why is not None:
            raise Interrupted(why)
        for delivery in done:
            delivery.acknowledge()

    def _leave_done(self, topic: str) -> None:
        """Acknowledges the records that the stage processed before."""
        queue = self._queues[topic]
        done = []
        while queue and queue[0].record.offset < self.next_offsets[topic]:
            done.append(queue.popleft())
        self._tell(done)
        self._fetch_on(topic)

    async def _missing(self, topic: str) -> Sequence[Record]:
        """Returns the next undelivered records, read from the log."""
        queue = self._queues[topic]
        end = max(self._begin.get(topic, 0), queue[0].record.offset if queue else 0)
        while (start := self.next_offsets[topic]) < end and not self._closed:
            count = min(self._pace.size, end - start)
            try:
                found = await asyncio.to_thread(self.log.read, topic, self._partition, start, count)
            except LogUnavailable:
                await asyncio.sleep(UNAVAILABLE_SECONDS)
                continue
            records = self._pace.taken([record for record in found if record.offset < end])
            if records:
                return records
            self.next_offsets[topic] = end  # removed from the log, by compaction or a purge
        return ()

    def _popped(self, topic: str) -> Sequence[Record]:
        """Removes and returns the start of the queue up to the first gap."""
        queue, expected = self._queues[topic], self.next_offsets[topic]
        ready: list[Record] = []
        for delivery in queue:
            if delivery.record.offset != expected + len(ready) or len(ready) == self._pace.size:
                break
            ready.append(delivery.record)
        batch = self._pace.taken(ready)
        self._taken += [queue.popleft() for _ in batch]
        self._fetch_on(topic)
        return batch

    def _fetch_on(self, topic: str) -> None:
        if topic in self._held and len(self._queues[topic]) <= FULL_BATCHES * self._pace.most // 2:
            self._held.discard(topic)
            self._flow.let_go(topic, self._partition)
