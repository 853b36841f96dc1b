"""Reads the records of a log from outside, without a consumer or a position."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic_core import from_json

from palimpsest.ops.opening import open_log
from palimpsest.ops.settings.sections import Settings
from palimpsest.streams.logs.base import LogReader, Record

READ_RECORDS = 1_000
TURN_INTENTS = ("turn", "turn-rejected")


@contextlib.contextmanager
def reading_log(settings: Settings) -> Iterator[LogReader]:
    """Yields a separate reader of the live log, which commits no position and joins no group."""
    if settings.log.kind == "kafka":
        from palimpsest.streams.kafka.log import KafkaLog

        with KafkaLog.open(settings.cluster) as log:
            yield log
        return
    with open_log(settings, "read") as embedded:
        yield embedded


@dataclass(frozen=True, slots=True)
class Names:
    """A record's id, cause and scope; empty where the record has none."""

    id: str
    cause: str
    scope: str


def names_of(record: Record) -> Names:
    """Returns the names of any record, even of one that is not a message."""
    raw = _parsed(record)
    said = (raw.get(name) for name in ("id", "causation_id", "scope"))
    return Names(*(each if isinstance(each, str) else "" for each in said))


def is_of_turn(record: Record) -> bool:
    """Returns whether a record of memory-writes is for a turn."""
    body = _parsed(record).get("body")
    write = body.get("write") if isinstance(body, dict) else None
    return isinstance(write, dict) and write.get("intent") in TURN_INTENTS


def _parsed(record: Record) -> dict[str, object]:
    try:
        raw = from_json(record.value or b"")
    except ValueError:
        return {}
    return raw if isinstance(raw, dict) else {}


def recorded(
    log: LogReader, topic: str, partition: int, first: int = 0, end: int | None = None
) -> Iterator[Record]:
    """Yields the records from `first` up to `end`, exclusive; without it, up to the present end of
    the log."""
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
