"""A year of a scope's life in the record's time: turns, recalls, confirmations and nightly decay,
and the same computed from the formulas, apart from the program.

`python -m tests.a_year 10000` runs it with so many turns and prints what faded and what stayed.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from palimpsest.ops.lifecycle.access import AccessRecorder
from palimpsest.ops.lifecycle.accesses import AccessBuffer
from palimpsest.ops.lifecycle.decay import decay
from palimpsest.ops.operations.memories import Get, Recall
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.scheduling.jobs import JobContext
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.schemas.commands import ConfirmCommand
from palimpsest.streams.logs.base import Outgoing
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.messages import turn

DAY = timedelta(days=1)
PEOPLE = ("Ana", "Ben", "Rita", "Omar", "Li", "Eva", "Tom", "Noa")
VERBS = ("likes", "works with", "bought", "visited", "dislikes", "studies")


@dataclass
class ByHand:
    """What the formulas say of one memory: after its last access (`begin`) its confidence was
    `base`, which fading takes from and the next access restores."""

    base: float
    begin: datetime
    importance: float
    accesses: int = 0
    rate: float = 0.1
    last_night: datetime | None = None
    faded_on: datetime | None = None

    @property
    def confidence(self) -> float:
        if self.last_night is None or self.last_night <= self.begin:
            return self.base
        days = (self.last_night - self.begin) / DAY
        return self.base * math.exp(-self.rate * days**0.8)

    def access(self, at: datetime) -> None:
        self.accesses += 1
        more = 0.05 * math.log(1 + self.accesses / 20)
        self.base, self.begin = min(1.0, self.base + more), at

    def shown(self, now: datetime) -> float:
        return self.importance * 0.95 ** ((now - self.begin) / DAY)


@dataclass
class Year:
    """A scope's life in `folder`, on a clock that the test moves. Turns and recalls come on every
    `every`-th day, decay every night."""

    folder: Path
    turns: int
    days: int = 365
    every: int = 1
    seed: int = 1
    told: dict[str, ByHand] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.pipeline = Pipeline(self.folder, pipeline_settings(FULL))
        self.accesses = AccessBuffer()
        self.said: list[str] = []

    def live(self) -> None:
        for day in range(self.days):
            if day % self.every == 0:
                until = min(day + self.every, self.days)
                self._say(self.turns * until // self.days - self.turns * day // self.days)
                asyncio.run(self._ask())
            if day % 30 == 0:
                self._confirm()
            self._sleep()
        self.pipeline.run()

    def _sources(self) -> Sources:
        running = self.pipeline
        known = (running.settings, running.log, {0: running.shard}, 1)
        return Sources(
            *known,
            running.embedding,
            running.log.append,
            now=running.clock,
            accesses=self.accesses,
        )

    def _say(self, count: int) -> None:
        running = self.pipeline
        for _ in range(count):
            number = len(self.said)
            chosen = (self.chance.choice(PEOPLE), self.chance.choice(VERBS))
            self.said.append(f"{chosen[0]} {chosen[1]} thing{number}")
            running.ingest(turn(self.said[-1], number, occurred_at=running.clock()))
        running.run()
        for row in running.rows("FROM memory_rows WHERE type <> 'episodic' AND NOT is_deleted"):
            if row["memory_id"] not in self.told:
                known = (row["confidence"], row["created_at"], row["importance"])
                self.told[row["memory_id"]] = ByHand(*known)

    async def _ask(self) -> None:
        """The same few things are asked again and again, and some things once."""
        running, sources = self.pipeline, self._sources()
        queries = DirectQueries(sources)
        asked = [self.said[index] for index in (0, 1) if index < len(self.said)]
        asked += self.chance.choices(self.said, k=self.every)
        for text in asked:
            running.clock.advance(minutes=7)
            answer = await queries.answer(Recall(text, "ana", limit=1, types=("fact",)))
            self._accessed([each["id"] for each in answer["results"]])
            self.counts["recalls"] += 1
        if self.told:
            memory_id = self.chance.choice(sorted(self.told))
            running.clock.advance(minutes=7)
            await queries.answer(Get(memory_id))
            self._accessed([memory_id])
            self.counts["gets"] += 1
        known = (running.log.append, running.settings, running.clock)
        AccessRecorder(self.accesses, lambda: {0: running.shard}, *known).flush()
        sources.sql.close()
        await asyncio.to_thread(running.run)

    def _accessed(self, memory_ids: list[str]) -> None:
        for memory_id in memory_ids:
            known = self.told[memory_id]
            if known.faded_on is None:
                known.access(self.pipeline.clock())
                self.counts["accesses"] += 1

    def _confirm(self) -> None:
        alive = [key for key in sorted(self.told) if self.told[key].faded_on is None]
        memory_id = self.chance.choice(alive)
        self.counts["confirms"] += 1
        self.pipeline.command(ConfirmCommand(memory_id=memory_id), first=self.counts["confirms"])
        self.pipeline.run()
        known = self.told[memory_id]
        known.base, known.rate = 1.0, 0.0

    def _sleep(self) -> None:
        """To three in the morning, when the job runs."""
        running = self.pipeline
        clock = running.clock
        clock.time = clock().replace(hour=3, minute=0) + DAY
        night(running, clock())
        for known in self.told.values():
            if known.faded_on is None:
                known.last_night = clock()
                if known.rate and known.confidence < 0.05:
                    known.faded_on = clock()
        clock.advance(hours=6)

    def differences(self) -> list[str]:
        """Where the store is not what the formulas say."""
        found = []
        rows = {
            row["memory_id"]: row
            for row in self.pipeline.rows("FROM memory_rows WHERE type <> 'episodic'")
        }
        for key, known in self.told.items():
            row = rows[key]
            if bool(row["is_deleted"]) != (known.faded_on is not None):
                found.append(f"{key}: deleted {row['is_deleted']}, by hand {known.faded_on}")
            if not math.isclose(row["confidence"], known.confidence, abs_tol=1e-9):
                found.append(f"{key}: confidence {row['confidence']}, by hand {known.confidence}")
            if row["access_count"] != known.accesses:
                found.append(f"{key}: {row['access_count']} accesses, by hand {known.accesses}")
            last = row["last_accessed"] or row["created_at"]
            if last != known.begin:
                found.append(f"{key}: last accessed {last}, by hand {known.begin}")
        return found

    async def shown(self) -> dict[str, tuple[float, float]]:
        """The shown importance of the active facts, and the same by hand."""
        sources = self._sources()
        queries, now = DirectQueries(sources), self.pipeline.clock()
        found: dict[str, tuple[float, float]] = {}
        for key, known in self.told.items():
            if known.faded_on is None:
                memory: Any = await queries.answer(Get(key))
                found[key] = (memory["shown_importance"], known.shown(now))
        sources.sql.close()
        return found


def night(running: Pipeline, at: datetime) -> str:
    """Runs the nightly job, which appends; returns what it says."""

    def append(records: Any) -> object:
        given: list[Outgoing] = list(records)
        return running.log.append(given)

    context = JobContext(running.shard, 0, at, running.settings, running.log, append)
    told = asyncio.run(decay(context))
    # Each record of a night fades up to its own time: all of them are executed before the next.
    running.run("normalize", "apply-writes")
    return told


def main(turns: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        year = Year(Path(folder) / "live", turns, every=7)
        year.live()
        took = time.monotonic() - began
        different = year.differences()
        shown = asyncio.run(year.shown())
        worst = max((abs(a - b) for a, b in shown.values()), default=0.0)
        gone = sum(known.faded_on is not None for known in year.told.values())
        kept = len(year.told) - gone
        print(f"{turns} turns, {len(year.told)} facts, {dict(year.counts)}, {took:.0f} s")
        print(f"faded {gone}, stayed {kept}; differences from the table: {len(different)}")
        print(*different[:5], sep="\n")
        print(f"largest difference of a shown importance: {worst:.2g}")
        sizes = year.pipeline.rows("SELECT count(*) AS n FROM recall_results")
        print(f"recorded results: {sizes[0]['n']}")
        before = year.pipeline.state()
        year.pipeline.close()
        from tests.flows.test_erasing import rebuilt

        began = time.monotonic()
        with rebuilt(year.pipeline, Path(folder) / "anew") as again:
            print(f"rebuilt in {time.monotonic() - began:.0f} s, equal: {again.state() == before}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
