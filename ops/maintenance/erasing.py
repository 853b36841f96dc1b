"""The part of erasures that lies in files: the records of the embedded log, the recorded replies of
language models, and the bytes that the stores have freed.

It is executed while no stage works, so that nothing is on its way but what lies in the log and
in outboxes. Every step may be repeated: after a crash the next start begins with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import duckdb
from pydantic import JsonValue

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
# Going through the records of an embedded log to put others in their place.

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


# --- scrubbing ------------------------------------------------------------------------------------
# The log of a scope that was erased as a whole, without what is told there and of no memory:
# commands, names, levels of privacy, and what could not be processed.

_IN_ORDER: Final = (MEMORY_COMMANDS, MEMORY_WRITES, MEMORY_CHANGES)
"""Topics in which the erasure has its place: what stands before it was told before. Each record of
one follows from a record of the topic before."""


def scrub_log(
    log: EmbeddedLog, partition: int, scrub: Scrub, dead: Collection[tuple[str, int]]
) -> set[str]:
    """`dead`: topics and offsets of records that could not be processed. Returns the ids of all
    that was told before the erasure."""
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
    """What was told before the erasure, as far as the topics were read."""

    scrub: Scrub
    dead: frozenset[tuple[str, int]]
    causes: set[str] = field(default_factory=set)
    is_over: bool = False

    def before(self, topic: Topic, records: Sequence[Record]) -> list[tuple[Record, bytes]]:
        """Those of the scope that were told before, scrubbed."""
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

    async def execute(self) -> None:
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
