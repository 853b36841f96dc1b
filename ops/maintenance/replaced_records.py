"""Going through the records of an embedded log to put others in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from palimpsest.schemas.topics import MEMORY_HISTORY, Topic
from palimpsest.streams.logs.base import Outgoing, Record
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.runtime.output import HEADERS

READ_RECORDS: Final = 1_000


def read_records(log: EmbeddedLog, topic: Topic, partition: int) -> Iterator[list[Record]]:
    """All that a partition holds when this is called, some at a time."""
    offset, end = 0, log.end_offset(topic.name, partition)
    while offset < end:
        records = log.read(topic.name, partition, offset, READ_RECORDS)
        if not records:
            return
        yield records
        offset = records[-1].offset + 1


def null_values(partition: int, scope: str, keys: Iterable[bytes]) -> list[Outgoing]:
    """What takes keys out of the compacted topic."""
    topic = MEMORY_HISTORY.name
    return [Outgoing(topic, scope, key, None, HEADERS, partition=partition) for key in keys]


def purge(log: EmbeddedLog, partition: int, scope: str, records: Sequence[Record]) -> None:
    """Null values for these keys of a compacted topic, and then nothing of the records."""
    keys = dict.fromkeys(record.key or b"" for record in records)
    log.append(null_values(partition, scope, keys))
    log.erase(MEMORY_HISTORY.name, partition, [record.offset for record in records])
