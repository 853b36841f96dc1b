"""The part of erasures that lies in files: the records of the embedded log, the recorded replies of
language models, and the bytes that the stores have freed.

It is executed while no stage works, so that nothing is on its way but what lies in the log and
in outboxes. Every step may be repeated: after a crash the next start begins with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import duckdb

from palimpsest.ops.maintenance.replaced_records import null_values, purge, read_records
from palimpsest.ops.maintenance.scrubbing import scrub_log
from palimpsest.schemas.redaction import Redaction
from palimpsest.schemas.topics import ALL_TOPICS, MEMORY_HISTORY
from palimpsest.stores.shard import Shard
from palimpsest.stores.writing.erasures import (
    Erasure,
    dead_records,
    finish_files,
    finish_log,
    history_events,
    redaction_of,
    scrub_of,
    unfinished,
)
from palimpsest.streams.logs.base import LogError, Outgoing, Record
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.models.recorded import RecordedReplies

logger = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 60.0
"""After which what could not be done is tried again."""


class FileErasing:
    """Of all shards of an embedded log, and of the recorded replies where there are some.
    `monotonic` tells when to try again what could not be done."""

    def __init__(
        self,
        log: EmbeddedLog,
        shards: Sequence[Shard],
        replies: RecordedReplies | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._shards = shards
        self._replies = replies
        self._monotonic = monotonic
        self._not_before = -math.inf

    @property
    def due(self) -> bool:
        """Whether there is something to carry out now."""
        pending = any(shard.has_erasures for shard in self._shards)
        return pending and self._monotonic() >= self._not_before

    async def carry_out(self) -> None:
        """Carry out all that is due; no stage may work meanwhile. What cannot be done now, as on a
        full disk, is reported and tried again after AGAIN_SECONDS."""
        for partition, shard in enumerate(self._shards):
            if not shard.has_erasures:
                continue
            async with shard.lock:
                try:
                    await asyncio.to_thread(
                        carry_out_in, self._log, partition, shard, self._replies
                    )
                except (LogError, OSError, duckdb.Error) as error:
                    self._not_before = self._monotonic() + AGAIN_SECONDS
                    logger.warning("erased texts are still in files: %s", error)

    @contextlib.asynccontextmanager
    async def watching(self, wanted: Callable[[], None]) -> AsyncIterator[None]:
        """Call `wanted` when something has become due that no batch tells of."""

        async def watch() -> None:
            while True:
                await asyncio.sleep(AGAIN_SECONDS)
                if self.due:
                    wanted()

        task = asyncio.create_task(watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def carry_out_in(
    log: EmbeddedLog, partition: int, shard: Shard, replies: RecordedReplies | None = None
) -> None:
    """The same for one partition. Raises LogError, OSError, duckdb.Error, StoreError."""
    with shard.writing() as connection:
        erasures = unfinished(connection)
        in_log = [erasure for erasure in erasures if erasure.phase == "log"]
        if in_log:
            _redact_log(log, partition, [redaction_of(connection, each) for each in in_log])
            scrubs = [each for each in (scrub_of(connection, one) for one in in_log) if each]
            caused: set[str] = set()
            for scrub in scrubs:
                caused |= scrub_log(log, partition, scrub, dead_records(connection, scrub))
            _forget_replies(replies, in_log)
            log.forget_bytes()
            finish_log(connection, in_log, scrubs, caused)
    shard.rewrite()
    with shard.writing() as connection:
        finish_files(connection)
    shard.has_erasures = False


def carry_out_on_kafka(
    append: Callable[[Sequence[Outgoing]], object],
    partition: int,
    shard: Shard,
    replies: RecordedReplies | None = None,
) -> None:
    """The same where single records cannot be removed: null values for what the compacted topic
    holds, and the files of the stores. Before the partition's stages work."""
    with shard.writing() as connection:
        in_log = [each for each in unfinished(connection) if each.phase == "log"]
        for erasure in in_log:
            append(null_values(partition, erasure.scope, history_events(connection, erasure)))
        if in_log:
            _forget_replies(replies, in_log)
            finish_log(connection, in_log)
    shard.rewrite()
    with shard.writing() as connection:
        finish_files(connection)
    shard.has_erasures = False


def _forget_replies(replies: RecordedReplies | None, erasures: Sequence[Erasure]) -> None:
    """All of the scopes: which turn a reply is about is not kept."""
    if replies is not None:
        replies.erase([erasure.scope for erasure in erasures])


def _redact_log(log: EmbeddedLog, partition: int, redactions: Sequence[Redaction]) -> None:
    """Every record is changed by one redaction after another: it is read once for all of them."""
    for topic in ALL_TOPICS:
        for records in read_records(log, topic, partition):
            changed = [
                (record, *redacted)
                for record in records
                if (redacted := _redacted(record, redactions)) is not None
            ]
            if changed and topic is MEMORY_HISTORY:
                for scope in dict.fromkeys(scope for _, scope, _ in changed):
                    purge(log, partition, scope, [each for each, of, _ in changed if of == scope])
            elif changed:
                log.redact(topic.name, partition, {each.offset: new for each, _, new in changed})


def _redacted(record: Record, redactions: Sequence[Redaction]) -> tuple[str, bytes] | None:
    """The scope of what changes the record first, and its new value; None where it stays."""
    if record.value is None:
        return None
    value, scope = record.value, None
    for redaction in redactions:
        redacted = redaction.value(value)
        if redacted != value:
            value, scope = redacted, scope or redaction.scope
    return None if scope is None else (scope, value)
