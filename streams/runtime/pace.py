"""Sets the size of a batch so that processing it takes about a second.

A batch is committed whole or not at all. With a fixed size, a stop, a crash or a restart would lose
as much time as a slow model takes for the whole batch, and a worker that restarts more often than
that would make no progress. So the size follows the cost of the records: for a stage that calls a
language model it begins at one, grows while batches are quick and shrinks after a slow one. The
results do not depend on it. Time that a batch waits for other stages, the store or the event loop
does not count: smaller batches would wait as long, and more often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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
        rounds = self._rounds_of(records)
        if seconds > self.seconds:
            self.rounds = max(1, int(min(rounds, self.rounds) * self.seconds / seconds))
            return
        grown = rounds * GROWTH
        if seconds > 0:
            grown = int(min(grown, rounds * self.seconds / seconds))
        # A batch that was small for lack of records does not predict the time of a larger one.
        self.rounds = min(max(self.rounds, grown), self.most)

    def _rounds_of(self, records: Sequence[Record]) -> int:
        """Number of consecutive model calls that these records need."""
        rounds = -(-len(records) // self.width)
        if self.by_scope:
            rounds = max([rounds, *Counter(record.key for record in records).values()])
        return max(rounds, 1)


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
