"""Records and positions in the log's tables: writes and removes them, inside the caller's
transaction."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from pydantic_core import from_json

from palimpsest.schemas.topics import TOPICS, Topic
from palimpsest.streams.logs.base import LogError, Outgoing, Position, Record, topic_named
from palimpsest.streams.logs.logfile import OFFSET_BITS, id_range, table

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

Row: TypeAlias = tuple[int, int, bytes, bytes | None, str | None]
"""A record as stored: id, timestamp in microseconds, key, value, headers."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Partition and offset of each record, in order; dead records added, by compacted topic."""

    places: list[tuple[int, int]]
    dead: dict[str, int]


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
            next_offset, last = connection.execute(
                "SELECT next_offset, last_timestamp FROM partitions WHERE topic=? AND partition=?",
                (topic.name, partition),
            ).fetchone()
            # A clock set back must not reorder time.
            tail = tails[topic.name, partition] = _Tail(next_offset, max(now, last))
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


def _append_keyed(connection: sqlite3.Connection, topic: Topic, row: Row) -> int:
    record_id, timestamp, key, value, _ = row
    died = mark_superseded(connection, topic, key, record_id)
    _insert(connection, topic, [row])
    if value is None:
        # It is removed too, once readers had time to see it.
        dead = (topic.name, record_id, timestamp)
        connection.execute("INSERT INTO dead VALUES (?, ?, ?)", dead)
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


# --- removing -------------------------------------------------------------------------------------

# Superseded values, tombstones, expired and erased records. Every function removes one bounded
# batch inside the caller's transaction, so that appends wait for milliseconds only; readers never
# wait (WAL). Offsets are never reused: the next one is stored apart from the records.

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


# --- values and headers as they are stored --------------------------------------------------------

# A turn's text is repeated in its record, in the intent to write it, in its change and in its
# history; compressed, these take a third of the space. Values from before compression are stored
# unchanged, and so are those that it would not shorten.

PACKED: Final = b"\x00z1"
"""Prefix of a compressed value. No JSON begins like this."""

FREQUENT: Final = (
    b'"candidates":[{"memory_id":"","score":0.,"version":1}],"contradiction_risk":false,'
    b'"review_needed":false,"keyword":0.,"vector":0.,"cosine":0.,"metadata":{"proposed_action":'
    b'"ADD","target_id":null,"model":"rules","prompt_version":"rules","as_of":'
    b'{"memory_ids":["","kind":"personal"}}"type":"fact","confidence":0.95,"importance":0.5,'
    b'"temporal_kind":"persistent","categories":[],"round":1,"explicit_intent":false},'
    b'"facts":[{"item_id":""privacy":"none","source_type":"conversation","source_id":"","tags":[],'
    b'"metadata":{},"normalized_content":"","content_hash":"","published_content":"",'
    b'"explicit_long_term_memory_intent":false,"context":[{"speaker":"","occurred_at":"'
    b'"body":{"write":{"intent":"proposals","turn":{"memory_id":"","turn_id":"",'
    b'"session_id":"session_1","speaker":"","role":"assistant","role":"user","content":"",'
    b'"project":null"body":{"event_id":"","event":"created","memory_id":"","old_content":"",'
    b'"new_content":"","changed_by":"pipeline","actor_type":"pipeline","reason":"turn stored",'
    b'"session_id":"","created_at":"2026-"body":{"outcomes":[{"event":"created",'
    b'"item_kind":"turn","item_id":"","memory_id":"","new_content":"","reason":"turn stored",'
    b'"changed_by":"pipeline","actor_type":"pipeline","version":1}],"session_id":"'
    b'{"id":"","schema":"conversation-turn/1","schema":"turn-normalized/1",'
    b'"schema":"facts-extracted/1","schema":"memory-write/1","schema":"memory-change/1",'
    b'"schema":"history-event/1","scope":"","occurred_at":"2026-01-01T00:00:00Z",'
    b'"correlation_id":"","causation_id":"","body":{"turn_id":"'
)
"""Common parts of records, the most frequent last: it gets the shortest references. Part of the
file's format: it never changes."""

_EMPTY: Final = zlib.compressobj(6, zlib.DEFLATED, 15, 8, zlib.Z_DEFAULT_STRATEGY, FREQUENT)
"""Copied for every record, with all of its memory: a level more of that packs records no smaller,
but each takes seven times as long."""


def pack_value(value: bytes | None) -> bytes | None:
    """Returns a value in its stored form, null as null."""
    if value is None:
        return None
    packing = _EMPTY.copy()
    packed = PACKED + packing.compress(value) + packing.flush()
    return packed if len(packed) < len(value) or value.startswith(PACKED) else value


def unpack_value(stored: bytes | None) -> bytes | None:
    """Inverts `pack_value`; also accepts a value from before compression."""
    if stored is None or not stored.startswith(PACKED):
        return stored
    try:
        return zlib.decompressobj(zdict=FREQUENT).decompress(stored[len(PACKED) :])
    except zlib.error:  # a producer's own bytes, from before compression
        return stored


def pack_headers(headers: Mapping[str, bytes]) -> str | None:
    """Headers as JSON text; Latin-1 maps every byte to one character and back."""
    if not headers:
        return None
    return json.dumps({name: value.decode("latin-1") for name, value in headers.items()})


def unpack_headers(packed: str | None) -> dict[str, bytes]:
    """Inverts `pack_headers`."""
    if packed is None:
        return {}
    items: dict[str, str] = from_json(packed)
    return {name: value.encode("latin-1") for name, value in items.items()}
