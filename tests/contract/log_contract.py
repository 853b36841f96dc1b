"""What any log promises, as tests. An adapter's test class inherits `LogContract` and gives a
`log` fixture: a fresh, empty log with `PARTITIONS` partitions a topic.

A broker appends and notes in two steps and compacts when it likes; what differs between logs is
said by the class attributes, never by leaving a test out.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

import pytest

from palimpsest.schemas.topics import ALL_TOPICS, Topic
from palimpsest.streams.logs.base import (
    LogError,
    LogReader,
    LogSender,
    Outgoing,
    Position,
    Record,
    partition_for,
)

PARTITIONS = 4
TURNS = "conversation-turns"
WRITES = "memory-writes"
HISTORY = "memory-history"


class Log(LogReader, LogSender, Protocol):
    """Both halves."""


def outgoing(
    text: str,
    scope: str = "ann",
    topic: str = TURNS,
    key: bytes | None = None,
    headers: Mapping[str, bytes] | None = None,
) -> Outgoing:
    return Outgoing(topic, scope, key or scope.encode(), text.encode(), headers or {})


def read_all(log: LogReader, topic: str, partition: int, batch: int = 100) -> list[Record]:
    """Every record of a partition, read as a consumer does."""
    records: list[Record] = []
    offset = 0
    while batch_read := log.read(topic, partition, offset, batch):
        records += batch_read
        offset = batch_read[-1].offset + 1
    return records


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [record.value for record in records]


ANN = partition_for("ann", PARTITIONS)


class LogContract(abc.ABC):
    """The promises of streams/logs/base.py."""

    ATOMIC_POSITIONS = True
    """Records and positions take effect together, or neither."""
    FIRST_OFFSETS_DENSE = True
    """Offsets count up by one (a transactional broker may leave holes)."""

    @pytest.fixture
    @abc.abstractmethod
    def log(self) -> Log: ...

    # --- an empty log -----------------------------------------------------------------------

    @pytest.mark.parametrize("topic", ALL_TOPICS, ids=lambda topic: topic.name)
    def test_every_topic_is_there_and_empty(self, log: Log, topic: Topic) -> None:
        name = topic.name
        assert log.partitions(name) == PARTITIONS
        for partition in range(PARTITIONS):
            assert log.end_offset(name, partition) == 0
            assert log.position("decide", name, partition) == 0
            assert log.read(name, partition, 0, 10) == []

    def test_unknown_topics_and_partitions_are_told(self, log: Log) -> None:
        with pytest.raises(LogError, match="no-such-topic"):
            log.partitions("no-such-topic")
        with pytest.raises(LogError, match="no-such-topic"):
            log.read("no-such-topic", 0, 0, 1)
        with pytest.raises(LogError, match=str(PARTITIONS)):
            log.end_offset(TURNS, PARTITIONS)
        with pytest.raises(LogError):
            log.position("decide", TURNS, -1)

    # --- appending ----------------------------------------------------------------------------

    @pytest.mark.asyncio
    async def test_a_record_comes_back_as_it_was(self, log: Log) -> None:
        before = datetime.now(UTC)
        headers = {"traceparent": b"00-4bf9-01", "binary": bytes(range(256)), "empty": b""}
        await log.commit([Outgoing(TURNS, "ann", b"key\x00\xff", b"\x00value\xff", headers)], [])
        (record,) = log.read(TURNS, ANN, 0, 10)
        assert (record.topic, record.partition, record.offset) == (TURNS, ANN, 0)
        assert (record.key, record.value) == (b"key\x00\xff", b"\x00value\xff")
        assert dict(record.headers) == headers
        assert record.timestamp.utcoffset() == timedelta(0)
        assert abs(record.timestamp - before) < timedelta(minutes=5)

    @pytest.mark.asyncio
    async def test_empty_and_absent_values_differ(self, log: Log) -> None:
        await log.commit([Outgoing(TURNS, "ann", b"k", None), Outgoing(TURNS, "ann", b"", b"")], [])
        absent, empty = log.read(TURNS, ANN, 0, 10)
        assert (absent.key, absent.value) == (b"k", None)
        assert (empty.key, empty.value) == (b"", b"")

    @pytest.mark.asyncio
    async def test_records_keep_their_order_across_commits(self, log: Log) -> None:
        wanted = [f"turn {n}" for n in range(60)]
        for start in range(0, 60, 7):
            await log.commit([outgoing(text) for text in wanted[start : start + 7]], [])
        records = read_all(log, TURNS, ANN, batch=11)
        assert values(records) == [text.encode() for text in wanted]
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        if self.FIRST_OFFSETS_DENSE:
            assert offsets == list(range(60))
        assert log.end_offset(TURNS, ANN) > offsets[-1]

    @pytest.mark.asyncio
    async def test_concurrent_commits_keep_the_order_of_their_calls(self, log: Log) -> None:
        batches = [[outgoing(f"{batch}-{n}") for n in range(5)] for batch in range(20)]
        await asyncio.gather(*(log.commit(batch, []) for batch in batches))
        wanted = [record.value for batch in batches for record in batch]
        assert values(read_all(log, TURNS, ANN)) == wanted

    @pytest.mark.asyncio
    async def test_a_scope_has_the_same_partition_on_every_topic(self, log: Log) -> None:
        scopes = [f"scope {n}" for n in range(20)] + ["日本語", "Zoë", "🦉" * 50]
        topics = [topic.name for topic in ALL_TOPICS]
        await log.commit(
            [outgoing(s, s, topic, key=b"any") for s in scopes for topic in topics], []
        )
        for topic in topics:
            if topic == HISTORY:  # compaction may have removed all but one record of a key
                continue
            for partition in range(PARTITIONS):
                found = [r.value.decode() for r in read_all(log, topic, partition) if r.value]
                assert found == [s for s in scopes if partition_for(s, PARTITIONS) == partition]

    @pytest.mark.asyncio
    async def test_timestamps_never_decrease_within_a_partition(self, log: Log) -> None:
        for n in range(10):
            await log.commit([outgoing(str(n))], [])
        times = [record.timestamp for record in read_all(log, TURNS, ANN)]
        assert times == sorted(times)

    @pytest.mark.asyncio
    async def test_an_empty_commit_does_nothing(self, log: Log) -> None:
        await log.commit([], [])
        assert log.end_offset(TURNS, ANN) == 0

    @pytest.mark.asyncio
    async def test_what_a_failed_commit_held_is_nowhere(self, log: Log) -> None:
        with pytest.raises(LogError, match="no-such-topic"):
            await log.commit(
                [outgoing("good"), outgoing("bad", topic="no-such-topic")],
                [Position("decide", TURNS, ANN, 0)],
            )
        if self.ATOMIC_POSITIONS:
            assert log.read(TURNS, ANN, 0, 10) == []
        assert log.position("decide", TURNS, ANN) == 0
        await log.commit([outgoing("after")], [])
        assert values(read_all(log, TURNS, ANN))[-1] == b"after"

    @pytest.mark.asyncio
    async def test_a_large_record(self, log: Log) -> None:
        text = "x" * 900_000
        await log.commit([outgoing(text), outgoing("next")], [])
        assert values(read_all(log, TURNS, ANN)) == [text.encode(), b"next"]

    # --- reading ------------------------------------------------------------------------------

    @pytest.mark.asyncio
    async def test_reading_is_bounded_by_records(self, log: Log) -> None:
        await log.commit([outgoing(str(n)) for n in range(10)], [])
        assert len(log.read(TURNS, ANN, 0, 3)) == 3
        assert values(log.read(TURNS, ANN, 4, 3)) == [b"4", b"5", b"6"]
        assert values(log.read(TURNS, ANN, 8, 3)) == [b"8", b"9"]
        assert log.read(TURNS, ANN, 10, 3) == []
        assert log.read(TURNS, ANN, 1_000_000, 3) == []

    @pytest.mark.asyncio
    async def test_reading_is_bounded_by_bytes_but_gives_at_least_one(self, log: Log) -> None:
        await log.commit([outgoing("x" * 1000) for _ in range(10)], [])
        assert len(log.read(TURNS, ANN, 0, 10, 3500)) == 3
        assert len(log.read(TURNS, ANN, 0, 10, 1)) == 1
        assert len(log.read(TURNS, ANN, 9, 10, 1)) == 1

    @pytest.mark.asyncio
    async def test_partitions_are_apart(self, log: Log) -> None:
        other = next(s for s in map(str, range(99)) if partition_for(s, PARTITIONS) != ANN)
        await log.commit([outgoing("a"), outgoing("b", other), outgoing("c")], [])
        assert values(read_all(log, TURNS, ANN)) == [b"a", b"c"]
        assert values(read_all(log, TURNS, partition_for(other, PARTITIONS))) == [b"b"]

    # --- positions ----------------------------------------------------------------------------

    @pytest.mark.asyncio
    async def test_positions_are_noted_with_the_records(self, log: Log) -> None:
        await log.commit([outgoing("in")], [])
        await log.commit([outgoing("out", topic=WRITES)], [Position("normalize", TURNS, ANN, 1)])
        assert values(read_all(log, WRITES, ANN)) == [b"out"]
        assert log.position("normalize", TURNS, ANN) == 1
        assert log.position("decide", TURNS, ANN) == 0
        assert log.position("normalize", WRITES, ANN) == 0

    @pytest.mark.asyncio
    async def test_positions_without_records_and_several_at_once(self, log: Log) -> None:
        await log.commit([outgoing(str(n)) for n in range(5)], [])
        await log.commit(
            [], [Position("normalize", TURNS, ANN, 3), Position("audit", TURNS, ANN, 5)]
        )
        assert log.position("normalize", TURNS, ANN) == 3
        assert log.position("audit", TURNS, ANN) == 5

    @pytest.mark.asyncio
    async def test_a_position_never_moves_backwards(self, log: Log) -> None:
        await log.commit([outgoing(str(n)) for n in range(5)], [])
        for offset in (2, 4, 3, 0):
            await log.commit([], [Position("normalize", TURNS, ANN, offset)])
        assert log.position("normalize", TURNS, ANN) == 4
        await log.commit(
            [], [Position("normalize", TURNS, ANN, 5), Position("normalize", TURNS, ANN, 1)]
        )
        assert log.position("normalize", TURNS, ANN) == 5

    # --- compaction ---------------------------------------------------------------------------

    @pytest.mark.asyncio
    async def test_the_newest_value_of_a_key_is_always_there(self, log: Log) -> None:
        for round_ in range(5):
            await log.commit(
                [outgoing(f"{key} {round_}", topic=HISTORY, key=key.encode()) for key in "abc"], []
            )
        newest = {record.key: record.value for record in read_all(log, HISTORY, ANN)}
        assert newest == {b"a": b"a 4", b"b": b"b 4", b"c": b"c 4"}
