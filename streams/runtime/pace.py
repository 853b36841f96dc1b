"""How many records to take at once, so that what is kept together takes about a second.

A batch is kept whole or not at all. Were its size fixed, a stop, a crash or a restart would throw
away as much time as a slow model takes for all of it, and a worker that is restarted more often
than that would never get on. So the size follows what records cost: where a language model is asked
it begins at one, grows while batches are quick and shrinks as soon as one was slow. What comes out
does not depend on it. What a batch waits for other stages, for the store or the event loop, is no
cost of its records: smaller batches would wait as long, and more often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from palimpsest.streams.logs.base import Record
from palimpsest.streams.settings import WorkerSettings
from palimpsest.streams.stage import Stage

GROWTH = 16
"""A quick batch is followed by one of at most so many times as many records: a single record says
little of what many cost. Were it more, one cheap record before dear ones could cost many seconds;
were it less, every start would make more small commits."""
FEW_RECORDS = 8
"""Of so many it is the commit that costs; of more the records do."""


@dataclass(slots=True)
class Pace:
    """The size of the next batch of one stage on one partition.

    `seconds` is what a batch should take, `most` its records at most. `width` is how many records
    a model answers at the same time: fewer would not be done any sooner. With `by_scope` it
    answers those of one scope one after another, and only different scopes at the same time.
    """

    seconds: float
    most: int
    width: int = 1
    by_scope: bool = False
    rounds: int = 1
    last_seconds: float = 0.0
    last_store_seconds: float = 0.0
    """What the last batch took in the store, where that was the commit and not the records."""

    @property
    def size(self) -> int:
        """Records of the next batch, at most."""
        return min(self.rounds * self.width, self.most)

    def taken(self, records: Sequence[Record]) -> Sequence[Record]:
        """The beginning of these records that makes the next batch."""
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
        """What the last batch took, and what of it in the store."""
        self.last_seconds = seconds
        self.last_store_seconds = store_seconds * min(1.0, FEW_RECORDS / len(records))
        rounds = self._rounds_of(records)
        if seconds > self.seconds:
            self.rounds = max(1, int(min(rounds, self.rounds) * self.seconds / seconds))
            return
        grown = rounds * GROWTH
        if seconds > 0:
            grown = int(min(grown, rounds * self.seconds / seconds))
        # A batch that was small for want of records says nothing of what a larger one costs.
        self.rounds = min(max(self.rounds, grown), self.most)

    def _rounds_of(self, records: Sequence[Record]) -> int:
        """How often a model is asked one after another for these."""
        rounds = -(-len(records) // self.width)
        if self.by_scope:
            rounds = max([rounds, *Counter(record.key for record in records).values()])
        return max(rounds, 1)


def pace_of(stage: Stage, limits: WorkerSettings, width: int | None) -> Pace:
    """How a stage begins. `width` is how many of its questions a language model answers at the same
    time, 0 for a stage that asks for embeddings only: of the first few it is the commit that costs,
    too. With None it asks nothing that takes its time, and its first batch is a full one."""
    if width is None:
        return Pace(limits.batch_seconds, limits.batch_records, rounds=limits.batch_records)
    if width == 0:
        return Pace(limits.batch_seconds, limits.batch_records, rounds=FEW_RECORDS)
    most = limits.model_batch_records
    return Pace(limits.batch_seconds, most, min(width, most), by_scope=stage.asks_in_order)
