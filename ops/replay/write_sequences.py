"""Which write sequence the store of a partition had after each record of memory-writes.

Decisions name the sequence that they saw. Where records come into another order, as in a log of
another number of partitions, it has to be told again.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from palimpsest.schemas.rows import MemoryRow
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.runtime.batch_record import RecordRun
from palimpsest.streams.store_port import Put


class WriteSequences:
    """A file with the offsets of the records that wrote memories, and the highest sequence number
    that each gave. What is noted twice counts as it was noted last."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    @contextlib.contextmanager
    def opened(cls, file: Path | None) -> Iterator[WriteSequences | None]:
        """The file, made where there is none; nothing for None."""
        if file is None:
            yield None
            return
        with contextlib.closing(sqlite3.connect(file)) as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS sequences(log_offset INTEGER PRIMARY KEY, last INTEGER)"
            )
            yield cls(connection)

    def note(self, runs: Sequence[RecordRun]) -> None:
        """What a batch is about to commit, durably: after a crash all that was committed is
        noted."""
        written = [run for run in runs if run.record.topic == MEMORY_WRITES.name]
        numbers = {run.record.offset: _numbers(run) for run in written}
        with self._connection as connection:
            connection.executemany(
                "DELETE FROM sequences WHERE log_offset = ?", [(offset,) for offset in numbers]
            )
            connection.executemany(
                "INSERT INTO sequences VALUES (?, ?)",
                [(offset, max(found)) for offset, found in numbers.items() if found],
            )


def _numbers(run: RecordRun) -> list[int]:
    writes = () if run.step is None else run.step.writes
    return [
        write.row.write_seq
        for write in writes
        if isinstance(write, Put) and isinstance(write.row, MemoryRow)
    ]
