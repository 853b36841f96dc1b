"""The embedded durable log: topics in one SQLite file, no server.

Any number of processes may read it and append to it; one at a time may process it, that is, record
the positions of its consumers. Appends are atomic and fsynced: after a crash an acknowledged append
is complete, and any other is complete or absent."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, Literal, Self

from palimpsest.schemas.topics import ALL_TOPICS, TOPICS
from palimpsest.streams.logs import records
from palimpsest.streams.logs.base import (
    LogError,
    Outgoing,
    Position,
    Record,
    check_partition,
    check_position,
    partition_for,
    topic_named,
)
from palimpsest.streams.logs.logfile import (
    FILE_NAME,
    LOCK_NAME,
    OFFSET_BITS,
    LogLock,
    Reader,
    Writer,
    id_range,
    table,
)
from palimpsest.streams.logs.records import (
    EPOCH,
    append_records,
    microseconds,
    note_position,
    place_records,
    unpack_headers,
    unpack_value,
)

Mode = Literal["process", "publish", "read"]
"""`process`: append and record positions, one process at a time. `publish`: append only, any number
of processes. `read`: write nothing, also in a read-only folder."""

POLL_SECONDS: Final = 0.02
"""How often a waiting reader checks for appends of other processes."""
DEFAULT_COMPACT_AFTER: Final = 10_000
"""Number of dead records that starts an automatic compaction of a compacted topic."""
TOMBSTONE_GRACE: Final = timedelta(days=1)
"""How long an automatic compaction keeps null values, so that slow readers see them (as Kafka
does)."""

DEFAULT_READ_BYTES: Final = 16 * 1024 * 1024
_OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1
_place = lru_cache(maxsize=65_536)(partition_for)


class EmbeddedLog:
    """A LogReader and LogSender on `log.sqlite` in a folder.

    Offsets of a partition count up from 0 without gaps and are never reused, also after a crash, an
    erasure or a compaction. Timestamps are the append time and never decrease within a partition,
    even if the clock does. Usable from any thread. Every method raises LogError with the path and a
    remedy if the file cannot be used; the failed append then wrote nothing, and the next one works
    once the cause is gone."""

    def __init__(
        self,
        folder: Path,
        partitions: int | None,
        clock: Callable[[], datetime],
        mode: Mode = "process",
        compact_after: int = DEFAULT_COMPACT_AFTER,
    ) -> None:
        """Opens the log of `folder`; the writing modes create folder and file if missing.

        The partition count is fixed when the file is created; None accepts the file's own. `clock`
        returns the current time, with a zone. Raises LogError if another process has the log open
        in mode `process` (naming it), for another partition count, for a file of a newer program,
        or for one that is damaged, missing (mode `read`) or read-only."""
        self.path = folder / FILE_NAME
        self.mode = mode
        self._clock = clock
        self._compact_after = compact_after
        self._writer: Writer | None = None
        self._lock: LogLock | None = None
        if partitions is not None and partitions < 1:
            raise LogError(f"log {self.path}: {partitions} partitions; there must be at least 1")
        with contextlib.ExitStack() as undo:
            if mode != "read":
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise LogError(
                        f"cannot make the log's folder {folder}: {error.strerror};"
                        " choose another data folder or make its parent writable"
                    ) from error
                if mode == "process":
                    self._lock = LogLock.acquire(folder / LOCK_NAME, clock())
                    undo.callback(self._lock.release)
                self._writer = Writer(self.path, partitions)
                undo.callback(self._writer.close)
            self._reader = Reader(self.path)
            undo.callback(self._reader.close)
            self._partitions = self._reader.verify(partitions)
            self._opened = undo.pop_all()
        # One thread, so that concurrent commits are appended in the order of their calls.
        self._thread = ThreadPoolExecutor(1, "log")
        self._notifier = Notifier()
        self._watches: dict[asyncio.AbstractEventLoop, _Watch] = {}
        self._closed = False
        self._dead: dict[str, int] = {}

    def close(self) -> None:
        """Finishes the current append, then closes file and lock. A second call does nothing."""
        self._closed = True
        self._thread.shutdown(wait=True)
        self._opened.close()  # the writer after the reader, so that it leaves a file without a WAL

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading --------------------------------------------------------------------------

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
        check_partition(topic, partition, self._partitions)
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
        check_partition(topic, partition, self._partitions)
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

    def values(
        self, topic: str, partition: int, first: int, end: int, size: int = 1_000
    ) -> Iterator[tuple[list[int], list[bytes | None]]]:
        """Yields offsets and values of the records from `first` up to `end`, exclusive, in blocks
        of up to `size` that are bounded as by `read`, which takes half as long again."""
        check_partition(topic, partition, self._partitions)
        query = (
            f"SELECT id, value FROM {table(TOPICS[topic])}"
            " WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?"
        )
        while first < end:
            offsets: list[int] = []
            values: list[bytes | None] = []
            left = DEFAULT_READ_BYTES
            low, high = id_range(partition, first)
            with self._reader.query(query, (low, min(high, low + end - first - 1), size)) as rows:
                for record_id, stored in rows:
                    value = unpack_value(stored)
                    left -= len(value or b"")
                    if values and left < 0:
                        break
                    offsets.append(record_id & _OFFSET_MASK)
                    values.append(value)
            if not offsets:
                return
            yield offsets, values
            first = offsets[-1] + 1

    def position(self, consumer: str, topic: str, partition: int) -> int:
        """The next offset that `consumer` will read; 0 if it never recorded one."""
        check_partition(topic, partition, self._partitions)
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
                    low, high = id_range(partition)
                    with self._reader.query(
                        f"SELECT max(id) FROM {table(topic)} WHERE id BETWEEN ? AND ?", (low, high)
                    ) as rows:
                        newest = rows.fetchone()[0]
                    end = self.end_offset(topic.name, partition)
                    if newest is not None and newest - low >= end:
                        lies = f"record {newest - low} lies past the end {end}"
                        problems.append(f"{topic.name}/{partition}: {lies}")
        except LogError as error:
            return [str(error)]
        return problems

    # --- appending ------------------------------------------------------------------------

    async def commit(self, outgoing: Sequence[Outgoing], positions: Sequence[Position]) -> None:
        """Appends `outgoing` in order and records `positions`, in one transaction, fsynced.

        Runs in the log's thread; concurrent commits run in the order of their calls. A position
        never moves backwards: one smaller than the recorded one is ignored. Positions need mode
        `process`. Raises LogError, also for a position past the end (the log is then older than the
        store of the caller); then nothing was appended or recorded. A cancelled commit may still
        take place."""
        if self._closed:
            raise LogError(f"log {self.path} is closed")
        if outgoing or positions:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._write, (*outgoing,), (*positions,))

    def append(self, outgoing: Sequence[Outgoing]) -> list[tuple[int, int]]:
        """Appends in order, in one transaction, fsynced; returns (partition, offset) of each
        record."""
        return self._write(outgoing, ())

    def append_at(self, timed: Sequence[tuple[datetime, Outgoing]]) -> None:
        """The same with an append time for each record, to copy from another log: after a crash all
        of it is there, or nothing."""
        with self._writing(needs_lock=False) as connection:
            for moment, record in timed:
                append_records(connection, [record], self._place, microseconds(moment))
        self._notifier.notify()

    def place(self, records: Sequence[Record]) -> None:
        """Copies records of another log with `place_records`, all of them or none. For a log
        without readers so far."""
        with self._writing(needs_lock=False) as connection:
            place_records(connection, records)

    def begin_at(self, topic: str, offset: int) -> None:
        """Sets the minimum offset of future records of the topic. For a log without readers so
        far."""
        topic_named(topic)
        with self._writing(needs_lock=False) as connection:
            connection.execute(
                "UPDATE partitions SET next_offset=max(next_offset, ?) WHERE topic=?",
                (offset, topic),
            )

    def _write(
        self, outgoing: Sequence[Outgoing], positions: Sequence[Position]
    ) -> list[tuple[int, int]]:
        with self._writing(needs_lock=bool(positions)) as connection:
            done = append_records(connection, outgoing, self._place, microseconds(self._clock()))
            for position in positions:
                check_position(position, self._partitions)
                note_position(connection, position)
            self._compact_if_due(connection, done.dead)
        self._notifier.notify()
        return done.places

    def _place(self, scope: str) -> int:
        return 0 if self._partitions == 1 else _place(scope, self._partitions)

    @contextlib.contextmanager
    def _writing(self, needs_lock: bool) -> Iterator[sqlite3.Connection]:
        """One transaction on the writing connection, when the mode allows it."""
        if self._writer is None:
            raise LogError(f"log {self.path} is open for reading only; open it in another mode")
        if needs_lock and self._lock is None:
            raise LogError(
                f"log {self.path} is open in mode {self.mode!r}, which may only append;"
                " noting positions and removing records need mode 'process'"
            )
        with self._writer.transaction() as connection:
            yield connection

    def number_it(self, number: int) -> None:
        """Sets the log's `number`. For a log without readers so far."""
        with self._writing(needs_lock=False) as connection:
            connection.execute("INSERT OR REPLACE INTO settings VALUES ('number', ?)", (number,))

    # --- positions ------------------------------------------------------------------------

    def seek(self, position: Position) -> None:
        """Set a position, also backwards: for operators. Needs mode `process`.

        Raises LogError for an offset below 0 or past the end.
        """
        check_position(position, self._partitions)
        with self._writing(needs_lock=True) as connection:
            connection.execute(
                "DELETE FROM positions WHERE consumer=? AND topic=? AND partition=?",
                (position.consumer, position.topic, position.partition),
            )
            note_position(connection, position)
        self._notifier.notify()

    async def wait(self, positions: Iterable[Position], timeout_seconds: float) -> bool:
        """Waits until a record can be read at or after any of `positions` and returns True; returns
        False at the time-out.

        Checks before it waits, so no append is missed. Wakes at once on appends of this log object,
        within POLL_SECONDS on those of other processes."""
        wanted = [*positions]
        for position in wanted:
            check_position(position, self._partitions)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        with self._notifier.listen() as notified, self._watched():
            while True:
                notified.clear()
                if any(map(self.has_record, wanted)):
                    return True
                remaining = deadline - loop.time()
                if remaining <= 0:
                    return False
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(remaining):
                        await notified.wait()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Notifies of appends of other processes for as long as the context lasts. One task looks
        for all who wait in an event loop: with six stages that each looked, a worker without work
        took twice the processor."""
        loop = asyncio.get_running_loop()
        watch = self._watches.get(loop)
        if watch is None:
            task = loop.create_task(self._watch(self._reader.version()), name="log")
            watch = self._watches[loop] = _Watch(task)
        watch.waiting += 1
        try:
            yield
        finally:
            watch.waiting -= 1
            if watch.waiting == 0:
                if not loop.is_closed():  # it closed with all that still waited in it
                    watch.task.cancel()
                del self._watches[loop]

    async def _watch(self, seen: tuple[int, int]) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            # Who waits reads next, and gets the error.
            version = None
            with contextlib.suppress(LogError):
                version = self._reader.version()
            if version is None or version != seen:
                seen = version or seen
                self._notifier.notify()

    # --- removing -------------------------------------------------------------------------

    def compact(self, topic: str, tombstone_grace: timedelta = timedelta(0)) -> int:
        """Keeps only the newest value per key in a compacted topic; keys whose newest value is null
        are removed entirely, once that null value is older than `tombstone_grace`.

        Works in batches that let appends through; may take long, so call it off the event loop.
        Returns how many records were removed. Needs mode `process`."""
        wanted = topic_named(topic)
        if wanted.cleanup != "compact":
            raise LogError(f"topic {topic!r} is not a compacted one; it keeps its records")
        until = microseconds(self._clock() - tombstone_grace)
        return self._in_batches(
            lambda connection: records.compact_batch(
                connection, wanted, until, records.BATCH_RECORDS
            )
        )

    def _compact_if_due(self, connection: sqlite3.Connection, died: Mapping[str, int]) -> None:
        """Compacts one batch inside the current commit: without an fsync or a thread of its own."""
        if self.mode != "process":
            return
        for name, count in died.items():
            topic = TOPICS[name]
            if name in self._dead:
                self._dead[name] += count
            else:
                self._dead[name] = records.count_dead(connection, topic)
            if self._dead[name] < self._compact_after:
                continue
            until = microseconds(self._clock() - TOMBSTONE_GRACE)
            limit = max(records.BATCH_RECORDS, 2 * count)
            removed = records.compact_batch(connection, topic, until, limit)
            self._dead[name] = self._dead[name] - removed if removed == limit else 0

    def expire(self, now: datetime) -> int:
        """Remove the records of topics with a retention that are older than it at `now`.

        Returns how many. In batches, like `compact`. Needs mode `process`.
        """
        removed = 0
        for topic in ALL_TOPICS:
            if topic.retention_days is None:
                continue
            before = microseconds(now - timedelta(days=topic.retention_days))
            for partition in range(self._partitions):
                removed += self._in_batches(
                    partial(
                        records.expire_batch,
                        topic=topic,
                        partition=partition,
                        before=before,
                        limit=records.BATCH_RECORDS,
                    )
                )
        return removed

    def erase(self, topic: str, partition: int, offsets: Iterable[int]) -> int:
        """Remove single records for good, their bytes in the file included. Needs mode `process`.

        Returns how many there were. Their offsets stay unused.
        """
        check_partition(topic, partition, self._partitions)
        ids = [id_range(partition, offset)[0] for offset in offsets]
        with self._writing(needs_lock=True) as connection:
            removed = records.erase_batch(connection, TOPICS[topic], ids)
        if self._writer is not None:
            self._writer.empty_wal()  # it still holds the pages as they were before
        return removed

    def redact(self, topic: str, partition: int, values: Mapping[int, bytes]) -> int:
        """Put other values in the place of those of single records, by offset, and leave no byte
        of theirs in the file once `forget_bytes` was called. Needs mode `process`. Returns how many
        records there were."""
        check_partition(topic, partition, self._partitions)
        ids = {id_range(partition, offset)[0]: value for offset, value in values.items()}
        with self._writing(needs_lock=True) as connection:
            return records.replace_batch(connection, TOPICS[topic], ids)

    def forget_bytes(self) -> None:
        """Removes removed records and replaced values from the write-ahead log. Raises LogError
        while another process reads from it."""
        if self._writer is not None and not self._writer.empty_wal():
            raise LogError(
                f"log {self.path}: another process reads it and keeps removed records in the"
                f" write-ahead log beside it; end that process"
            )

    def _in_batches(self, batch: Callable[[sqlite3.Connection], int]) -> int:
        removed = 0
        while True:
            with self._writing(needs_lock=True) as connection:
                count = batch(connection)
                self._dead.clear()
            removed += count
            if count < records.BATCH_RECORDS:
                return removed


# Waking tasks of any event loop from any thread.


@dataclass(slots=True)
class _Watch:
    """A task that looks for appends of other processes, and how many wait for them."""

    task: asyncio.Task[None]
    waiting: int = 0


class Notifier:
    """Sets every listener's event, each in its own event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    @contextlib.contextmanager
    def listen(self) -> Iterator[asyncio.Event]:
        """An event that `notify` sets, for as long as the context lasts."""
        listener = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._listeners.add(listener)
        try:
            yield listener[1]
        finally:
            with self._lock:
                self._listeners.discard(listener)

    def notify(self) -> None:
        """Sets the events of all listeners. Callable from any thread."""
        with self._lock:
            listeners = tuple(self._listeners)
        for loop, event in listeners:
            # The loop may have been closed since; no one listens there any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)
