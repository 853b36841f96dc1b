"""Erasure in files: records of the embedded log, recorded replies of language models, and bytes
that the stores have freed.

It runs while no stage works, so that only the log and the outboxes hold data in flight. Every step
is idempotent: after a crash the next start begins with it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import duckdb
from pydantic import JsonValue

from palimpsest.ops.maintenance.periodic import PeriodicTask
from palimpsest.schemas.redaction import Redaction
from palimpsest.schemas.scrubbing import Scrub
from palimpsest.schemas.topics import (
    ALL_TOPICS,
    CONVERSATION_TURNS,
    MEMORY_CHANGES,
    MEMORY_COMMANDS,
    MEMORY_HISTORY,
    MEMORY_WRITES,
    Topic,
)
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
from palimpsest.streams.runtime.output import HEADERS

# --- replaced records -----------------------------------------------------------------------------
# Reads the records of an embedded log to replace them.

READ_RECORDS: Final = 1_000


def read_records(log: EmbeddedLog, topic: Topic, partition: int) -> Iterator[list[Record]]:
    """Yields, in batches, the records that a partition holds when iteration starts."""
    offset, end = 0, log.end_offset(topic.name, partition)
    while offset < end:
        records = log.read(topic.name, partition, offset, READ_RECORDS)
        if not records:
            return
        yield records
        offset = records[-1].offset + 1


def null_values(partition: int, scope: str, keys: Iterable[bytes]) -> list[Outgoing]:
    """Returns tombstones that remove keys from the compacted topic."""
    topic = MEMORY_HISTORY.name
    return [Outgoing(topic, scope, key, None, HEADERS, partition=partition) for key in keys]


def purge(log: EmbeddedLog, partition: int, scope: str, records: Sequence[Record]) -> None:
    """Appends tombstones for the keys of these records of a compacted topic, then erases the
    records."""
    keys = dict.fromkeys(record.key or b"" for record in records)
    log.append(null_values(partition, scope, keys))
    log.erase(MEMORY_HISTORY.name, partition, [record.offset for record in records])


# --- scrubbing ------------------------------------------------------------------------------------
# Removes from the log of a scope that was erased as a whole what belongs to no memory: commands,
# names, levels of privacy, and records that could not be processed.

_IN_ORDER: Final = (MEMORY_COMMANDS, MEMORY_WRITES, MEMORY_CHANGES)
"""Topics that contain the erasure: records before it are older than the erasure. Each record of one
topic follows from a record of the previous topic."""


def scrub_log(
    log: EmbeddedLog, partition: int, scrub: Scrub, dead: Collection[tuple[str, int]]
) -> set[str]:
    """Scrubs the records of a scope from before its erasure. `dead` holds the topics and offsets of
    records that could not be processed. Returns the ids of the commands, writes and changes from
    before the erasure."""
    told = _Told(scrub, frozenset(dead))
    for topic in (*_IN_ORDER, *(each for each in ALL_TOPICS if each not in _IN_ORDER)):
        for records in read_records(log, topic, partition):
            before = told.before(topic, records)
            changed = {record.offset: value for record, value in before if value != record.value}
            if changed and topic is MEMORY_HISTORY:
                gone = [record for record, _ in before if record.offset in changed]
                purge(log, partition, scrub.scope, gone)
            elif changed:
                log.redact(topic.name, partition, changed)
            if told.is_over:
                break
        told.is_over = False
    return told.causes


@dataclass(slots=True)
class _Told:
    """The records from before the erasure, as far as the topics have been read."""

    scrub: Scrub
    dead: frozenset[tuple[str, int]]
    causes: set[str] = field(default_factory=set)
    is_over: bool = False

    def before(self, topic: Topic, records: Sequence[Record]) -> list[tuple[Record, bytes]]:
        """Returns the scope's records from before the erasure, each with its scrubbed value."""
        found = []
        for record in records:
            raw = _message(record)
            is_dead = (topic.name, record.offset) in self.dead
            own = self.scrub.own
            if topic in _IN_ORDER and not own.isdisjoint(_ids(raw, "id", "causation_id")):
                own |= _ids(raw, "id", "correlation_id")
                self.is_over = True
                break
            if record.value is None or not (is_dead or self._was_before(topic, record, raw)):
                continue
            if topic in _IN_ORDER:
                self.causes |= _ids(raw, "id", "correlation_id")
            is_turn = topic is CONVERSATION_TURNS
            found.append((record, self.scrub.value(record.value, is_dead and is_turn)))
        return found

    def _was_before(self, topic: Topic, record: Record, raw: dict[str, JsonValue]) -> bool:
        if raw.get("scope") != self.scrub.scope:
            return False
        if topic in _IN_ORDER:
            return True
        causes = _ids(raw, "correlation_id")
        if self.scrub.tells_of_others(raw) or not self.scrub.own.isdisjoint(causes):
            return False
        is_known = not self.causes.isdisjoint(causes)
        return is_known or record.timestamp <= self.scrub.at


def _message(record: Record) -> dict[str, JsonValue]:
    try:
        raw: JsonValue = json.loads(record.value or b"")
    except (ValueError, RecursionError):
        return {}
    return raw if isinstance(raw, dict) else {}


def _ids(raw: dict[str, JsonValue], *names: str) -> set[str]:
    return {each for name in names if isinstance(each := raw.get(name), str)}


# --- erasing --------------------------------------------------------------------------------------

logger = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 60.0
"""Delay before a failed erasure is retried."""


class FileErasing:
    """Erases in all shards of an embedded log, and in the recorded replies if there are any.
    `monotonic` is the clock that times retries."""

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
        """Whether an erasure is pending and may run now."""
        pending = any(shard.has_erasures for shard in self._shards)
        return pending and self._monotonic() >= self._not_before

    async def execute(self) -> None:
        """Runs all pending erasures; no stage may work meanwhile. A failure, for example of a full
        disk, is logged and retried after AGAIN_SECONDS."""
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

    def watching(self, wanted: Callable[[], None]) -> PeriodicTask:
        """Calls `wanted` when an erasure has become due without a batch."""

        async def look() -> None:
            if self.due:
                wanted()

        return PeriodicTask("pending erasures", AGAIN_SECONDS, look, first=AGAIN_SECONDS)


def carry_out_in(
    log: EmbeddedLog, partition: int, shard: Shard, replies: RecordedReplies | None = None
) -> None:
    """Runs the pending erasures of one partition. Raises LogError, OSError, duckdb.Error and
    StoreError."""
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
    """Runs the pending erasures of one partition on Kafka, where single records cannot be removed:
    appends tombstones to the compacted topic and rewrites the files of the stores. Call it before
    the partition's stages work."""
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
    """Erases all replies of the scopes: replies do not record the turn that they are about."""
    if replies is not None:
        replies.erase([erasure.scope for erasure in erasures])


def _redact_log(log: EmbeddedLog, partition: int, redactions: Sequence[Redaction]) -> None:
    """Applies all redactions to each record in turn, so that the log is read once."""
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
    """Returns the scope of the first redaction that changes the record, and the record's new value;
    None if no redaction changes it."""
    if record.value is None:
        return None
    value, scope = record.value, None
    for redaction in redactions:
        redacted = redaction.value(value)
        if redacted != value:
            value, scope = redacted, scope or redaction.scope
    return None if scope is None else (scope, value)
