"""Any schedule of operations on the embedded log ends as it does on a plain model of it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from palimpsest.streams.logs.base import Outgoing, Position, Record, partition_for
from palimpsest.streams.logs.embedded import EmbeddedLog
from tests.contract.log_contract import HISTORY, TURNS, WRITES, read_all
from tests.examples import examples

CACHE = "cache-invalidations"
TOPICS = (TURNS, WRITES, HISTORY, CACHE)
PARTITIONS = 2

records = st.builds(
    Outgoing,
    topic=st.sampled_from(TOPICS),
    scope=st.sampled_from(["ann", "bob", "日本", "", "eve 🦉"]),
    key=st.sampled_from([b"", b"a", b"b", b"c\x00\xff"]),
    value=st.none() | st.binary(max_size=40),
    headers=st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=2),
)
consumers = st.sampled_from(["normalize", "audit"])
shares = st.floats(0, 1)


class LogModel(RuleBasedStateMachine):
    """The log beside lists and numbers that are kept by its promises."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.records: dict[tuple[str, int], list[Record]] = defaultdict(list)
        self.ends: dict[tuple[str, int], int] = defaultdict(int)
        self.times: dict[tuple[str, int], datetime] = {}
        self.noted: dict[tuple[str, str, int], int] = {}
        self.open()

    def open(self) -> None:
        # Compaction by itself is out of the model; it has tests of its own.
        self.log = EmbeddedLog(self.folder, PARTITIONS, lambda: self.now, compact_after=1_000_000)

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.folder)

    def appended(self, outgoing: list[Outgoing]) -> list[tuple[int, int]]:
        places = []
        for record in outgoing:
            partition = partition_for(record.scope, PARTITIONS)
            place = (record.topic, partition)
            self.times[place] = max(self.now, self.times.get(place, self.now))
            offset = self.ends[place]
            self.ends[place] += 1
            self.records[place].append(
                Record(
                    record.topic,
                    partition,
                    offset,
                    record.key,
                    record.value,
                    self.times[place],
                    record.headers,
                )
            )
            places.append((partition, offset))
        return places

    @rule(outgoing=st.lists(records, max_size=8))
    def append(self, outgoing: list[Outgoing]) -> None:
        assert self.log.append(outgoing) == self.appended(outgoing)

    @rule(
        outgoing=st.lists(records, max_size=4),
        consumer=consumers,
        topic=st.sampled_from(TOPICS),
        share=shares,
    )
    def commit(self, outgoing: list[Outgoing], consumer: str, topic: str, share: float) -> None:
        self.appended(outgoing)
        offset = round(self.ends[topic, 0] * share)
        asyncio.run(self.log.commit(outgoing, [Position(consumer, topic, 0, offset)]))
        noted = (consumer, topic, 0)
        self.noted[noted] = max(offset, self.noted.get(noted, 0))

    @rule(consumer=consumers, topic=st.sampled_from(TOPICS), share=shares)
    def seek(self, consumer: str, topic: str, share: float) -> None:
        offset = round(self.ends[topic, 1] * share)
        self.log.seek(Position(consumer, topic, 1, offset))
        self.noted[consumer, topic, 1] = offset

    @rule(seconds=st.integers(-100_000, 100_000))
    def set_the_clock(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def compact(self) -> None:
        self.log.compact(HISTORY, timedelta(days=-10_000))
        for partition in range(PARTITIONS):
            place = (HISTORY, partition)
            newest = {record.key: record for record in self.records[place]}
            self.records[place] = sorted(
                (record for record in newest.values() if record.value is not None),
                key=lambda record: record.offset,
            )

    @rule()
    def expire(self) -> None:
        self.log.expire(self.now)
        for partition in range(PARTITIONS):
            self.records[CACHE, partition] = [
                record
                for record in self.records[CACHE, partition]
                if record.timestamp >= self.now - timedelta(days=1)
            ]

    @rule(topic=st.sampled_from([TURNS, CACHE]), share=shares)
    def erase(self, topic: str, share: float) -> None:
        offset = round(self.ends[topic, 0] * share)
        kept = [record for record in self.records[topic, 0] if record.offset != offset]
        assert self.log.erase(topic, 0, [offset]) == len(self.records[topic, 0]) - len(kept)
        self.records[topic, 0] = kept

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.open()

    @invariant()
    def the_log_is_as_the_model(self) -> None:
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                place = (topic, partition)
                assert read_all(self.log, topic, partition, batch=3) == self.records[place]
                assert self.log.end_offset(*place) == self.ends[place]
        for (consumer, topic, partition), offset in self.noted.items():
            assert self.log.position(consumer, topic, partition) == offset


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(max_examples=examples(12), stateful_step_count=25)
