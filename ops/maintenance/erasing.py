"""Erasure in files: records of the embedded log, recorded replies of language models, and bytes
that the stores have freed.

What takes time by the size of a store runs beside the stages: the log is read once before they are
paused, and only what came meanwhile while no stage works, so that only the log and the outboxes
hold data in flight; the store's file is written again beside the present one, which it replaces
once it has what was stored meanwhile. Every step is idempotent: after a crash the next start begins
with it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, ParamSpec, TypeVar

import duckdb
from pydantic import JsonValue

from palimpsest.ops.scheduling.periodic import PeriodicTask
from palimpsest.schemas.erasure.redaction import Redaction
from palimpsest.schemas.erasure.scrubbing import Scrub
from palimpsest.schemas.topics import (
    ALL_TOPICS,
    CONVERSATION_TURNS,
    MEMORY_CHANGES,
    MEMORY_COMMANDS,
    MEMORY_HISTORY,
    MEMORY_WRITES,
    Topic,
)
from palimpsest.stores.shard import AsOf, Shard, StoreError
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
from palimpsest.stores.writing.redacted_tables import RecordScreen
from palimpsest.streams.logs.base import LogError, Outgoing, Record, blocks
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.models.recorded import RecordedReplies
from palimpsest.streams.runtime.output import null_values

# --- replaced records -----------------------------------------------------------------------------
# Reads the records of an embedded log to replace them.


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
        for records in blocks(log, topic.name, partition):
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
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Erasures whose texts no record of the log before these ends has, by topic."""

    erasures: frozenset[str] = frozenset()
    ends: Mapping[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class FileErasing:
    """Erases in all shards of an embedded log, and in the recorded replies if there are any.

    Beside the stages `begin` reads the log, and asks for a pause of the stages, in which `execute`
    does what came meanwhile; then it writes the files. A failure, for example of a full disk, is
    logged and retried after AGAIN_SECONDS."""

    log: EmbeddedLog
    shards: Mapping[int, Shard]
    replies: RecordedReplies | None = None
    _not_before: float = -math.inf
    _ahead: dict[int, _Ahead] = field(default_factory=dict)
    _task: PeriodicTask | None = None

    def __post_init__(self) -> None:
        self._one = asyncio.Lock()

    @property
    def due(self) -> bool:
        """Whether an erasure is pending and may run now."""
        pending = any(shard.has_erasures for shard in self.shards.values())
        return pending and time.monotonic() >= self._not_before

    async def execute(self, files: bool = True) -> None:
        """Runs all pending erasures; no stage may work meanwhile. Without `files` the background
        does what takes long: it writes the files of stores, and reads the log for erasures that
        came after it had read."""
        async with self._one:
            for partition, shard in self.shards.items():
                if shard.has_erasures:
                    ahead = self._ahead.pop(partition, _Ahead())
                    async with shard.lock:
                        await self._attempt(
                            _in_log,
                            self.log,
                            partition,
                            shard,
                            self.replies,
                            ahead=ahead,
                            is_all=files,
                        )
                        if files and self.due:
                            await self._attempt(_in_files, shard)
        if self.due:
            self.begin()

    def begin(self) -> None:
        """Wakes the background for an erasure that has become due."""
        if self._task is not None:
            self._task.wake()

    def background_task(self, pause: Callable[[], None]) -> PeriodicTask:
        """The background of the stages. `pause` is called when `execute` has to run."""

        async def look() -> None:
            if not self.due:
                return
            async with self._one:
                begun = [
                    await self._begun(partition, shard)
                    for partition, shard in self.shards.items()
                    if shard.has_erasures
                ]
            if any(begun):
                pause()

        self._task = PeriodicTask("pending erasures", AGAIN_SECONDS, look, first=AGAIN_SECONDS)
        return self._task

    async def _begun(self, partition: int, shard: Shard) -> bool:
        """Does what a partition's erasures need beside its stages. Returns whether these have to be
        paused next."""
        if partition in self._ahead:
            return True  # the stages end their batches; until then each batch wakes this task
        found = await self._attempt(_read_ahead, self.log, partition, shard)
        if found is None:
            return False
        if found.erasures:
            self._ahead[partition] = found
            return True
        written = await self._attempt(shard.write_again, True)
        if written is not None:
            async with shard.lock:
                await self._attempt(_in_files, shard, written)
        return False

    async def _attempt(self, step: Callable[P, T], *given: P.args, **named: P.kwargs) -> T | None:
        """Runs a step in a thread, to its end. Returns None if it failed."""
        work = asyncio.ensure_future(asyncio.to_thread(step, *given, **named))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise
        except (LogError, StoreError, OSError, duckdb.Error) as error:
            self._not_before = time.monotonic() + AGAIN_SECONDS
            logger.warning("erased texts are still in files: %s", error)
            return None


def execute_in(
    log: EmbeddedLog, partition: int, shard: Shard, replies: RecordedReplies | None = None
) -> None:
    """Runs the pending erasures of one partition. Raises LogError, OSError, duckdb.Error and
    StoreError."""
    _in_log(log, partition, shard, replies)
    _in_files(shard)


def _read_ahead(log: EmbeddedLog, partition: int, shard: Shard) -> _Ahead:
    """Removes from all records of the log, while others are appended, what pending erasures ask to
    remove from there."""
    with shard.reading() as connection:
        in_log = [each for each in unfinished(connection) if each.phase == "log"]
        if not in_log:
            return _Ahead()
        ends = {topic.name: log.end_offset(topic.name, partition) for topic in ALL_TOPICS}
        redactions = [redaction_of(connection, each) for each in in_log]
        _redact_log(connection, log, partition, redactions, {}, ends)
        return _Ahead(frozenset(each.erasure_id for each in in_log), ends)


def _in_log(
    log: EmbeddedLog,
    partition: int,
    shard: Shard,
    replies: RecordedReplies | None,
    *,
    ahead: _Ahead = _Ahead(),
    is_all: bool = True,
) -> None:
    """Removes from the log what pending erasures ask to remove from there, all or only those that
    were read `ahead`, if any; no stage works. What was read ahead is not read again."""
    with shard.writing() as connection:
        in_log = [each for each in unfinished(connection) if each.phase == "log"]
        begun = [each for each in in_log if each.erasure_id in ahead.erasures]
        in_log = in_log if is_all or not begun else begun
        if not in_log:
            return
        redactions = {each.erasure_id: redaction_of(connection, each) for each in in_log}
        read = [redactions[each.erasure_id] for each in begun]
        unread = [each for key, each in redactions.items() if key not in ahead.erasures]
        _redact_log(connection, log, partition, read, ahead.ends)
        _redact_log(connection, log, partition, unread, {})
        scrubs = [each for each in (scrub_of(connection, one) for one in in_log) if each]
        caused: set[str] = set()
        for scrub in scrubs:
            caused |= scrub_log(log, partition, scrub, dead_records(connection, scrub))
        _forget_replies(replies, in_log)
        log.forget_bytes()
        finish_log(connection, redactions, scrubs, caused)


def _in_files(shard: Shard, written: AsOf | None = None) -> None:
    """Rewrites the store's files, under its lock; or takes what was `written` beside the stages."""
    if written is None:
        shard.rewrite()
    else:
        shard.take_written(written)
    with shard.writing() as connection:
        finish_files(connection)
        shard.has_erasures = bool(unfinished(connection))  # one may have come meanwhile


def execute_on_kafka(
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
            finish_log(
                connection, {each.erasure_id: redaction_of(connection, each) for each in in_log}
            )
    _in_files(shard)


def _forget_replies(replies: RecordedReplies | None, erasures: Sequence[Erasure]) -> None:
    """Erases all replies of the scopes: replies do not record the turn that they are about."""
    if replies is not None:
        replies.erase([erasure.scope for erasure in erasures])


def _redact_log(
    connection: duckdb.DuckDBPyConnection,
    log: EmbeddedLog,
    partition: int,
    redactions: Sequence[Redaction],
    first: Mapping[str, int],
    ends: Mapping[str, int] | None = None,
) -> None:
    """Applies all redactions in turn to each record that they may change, so that the log is read
    once: from `first` up to `ends`, by topic (0, the present end)."""
    screen = RecordScreen(redactions)
    for topic in ALL_TOPICS if redactions else ():
        begin = first.get(topic.name, 0)
        end = (ends or {}).get(topic.name, log.end_offset(topic.name, partition))
        for offsets, values in log.values(topic.name, partition, begin, end):
            changed = [
                (offsets[number], *redacted)
                for number in screen.affected(connection, values)
                if (redacted := _redacted(values[number], redactions)) is not None
            ]
            if changed and topic is MEMORY_HISTORY:
                for scope in dict.fromkeys(scope for _, scope, _ in changed):
                    purge(
                        log,
                        partition,
                        scope,
                        [
                            record
                            for offset, of, _ in changed
                            if of == scope
                            for record in log.read(topic.name, partition, offset, 1)
                        ],
                    )
            elif changed:
                log.redact(topic.name, partition, {offset: new for offset, _, new in changed})


def _redacted(value: bytes | None, redactions: Sequence[Redaction]) -> tuple[str, bytes] | None:
    """Returns the scope of the first redaction that changes a record's value, and the new value;
    None if no redaction changes it."""
    if value is None:
        return None
    scope = None
    for redaction in redactions:
        redacted = redaction.value(value)
        if redacted != value:
            value, scope = redacted, scope or redaction.scope
    return None if scope is None else (scope, value)
