"""Reading what lies in a log, from the outside: no consumer, no position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic_core import from_json

from palimpsest.streams.logs.base import LogReader, Record

READ_RECORDS = 1_000


@dataclass(frozen=True, slots=True)
class Names:
    """How a record calls itself, what it was caused by and what all began with; None where it
    does not say."""

    id: str | None
    cause: str | None
    correlation: str | None


def names_of(record: Record) -> Names:
    """Of any record, also of one that is no message."""
    try:
        raw = from_json(record.value or b"")
    except ValueError:
        raw = None
    if not isinstance(raw, dict):
        return Names(None, None, None)
    said = (raw.get(name) for name in ("id", "causation_id", "correlation_id"))
    return Names(*(each if isinstance(each, str) else None for each in said))


def recorded(
    log: LogReader, topic: str, partition: int, first: int = 0, end: int | None = None
) -> Iterator[Record]:
    """The records from `first` to before `end`, without it to where the log ends now."""
    last = log.end_offset(topic, partition) if end is None else end
    offset = first
    while offset < last:
        records = log.read(topic, partition, offset, READ_RECORDS)
        if not records:
            return
        for record in records:
            if record.offset >= last:
                return
            yield record
        offset = records[-1].offset + 1
