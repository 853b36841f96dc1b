"""Where a partition task gets its records from: the embedded log, or what a broker delivers."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Protocol

from palimpsest.streams.logs.base import LogReader, Record


class Lease(Protocol):
    """Whether a partition is this worker's."""

    def lost(self) -> str | None:
        """Why the partition is no longer ours; None while nothing says so."""
        ...

    def sure(self) -> bool:
        """Whether it was confirmed recently enough that no one else can have been given the
        partition."""
        ...


class Owned:
    """The lease of whoever has the log to itself: the folder's lock sees to it."""

    def lost(self) -> str | None:
        return None

    def sure(self) -> bool:
        return True


class Source(Protocol):
    """The records that one stage reads of one partition.

    `next_offsets` is where the stage is in each of its topics: what is before was acknowledged, or
    need not come again. A batch is taken and acknowledged before the next one is taken; one that
    is not acknowledged comes again from a source that is opened at the same offsets.
    """

    @property
    def log(self) -> LogReader:
        """Where what was committed and not sent is looked for. Blocking."""
        ...

    @property
    def lease(self) -> Lease: ...

    @property
    def next_offsets(self) -> Mapping[str, int]: ...

    async def take(self) -> Sequence[Record]:
        """The next batch, of at most the pace's size a topic: each topic's records in offset order,
        none left out, and all as far as it is known in the order in which they came. Empty where
        there is nothing now, and after `close`."""
        ...

    async def wait(self) -> None:
        """Until there may be something to take; `close` ends it."""
        ...

    def acknowledge(self, records: Sequence[Record]) -> None:
        """The batch is done: never to be taken again. Raises Interrupted where the lease is lost,
        and the group is then told nothing."""
        ...

    def left(self) -> int:
        """Records that were not acknowledged, as far as they are known here."""
        ...

    def close(self) -> None:
        """Give nothing more."""
        ...


class Interrupted(Exception):
    """A batch that is let go of, as if it had never begun: the worker stops, or the partition is
    another's."""


class Unsure(Exception):
    """Whether the partition is still ours is not known now: begin the batch again when it is."""


def in_time_order(
    by_topic: Sequence[Sequence[Record]], with_more: Sequence[Sequence[Record]] = ()
) -> list[Record]:
    """Records of several topics in the order of their times, each topic's in its own order: what
    was asked for before something was said comes before it. Of `with_more` the log holds later
    records, so what came after their last one waits for these."""
    until = min((records[-1].timestamp for records in with_more), default=None)
    return [
        record
        for record in heapq.merge(*by_topic, key=lambda record: record.timestamp)
        if until is None or record.timestamp <= until
    ]
