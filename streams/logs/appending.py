"""Writes records and positions to the log's tables, inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from palimpsest.schemas.topics import TOPICS, Topic
from palimpsest.streams.logs import compaction
from palimpsest.streams.logs.base import LogError, Outgoing, Position, Record
from palimpsest.streams.logs.logfile import OFFSET_BITS, table
from palimpsest.streams.logs.packing import pack_headers, pack_value

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

Row: TypeAlias = tuple[int, int, bytes, bytes | None, str | None]
"""A record as stored: id, timestamp in microseconds, key, value, headers."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Partition and offset of each record, in order; dead records added, by compacted topic."""

    places: list[tuple[int, int]]
    dead: dict[str, int]


def topic_named(name: str) -> Topic:
    """Returns the topic. Raises LogError for an unknown name."""
    topic = TOPICS.get(name)
    if topic is None:
        raise LogError(f"there is no topic {name!r}; the topics are {', '.join(TOPICS)}")
    return topic


def microseconds(moment: datetime) -> int:
    """Returns a moment with a zone as whole microseconds since 1970, exactly."""
    return (moment - EPOCH) // _MICROSECOND


def append_records(
    connection: sqlite3.Connection,
    outgoing: Sequence[Outgoing],
    place: Callable[[str], int],
    now: int,
) -> Appended:
    """Appends in order. `place` returns the partition of a scope for records without one, `now` is
    in microseconds.

    Raises LogError for an unknown topic; the caller then rolls back."""
    tails: dict[tuple[str, int], _Tail] = {}
    rows: dict[str, list[Row]] = defaultdict(list)
    done = Appended([], {})
    for record in outgoing:
        topic = topic_named(record.topic)
        partition = place(record.scope) if record.partition is None else record.partition
        tail = tails.get((topic.name, partition))
        if tail is None:
            tail = tails[topic.name, partition] = _load_tail(connection, topic, partition, now)
        row = (
            partition << OFFSET_BITS | tail.next_offset,
            tail.timestamp,
            record.key,
            pack_value(record.value),
            pack_headers(record.headers),
        )
        done.places.append((partition, tail.next_offset))
        tail.next_offset += 1
        if topic.cleanup == "compact":
            died = _append_keyed(connection, topic, row)
            done.dead[topic.name] = done.dead.get(topic.name, 0) + died
        else:
            rows[topic.name].append(row)
    for name, appended in rows.items():
        _insert(connection, TOPICS[name], appended)
    connection.executemany(
        "UPDATE partitions SET next_offset=?, last_timestamp=? WHERE topic=? AND partition=?",
        [(tail.next_offset, tail.timestamp, *key) for key, tail in tails.items()],
    )
    return done


def place_records(connection: sqlite3.Connection, records: Sequence[Record]) -> None:
    """Inserts records that already have partitions, offsets and times; those of a partition in the
    order of their offsets and past its end, which moves along. Their times may decrease; records
    appended later are never older than any of them. Raises LogError for an unknown topic."""
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    rows: dict[str, list[Row]] = defaultdict(list)
    for record in records:
        topic = topic_named(record.topic)
        moment = microseconds(record.timestamp)
        row = (
            record.partition << OFFSET_BITS | record.offset,
            moment,
            record.key or b"",
            pack_value(record.value),
            pack_headers(record.headers),
        )
        if topic.cleanup == "compact":
            _append_keyed(connection, topic, row)
        else:
            rows[topic.name].append(row)
        _, newest = ends.get((topic.name, record.partition), (0, 0))
        ends[topic.name, record.partition] = (record.offset + 1, max(newest, moment))
    for name, placed in rows.items():
        _insert(connection, TOPICS[name], placed)
    connection.executemany(
        "UPDATE partitions SET next_offset=?, last_timestamp=max(last_timestamp, ?)"
        " WHERE topic=? AND partition=?",
        [(*end, *key) for key, end in ends.items()],
    )


@dataclass(slots=True)
class _Tail:
    next_offset: int
    timestamp: int


def _load_tail(connection: sqlite3.Connection, topic: Topic, partition: int, now: int) -> _Tail:
    next_offset, last = connection.execute(
        "SELECT next_offset, last_timestamp FROM partitions WHERE topic=? AND partition=?",
        (topic.name, partition),
    ).fetchone()
    return _Tail(next_offset, max(now, last))  # a clock set back must not reorder time


def _append_keyed(connection: sqlite3.Connection, topic: Topic, row: Row) -> int:
    record_id, timestamp, key, value, _ = row
    died = compaction.mark_superseded(connection, topic, key, record_id)
    _insert(connection, topic, [row])
    if value is None:
        compaction.mark_tombstone(connection, topic, record_id, timestamp)
        died += 1
    return died


def _insert(connection: sqlite3.Connection, topic: Topic, rows: Sequence[Row]) -> None:
    connection.executemany(f"INSERT INTO {table(topic)} VALUES (?, ?, ?, ?, ?)", rows)


def note_position(connection: sqlite3.Connection, position: Position) -> None:
    """Records a position unless a later one is recorded. Raises LogError if it is past the end."""
    taken = connection.execute(
        "INSERT INTO positions SELECT ?1, topic, partition, ?4 FROM partitions"
        " WHERE topic=?2 AND partition=?3 AND next_offset>=?4"
        " ON CONFLICT DO UPDATE SET next_offset=max(next_offset, excluded.next_offset)",
        (position.consumer, position.topic, position.partition, position.next_offset),
    ).rowcount
    if taken == 0:
        raise LogError(
            f"{position.consumer} cannot be at offset {position.next_offset} of"
            f" {position.topic}/{position.partition}: the log ends before it. Is this log older"
            " than its store? Restore both from the same copy"
        )
