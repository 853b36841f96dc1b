"""The part of erasures that lies in files: the records of the embedded log, and the bytes that the
stores have freed.

It is carried out while no stage works, so that nothing is on its way but what lies in the log and
in outboxes. Every step may be repeated: after a crash the next start begins with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Final

import duckdb

from palimpsest.schemas.redaction import Redaction
from palimpsest.schemas.topics import ALL_TOPICS, MEMORY_HISTORY, Topic
from palimpsest.stores.shard import Shard
from palimpsest.stores.writing.erasures import (
    Erasure,
    finish_files,
    finish_log,
    redaction_of,
    unfinished,
)
from palimpsest.streams.logs.base import LogError, Outgoing, Record
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.runtime.output import HEADERS

logger = logging.getLogger(__name__)

READ_RECORDS: Final = 1_000


def due(shards: Sequence[Shard]) -> bool:
    """Whether there is anything to carry out."""
    return any(shard.has_erasures for shard in shards)


async def carry_out(log: EmbeddedLog, shards: Sequence[Shard]) -> None:
    """Carry out all that is due; no stage may work meanwhile. What cannot be done now, as on a full
    disk, is told and stays due."""
    for partition, shard in enumerate(shards):
        if not shard.has_erasures:
            continue
        async with shard.lock:
            try:
                await asyncio.to_thread(carry_out_in, log, partition, shard)
            except (LogError, OSError, duckdb.Error) as error:
                logger.warning("erased texts are still in files, to be tried again: %s", error)


def carry_out_in(log: EmbeddedLog, partition: int, shard: Shard) -> None:
    """The same for one partition. Raises LogError, OSError, duckdb.Error, StoreError."""
    with shard.writing() as connection:
        erasures = unfinished(connection)
        in_log = [erasure for erasure in erasures if erasure.phase == "log"]
        for erasure in in_log:
            _redact_log(log, partition, erasure, redaction_of(connection, erasure))
        if in_log:
            log.forget_bytes()
            finish_log(connection, in_log)
    shard.rewrite()
    with shard.writing() as connection:
        finish_files(connection)
    shard.has_erasures = False


def _redact_log(log: EmbeddedLog, partition: int, erasure: Erasure, redaction: Redaction) -> None:
    for topic in ALL_TOPICS:
        for records in _read(log, topic, partition):
            changed = [
                (record, value)
                for record in records
                if (value := _redacted(record, redaction)) is not None
            ]
            if changed and topic is MEMORY_HISTORY:
                _purge(log, partition, erasure.scope, [record for record, _ in changed])
            elif changed:
                values = {record.offset: value for record, value in changed}
                log.redact(topic.name, partition, values)


def _redacted(record: Record, redaction: Redaction) -> bytes | None:
    """The record's new value; None where it stays."""
    if record.value is None:
        return None
    value = redaction.value(record.value)
    return None if value == record.value else value


def _purge(log: EmbeddedLog, partition: int, scope: str, records: Sequence[Record]) -> None:
    """Null values for these keys of a compacted topic, and then nothing of the records."""
    topic = MEMORY_HISTORY.name
    keys = dict.fromkeys(record.key or b"" for record in records)
    log.append([Outgoing(topic, scope, key, None, HEADERS, partition=partition) for key in keys])
    log.erase(topic, partition, [record.offset for record in records])


def _read(log: EmbeddedLog, topic: Topic, partition: int) -> Iterator[list[Record]]:
    offset, end = 0, log.end_offset(topic.name, partition)
    while offset < end:
        records = log.read(topic.name, partition, offset, READ_RECORDS)
        if not records:
            return
        yield records
        offset = records[-1].offset + 1
