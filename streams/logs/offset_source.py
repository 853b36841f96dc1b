"""The embedded log as a source: read by offset, all of its records available at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Protocol

from palimpsest.streams.logs.base import LogReader, Position, Record
from palimpsest.streams.runtime.pace import Pace
from palimpsest.streams.runtime.source import Lease, Owned, in_time_order

IDLE_SECONDS = 1.0
"""How long an idle stage waits before it checks again by itself; new records wake it at once."""


class ReadableLog(LogReader, Protocol):
    """A log that can be waited on."""

    async def wait(self, positions: Iterable[Position], timeout_seconds: float) -> bool: ...


class OffsetSource:
    """A Source on a log that is read by offset. Progress is recorded with a batch's output, in one
    transaction, so there is nothing else to acknowledge."""

    def __init__(
        self,
        log: ReadableLog,
        consumer: str,
        partition: int,
        pace: Pace,
        max_bytes: int,
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
        return in_time_order(some, [records for records in some if self._has_more(records)])

    def _has_more(self, records: Sequence[Record]) -> bool:
        last = records[-1]
        return self.log.end_offset(last.topic, self._partition) > last.offset + 1

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
