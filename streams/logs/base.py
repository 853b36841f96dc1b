"""What the runner needs of a log, embedded or Kafka. An offset is the next record to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from palimpsest.schemas.topics import TOPICS, Topic


@dataclass(frozen=True, slots=True)
class Record:
    """Bytes at an offset. `timestamp` is the log's append time, UTC."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: datetime
    headers: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to append. The partition follows from `scope`, even if the key differs, unless it is
    set: a dead letter stays in the partition of its record."""

    topic: str
    scope: str
    key: bytes
    value: bytes | None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """The progress of one consumer in one partition of one topic: the next offset to read."""

    consumer: str
    topic: str
    partition: int
    next_offset: int


class LogError(Exception):
    """A log that cannot be used; the text says what is wrong and what to do."""


UNAVAILABLE_SECONDS = 1.0
"""Delay between two attempts to reach a log that does not answer."""


class LogUnavailable(LogError):
    """A log that does not answer now; callers that can wait retry."""


class LogFull(LogUnavailable):
    """A log without room or memory to write now; nothing of the write was stored."""


class LogInUse(LogError):
    """A log that another process is processing."""


class LogSender(Protocol):
    """Receives finished work: records and positions."""

    async def commit(self, outgoing: Sequence[Outgoing], positions: Sequence[Position]) -> None:
        """Appends `outgoing` in order, durably, then records `positions`.

        The embedded log does both in one transaction; a broker may repeat the records after a crash
        between the two, but never records a position whose records are not durable. Raises LogError
        if the log cannot store them (then no position is recorded)."""
        ...


class LogReader(Protocol):
    """Reading by offset, for start-up, balance and tools."""

    def partitions(self, topic: str) -> int: ...

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset that the next appended record will get; 0 for an empty partition."""
        ...

    def position(self, consumer: str, topic: str, partition: int) -> int:
        """The next offset that `consumer` will read; 0 if it never recorded one."""
        ...

    def read(
        self, topic: str, partition: int, offset: int, max_records: int, max_bytes: int = ...
    ) -> list[Record]:
        """Up to `max_records` records from `offset` on, in offset order; at least one if there
        is any, however large. Offsets may have gaps (compaction)."""
        ...


REMADE: Final = (
    "Stop the worker if one runs. Restore the log that the store was made from; where that is gone,"
    " `palimpsest replay rebuild --swap` makes the store again from this log, and keeps the present"
    " one as a branch"
)


def ahead_of_log(log: LogReader, partition: int, cursors: Iterable[tuple[str, int]]) -> str | None:
    """What is wrong with a store that has processed records which its log does not have, as after
    an older copy of the log was restored, and what to do; None if it has not. `cursors` are topics
    with the store's next offsets."""
    for topic, cursor in cursors:
        end = log.end_offset(topic, partition)
        if cursor > end:
            return (
                f"the store has processed {topic}[{partition}] up to offset {cursor}, but the log"
                f" ends at {end}: they do not belong together. {REMADE}"
            )
    return None


def blocks(
    log: LogReader,
    topic: str,
    partition: int,
    first: int = 0,
    end: int | None = None,
    size: int = 1_000,
) -> Iterator[list[Record]]:
    """Yields the records from `first` up to `end`, exclusive (None: the present end of the log), in
    blocks of up to `size`."""
    end = log.end_offset(topic, partition) if end is None else end
    while first < end:
        records = log.read(topic, partition, first, size)
        within = [record for record in records if record.offset < end]
        if not within:
            return
        yield within
        first = within[-1].offset + 1


def partition_for(scope: str, partitions: int) -> int:
    """The partition of a scope: Kafka's default partitioner (murmur2 of the key, made positive).

    The same function in every producer keeps a scope in one partition number everywhere.
    Source: org.apache.kafka.common.utils.Utils.murmur2 and toPositive.
    """
    return (murmur2(scope.encode()) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """32-bit murmur2 with Kafka's seed, as an unsigned integer."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    length = len(data)
    h = (0x9747B28C ^ length) & mask
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * multiplier & mask
        k = (k ^ (k >> 24)) * multiplier & mask
        h = (h * multiplier & mask) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * multiplier & mask
    h = (h ^ (h >> 13)) * multiplier & mask
    return h ^ (h >> 15)


def topic_named(name: str) -> Topic:
    """Returns the topic. Raises LogError for an unknown name."""
    topic = TOPICS.get(name)
    if topic is None:
        raise LogError(f"there is no topic {name!r}; the topics are {', '.join(TOPICS)}")
    return topic


def check_partition(topic: str, partition: int, partitions: int) -> None:
    """Raises LogError for an unknown topic, or a partition that it has not."""
    topic_named(topic)
    if not 0 <= partition < partitions:
        raise LogError(f"topic {topic!r} has no partition {partition}; it has {partitions}")


def check_position(position: Position, partitions: int) -> None:
    """Raises LogError for a position that no partition has."""
    check_partition(position.topic, position.partition, partitions)
    if position.next_offset < 0:
        raise LogError(f"an offset is not negative: {position}")
