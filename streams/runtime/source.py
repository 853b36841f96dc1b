"""Where a partition task reads its records: the embedded log, or a broker's deliveries."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Protocol

from palimpsest.streams.logs.base import LogReader, Record


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
