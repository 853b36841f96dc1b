"""The reading half of the embedded log: records by offset, positions, checks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Final

from palimpsest.schemas.topics import ALL_TOPICS, TOPICS, Topic
from palimpsest.streams.logs.appending import EPOCH, topic_named
from palimpsest.streams.logs.base import LogError, Position, Record
from palimpsest.streams.logs.logfile import OFFSET_BITS, Reader, id_range, table
from palimpsest.streams.logs.packing import unpack_headers, unpack_value

DEFAULT_READ_BYTES: Final = 16 * 1024 * 1024
_OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1


class LogView:
    """A LogReader on the file. Usable from any thread; every method may raise LogError."""

    def __init__(self, path: Path, reader: Reader, partitions: int) -> None:
        self.path = path
        self._reader = reader
        self._partitions = partitions

    def partitions(self, topic: str) -> int:
        """The number of partitions of the topic; all topics of this log have the same number."""
        topic_named(topic)
        return self._partitions

    def number(self) -> int:
        """Distinguishes a repartitioned log from its original and from all others; 0 for one that
        was never repartitioned."""
        with self._reader.query("SELECT value FROM settings WHERE name='number'") as rows:
            row = rows.fetchone()
        return 0 if row is None else int(row[0])

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset that the next appended record will get; 0 for an empty partition."""
        self._check(topic, partition)
        with self._reader.query(
            "SELECT next_offset FROM partitions WHERE topic=? AND partition=?", (topic, partition)
        ) as rows:
            return int(rows.fetchone()[0])

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_records: int,
        max_bytes: int = DEFAULT_READ_BYTES,
    ) -> list[Record]:
        """Up to `max_records` records from `offset` on, in offset order, of at most `max_bytes`
        of keys and values together; at least one if there is any, however large. Offsets may
        have gaps where records were removed."""
        self._check(topic, partition)
        records: list[Record] = []
        size = 0
        with self._reader.query(
            f"SELECT id, timestamp, key, value, headers FROM {table(TOPICS[topic])}"
            " WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
            (*id_range(partition, max(offset, 0)), max_records),
        ) as rows:
            for record_id, timestamp, key, stored, headers in rows:
                value = unpack_value(stored)
                size += len(key or b"") + len(value or b"")
                if records and size > max_bytes:
                    break
                records.append(
                    Record(
                        topic,
                        partition,
                        record_id & _OFFSET_MASK,
                        key,
                        value,
                        EPOCH + timedelta(microseconds=timestamp),
                        unpack_headers(headers),
                    )
                )
        return records

    def newest(self, topic: str, partition: int, key: bytes) -> Record | None:
        """The newest record of a key in a compacted topic (its value may be None), or None."""
        self._check(topic, partition)
        if TOPICS[topic].cleanup != "compact":
            raise LogError(f"topic {topic!r} is not compacted: it has no newest record of a key")
        with self._reader.query(
            f"SELECT max(id) FROM {table(TOPICS[topic])} WHERE key=? AND id BETWEEN ? AND ?",
            (key, *id_range(partition)),
        ) as rows:
            found = rows.fetchone()[0]
        if found is None:
            return None
        records = self.read(topic, partition, found & _OFFSET_MASK, 1)
        return next((record for record in records if record.key == key), None)

    def position(self, consumer: str, topic: str, partition: int) -> int:
        """The next offset that `consumer` will read; 0 if it never recorded one."""
        self._check(topic, partition)
        with self._reader.query(
            "SELECT next_offset FROM positions WHERE consumer=? AND topic=? AND partition=?",
            (consumer, topic, partition),
        ) as rows:
            row = rows.fetchone()
        return 0 if row is None else int(row[0])

    def positions(self) -> list[Position]:
        """Returns every recorded position, ordered by consumer, topic and partition."""
        with self._reader.query(
            "SELECT consumer, topic, partition, next_offset FROM positions ORDER BY 1, 2, 3"
        ) as rows:
            return [Position(*row) for row in rows]

    def has_record(self, position: Position) -> bool:
        """Returns whether there is a record to read at the position or after it."""
        with self._reader.query(
            f"SELECT 1 FROM {table(TOPICS[position.topic])} WHERE id BETWEEN ? AND ? LIMIT 1",
            id_range(position.partition, position.next_offset),
        ) as rows:
            return rows.fetchone() is not None

    def check(self) -> list[str]:
        """Returns the faults of the file, a line each; empty if it is sound. Reads all of it."""
        try:
            with self._reader.query("PRAGMA integrity_check") as rows:
                problems = [str(row[0]) for row in rows if row[0] != "ok"]
            for topic in ALL_TOPICS:
                for partition in range(self._partitions):
                    problems += self._check_end(topic, partition)
        except LogError as error:
            return [str(error)]
        return problems

    def _check_end(self, topic: Topic, partition: int) -> list[str]:
        low, high = id_range(partition)
        with self._reader.query(
            f"SELECT max(id) FROM {table(topic)} WHERE id BETWEEN ? AND ?", (low, high)
        ) as rows:
            newest = rows.fetchone()[0]
        end = self.end_offset(topic.name, partition)
        if newest is None or newest - low < end:
            return []
        return [f"{topic.name}/{partition}: record {newest - low} lies past the end {end}"]

    def _check(self, topic: str, partition: int) -> None:
        topic_named(topic)
        if not 0 <= partition < self._partitions:
            raise LogError(
                f"topic {topic!r} has no partition {partition}; it has {self._partitions}"
            )

    def _checked(self, position: Position) -> Position:
        self._check(position.topic, position.partition)
        if position.next_offset < 0:
            raise LogError(f"an offset is not negative: {position}")
        return position
