"""Folds the records of one partition into a shard: the engine of a rebuild.

Each stage that writes reads the records that it read live and changes the store accordingly. The
stages run one after another, in an order in which each finds what it found live: what the graph
takes from a memory depends on the memory.

Every batch commits together with the stage's cursor, so a fold resumes where it was interrupted,
at any moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from pydantic_core import from_json

from palimpsest.ops.parts import utc_now
from palimpsest.ops.replay.progress import Progress, Report, unreported
from palimpsest.ops.replay.stored_embeddings import StoredEmbeddings
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.rows import MemoryRow
from palimpsest.schemas.topics import (
    CACHE_INVALIDATIONS,
    CONVERSATION_TURNS,
    MEMORY_HISTORY,
    MEMORY_WRITES,
    TURNS_NORMALIZED,
)
from palimpsest.stores.shard import Shard
from palimpsest.stores.writing.erasures import redaction_of, unfinished
from palimpsest.stores.writing.redacted_tables import redact_tables
from palimpsest.streams.logs.base import LogReader, Outgoing, Position, Record
from palimpsest.streams.models.base import EmbeddingModel
from palimpsest.streams.rules.model import RulesLanguageModel
from palimpsest.streams.runtime.batch_record import RecordRun
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.offload import P, T
from palimpsest.streams.runtime.output import LOOKED_BACK_RECORDS
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.stage import Stage
from palimpsest.streams.store_port import Put
from palimpsest.streams.topology import stages

# --- folding --------------------------------------------------------------------------------------
# Runs a stage over recorded input: it changes the store and sends nothing.


class SendsNothing:
    """Discards the output of a stage that repeats earlier work."""

    async def commit(self, outgoing: Sequence[Outgoing], positions: Sequence[Position]) -> None:
        """Does nothing: the log already has what the stage sent the first time."""


@dataclass(slots=True)
class FoldingRunner(StageRunner):
    """Processes batches like the live runner, except for the output.

    The output of records before `sent_before` (offsets by topic) is in the log and is not produced
    again. The output of later records stays in the outbox until `settle_outbox`. `noting` gets the
    results of a batch before the commit.
    """

    sent_before: Mapping[str, int] = field(default_factory=dict)
    noting: Callable[[Sequence[RecordRun]], None] | None = None

    def _output(self, runs: Sequence[RecordRun]) -> list[Outgoing]:
        if self.noting is not None:
            self.noting(runs)
        late = [
            run for run in runs if run.record.offset >= self.sent_before.get(run.record.topic, 0)
        ]
        # By name: a dataclass with slots is a different class from the one `super()` looks up.
        return StageRunner._output(self, late)

    async def _in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls directly: nothing else waits for the event loop."""
        return call(*args, **kwargs)

    async def _computed(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return call(*args, **kwargs)

    async def _send(
        self, records: Sequence[Record], outgoing: Sequence[Outgoing], last: int | None, done: int
    ) -> None:
        """Updates the counts and leaves the outbox as it is."""
        self.counts.batches += 1
        self.counts.records += done
        self.counts.skipped += len(records) - done


# --- write sequences ------------------------------------------------------------------------------
# The write sequence of a partition's store after each record of memory-writes.
#
# Decisions name the sequence that they saw. If the records change order, as in a log with another
# number of partitions, the sequence must be determined again.


class WriteSequences:
    """A file with the offsets of the records that wrote memories, and the highest sequence number
    that each assigned. The last entry for an offset wins."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    @contextlib.contextmanager
    def opened(cls, file: Path | None) -> Iterator[WriteSequences | None]:
        """Opens the file and creates it if there is none; yields None for None."""
        if file is None:
            yield None
            return
        with contextlib.closing(sqlite3.connect(file)) as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS sequences(log_offset INTEGER PRIMARY KEY, last INTEGER)"
            )
            yield cls(connection)

    def note(self, runs: Sequence[RecordRun]) -> None:
        """Durably stores the sequences of a batch before its commit, so that after a crash the
        file covers everything committed."""
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


# --- outboxes -------------------------------------------------------------------------------------
# Output that stages have committed but not sent, after a fold.


def settle_outbox(shard: Shard, stage: str, log: LogReader, partition: int) -> None:
    """Removes from a stage's outbox what the log has. The rest was never sent; a worker sends it
    when it starts."""
    waiting = shard.unsent(stage)
    sent: list[int] = []
    for topic in {out.topic for out in waiting}:
        of_topic = [out for out in waiting if out.topic == topic]
        names = _NAMES.get(topic, _id_of)
        known = {
            names(record.key, record.value)
            for record in _newest(log, topic, partition, len(of_topic) + LOOKED_BACK_RECORDS)
        }
        sent += [out.seq for out in of_topic if names(out.key.encode(), out.value) in known]
    if sent:
        with shard.writing() as connection:
            connection.execute(
                "DELETE FROM outbox WHERE stage = ? AND seq IN (SELECT unnest(?))", [stage, sent]
            )


def _newest(log: LogReader, topic: str, partition: int, count: int) -> Iterator[Record]:
    """Yields the last `count` records of a topic."""
    offset = max(0, log.end_offset(topic, partition) - count)
    while records := log.read(topic, partition, offset, count):
        offset = records[-1].offset + 1
        yield from records


def _key_of(key: bytes | None, value: bytes | None) -> bytes | None:
    """Identifies a record of a compacted topic by its key: its text may be erased since."""
    return key


def _id_of(key: bytes | None, value: bytes | None) -> object:
    """Identifies a record by its message id, not its content: a dead letter contains the time at
    which it was written."""
    return _field("id", value)


def _cause_of(key: bytes | None, value: bytes | None) -> object:
    """Identifies a cache invalidation by its cause: once a memory is erased, it is no longer known
    whose caches held it."""
    return _field("causation_id", value)


def _turn_of(key: bytes | None, value: bytes | None) -> object:
    """Identifies a record by its turn, not its message: messages of an earlier release had
    different ids, and sending a turn again causes another extraction."""
    scope, turn = _field("scope", value), _field("body", value)
    return (scope, turn.get("turn_id")) if isinstance(turn, dict) else None


def _field(name: str, value: bytes | None) -> object:
    try:
        raw = from_json(value or b"")
    except ValueError:
        return None
    return raw.get(name) if isinstance(raw, dict) else None


_NAMES: Final[Mapping[str, Callable[[bytes | None, bytes | None], object]]] = {
    MEMORY_HISTORY.name: _key_of,
    CACHE_INVALIDATIONS.name: _cause_of,
    TURNS_NORMALIZED.name: _turn_of,
}
"""How to identify the records of a topic; by default by their message ids."""


# --- fold -----------------------------------------------------------------------------------------

BATCH_RECORDS = 4_096
BATCH_BYTES = 64 * 1024 * 1024
REPORT_SECONDS = 0.2
LATE_RECORDS = 1_000
"""Minimum number of a topic's last records whose output may not have been sent: the fold checks
whether the log has their output."""

Ends = Mapping[str, Mapping[str, int]]
"""The next offset by stage and topic: all records before it are folded."""


def never() -> bool:
    """The default stop condition: the fold runs to its end."""
    return False


@dataclass(frozen=True, slots=True)
class FoldResult:
    """This call folded `records` records, `by_stage` per stage, in `seconds` per stage. `embedded`
    counts the texts without a stored vector, which were embedded again; `unread` are the files
    whose vectors could not be read. `cursors` is the present position of the shard. `stopped`: part
    of the request is not folded yet."""

    by_stage: Mapping[str, int]
    seconds: Mapping[str, float]
    embedded: int
    unread: tuple[Path, ...]
    cursors: Ends
    stopped: bool

    @property
    def records(self) -> int:
        return sum(self.by_stage.values())


@dataclass(slots=True)
class _Told:
    """Reports the progress of a stage, at most a few times per second."""

    report: Report
    phase: str
    total: int
    done: int = 0
    _last: float = field(default_factory=monotonic)

    def add(self, records: int) -> None:
        self.done += records
        now = monotonic()
        if now - self._last >= REPORT_SECONDS or self.done >= self.total:
            self._last = now
            self.report(Progress(self.phase, min(self.done, self.total), self.total))


async def fold_partition(
    settings: Settings,
    log: LogReader,
    partition: int,
    shard: Shard,
    ends: Ends,
    stored: Sequence[Path],
    embedding: EmbeddingModel,
    report: Report = unreported,
    stopping: Callable[[], bool] = never,
    sequences: Path | None = None,
) -> FoldResult:
    """Folds the records of `partition` before `ends` into a new or a partly folded shard. Vectors
    come from the DuckDB files `stored`, copies of stores that nothing writes to; texts without a
    vector there are embedded. Once `stopping` returns true, the fold ends after the batch in
    progress. `sequences` is the file of `WriteSequences`.

    Appends nothing to the log and calls no language model. Raises LogError, duckdb.Error, and a
    stage's error that concerns every record.
    """
    by_name = {stage.name: stage for stage in stages(settings)}
    with (
        StoredEmbeddings(embedding, stored) as embeddings,
        _collecting_by_batch(),
        WriteSequences.opened(sequences) as noted,
    ):
        fold = _Fold(settings, log, partition, shard, ends, embeddings, report, stopping, noted)
        # Audit runs first: an erasure removes rows that must already be in the tables.
        await fold.stage(by_name["audit"])
        await fold.stage(by_name["apply-writes"])
        await fold.stage(by_name["graph-persist"])
        if not fold.stopped:
            await asyncio.to_thread(_redact, shard)
        return FoldResult(
            fold.records,
            fold.seconds,
            embeddings.made,
            embeddings.unread,
            fold.cursors(),
            fold.stopped,
        )


def _redact(shard: Shard) -> None:
    """Redacts the tables again: records after an erasure may quote the erased texts as long as the
    log still has them."""
    with shard.writing() as connection:
        in_log = [each for each in unfinished(connection) if each.phase == "log"]
        connection.execute("BEGIN")
        redact_tables(connection, [redaction_of(connection, each) for each in in_log])
        connection.execute("COMMIT")


@contextlib.contextmanager
def _collecting_by_batch() -> Iterator[None]:
    """Disables the cycle collector, which would scan all objects repeatedly while a large batch
    allocates. The fold calls it between batches, where it scans only what the batch left."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(slots=True)
class _Fold:
    settings: Settings
    log: LogReader
    partition: int
    shard: Shard
    ends: Ends
    embeddings: StoredEmbeddings
    report: Report
    stopping: Callable[[], bool]
    sequences: WriteSequences | None = None
    records: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    stopped: bool = False

    def cursors(self) -> dict[str, dict[str, int]]:
        return {
            stage: {topic: self.shard.cursor_of(stage, topic) for topic in topics}
            for stage, topics in self.ends.items()
        }

    async def stage(self, stage: Stage) -> None:
        """Folds the topics of a stage that runs as it does live."""
        ends = self.ends.get(stage.name, {})
        late = max(LATE_RECORDS, self.settings.worker.batch_records)
        runner = self._runner(stage, {topic: end - late for topic, end in ends.items()})
        with self._counted(stage.name) as told:
            for topic in ends:
                for records in self._batches(stage.name, topic):
                    await runner.process(records)
                    told.add(len(records))
            settle_outbox(self.shard, stage.name, self.log, self.partition)

    def _batches(self, stage: str, topic: str) -> Iterator[Sequence[Record]]:
        """Yields the remaining batches of a topic, each from the stage's present cursor."""
        end = self.ends[stage][topic]
        while (cursor := self.shard.cursor_of(stage, topic)) < end:
            records = self.log.read(topic, self.partition, cursor, BATCH_RECORDS, BATCH_BYTES)
            records = [record for record in records if record.offset < end]
            if not records:
                return
            if self.stopping():
                self.stopped = True
                return
            yield records
            del records
            gc.collect(0)

    @contextlib.contextmanager
    def _counted(self, stage: str) -> Iterator[_Told]:
        began = monotonic()
        told = self._told(stage)
        yield told
        gc.collect()  # with what outlived its batch
        self.records[stage] = told.done
        self.seconds[stage] = monotonic() - began

    def _runner(self, stage: Stage, sent_before: Mapping[str, int]) -> FoldingRunner:
        # The stages of a fold request only embeddings; the rules model makes no calls in any case.
        # Vectors of long texts come from the live stores, too, and nobody catches up on them here.
        models = ModelPort(
            RulesLanguageModel(),
            self.embeddings,
            embed_batch=BATCH_RECORDS,
            defers_long=False,
        )
        return FoldingRunner(
            stage,
            self.partition,
            models,
            SendsNothing(),
            self.shard,
            utc_now,
            monotonic,
            max_record_bytes=self.settings.log.max_record_bytes,
            partitions=self.log.partitions(CONVERSATION_TURNS.name),
            max_failures=self.settings.worker.max_failures,
            sent_before=sent_before,
            noting=None if self.sequences is None else self.sequences.note,
        )

    def _told(self, stage: str) -> _Told:
        topics = self.ends.get(stage, {})
        left = sum(
            max(0, end - self.shard.cursor_of(stage, topic)) for topic, end in topics.items()
        )
        return _Told(self.report, stage, left)
