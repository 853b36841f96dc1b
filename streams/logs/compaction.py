"""Removes records from the log: superseded values, tombstones, expired and erased records.

Every function removes one bounded batch inside the caller's transaction, so that appends wait for
milliseconds only; readers never wait (WAL). Offsets are never reused: the next one is stored apart
from the records."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from palimpsest.schemas.topics import Topic
from palimpsest.streams.logs.logfile import OFFSET_BITS, id_range, table
from palimpsest.streams.logs.packing import pack_value

BATCH_RECORDS: Final = 1000


def mark_superseded(connection: sqlite3.Connection, topic: Topic, key: bytes, new_id: int) -> int:
    """Records which record is superseded by the one at `new_id` with the same key and partition.
    Returns how many records became dead: 0 or 1."""
    low, _ = id_range(new_id >> OFFSET_BITS)
    return connection.execute(
        "INSERT INTO dead(topic, id, since)"
        f" SELECT ?, max(id), 0 FROM {table(topic)} WHERE key=? AND id>=? AND id<?"
        " HAVING max(id) IS NOT NULL"
        " ON CONFLICT(topic, id) DO UPDATE SET since=0",
        (topic.name, key, low, new_id),
    ).rowcount


def mark_tombstone(
    connection: sqlite3.Connection, topic: Topic, record_id: int, timestamp: int
) -> None:
    """Records that the record has a null value: it is removed too, once readers had time to see
    it."""
    connection.execute("INSERT INTO dead VALUES (?, ?, ?)", (topic.name, record_id, timestamp))


def count_dead(connection: sqlite3.Connection, topic: Topic) -> int:
    """How many records of the topic the next compactions may remove, now or later."""
    row = connection.execute("SELECT count(*) FROM dead WHERE topic=?", (topic.name,)).fetchone()
    return int(row[0])


def compact_batch(
    connection: sqlite3.Connection, topic: Topic, tombstones_until: int, limit: int
) -> int:
    """Removes up to `limit` dead records, and tombstones appended up to that time (microseconds).

    Superseded records go first: a tombstone must not be removed before the values that it hides.
    Returns how many were removed; fewer than `limit` means that none is left."""
    ids = connection.execute(
        "SELECT id FROM dead WHERE topic=? AND since<=? ORDER BY since, id LIMIT ?",
        (topic.name, tombstones_until, limit),
    ).fetchall()
    connection.executemany(f"DELETE FROM {table(topic)} WHERE id=?", ids)
    connection.executemany(
        "DELETE FROM dead WHERE topic=? AND id=?", [(topic.name, row[0]) for row in ids]
    )
    return len(ids)


def expire_batch(
    connection: sqlite3.Connection, topic: Topic, partition: int, before: int, limit: int
) -> int:
    """Removes up to `limit` of the partition's oldest records if appended before that time
    (microseconds). Timestamps of a partition never decrease, so the oldest are the first."""
    return connection.execute(
        f"DELETE FROM {table(topic)} WHERE timestamp<? AND id IN"
        f" (SELECT id FROM {table(topic)} WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?)",
        (before, *id_range(partition), limit),
    ).rowcount


def erase_batch(connection: sqlite3.Connection, topic: Topic, ids: Sequence[int]) -> int:
    """Removes these records, regardless of the topic's cleanup policy. Returns how many there
    were."""
    removed = connection.executemany(
        f"DELETE FROM {table(topic)} WHERE id=?", [(record_id,) for record_id in ids]
    ).rowcount
    connection.executemany(
        "DELETE FROM dead WHERE topic=? AND id=?", [(topic.name, record_id) for record_id in ids]
    )
    return removed


def replace_batch(connection: sqlite3.Connection, topic: Topic, values: Mapping[int, bytes]) -> int:
    """Replaces the values of these records, by id. Returns how many there were."""
    return connection.executemany(
        f"UPDATE {table(topic)} SET value=? WHERE id=?",
        [(pack_value(value), record_id) for record_id, value in values.items()],
    ).rowcount
