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
import multiprocessing
import os
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from pydantic_core import from_json

from palimpsest.ops.embedding.models import EmbeddingModels, choices, first_choice, settings_of
from palimpsest.ops.embedding.tracker import copy_missing
from palimpsest.ops.embedding.turn_passages import copy_missing_turns
from palimpsest.ops.parts import embedding_model, note_embedding, open_shard, shard_options, utc_now
from palimpsest.ops.replay.live_stores import StoredEmbeddings
from palimpsest.ops.replay.log_reading import Offsets, reading_log
from palimpsest.ops.replay.requests import UNWATCHED, ReplayProgress, Watch
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import (
    CACHE_INVALIDATIONS,
    CONVERSATION_TURNS,
    MEMORY_HISTORY,
    TURNS_NORMALIZED,
)
from palimpsest.stores.index.token_vectors import keeps_tokens
from palimpsest.stores.shard import Shard
from palimpsest.stores.writing.erasures import redaction_of, unfinished
from palimpsest.stores.writing.redacted_tables import redact_tables
from palimpsest.streams.logs.base import LogReader, Outgoing, Position, Record
from palimpsest.streams.models.base import EmbeddingModel
from palimpsest.streams.rules.model import RulesLanguageModel
from palimpsest.streams.runtime.batch_record import RecordRun
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.offload import P, T
from palimpsest.streams.runtime.output import missing
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.stage import Stage
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
    again. The output of later records stays in the outbox until `settle_outbox`.
    """

    sent_before: Mapping[str, int] = field(default_factory=dict)

    def _output(self, runs: Sequence[RecordRun]) -> list[Outgoing]:
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


# --- outboxes -------------------------------------------------------------------------------------
# Output that stages have committed but not sent, after a fold.


def settle_outbox(shard: Shard, stage: str, log: LogReader, partition: int) -> None:
    """Removes from a stage's outbox what the log has. The rest was never sent; a worker sends it
    when it starts."""
    waiting = shard.unsent(stage)
    unsent = {out.seq for out in missing(waiting, log, partition, _identity)}
    sent = [out.seq for out in waiting if out.seq not in unsent]
    if sent:
        with shard.writing() as connection:
            connection.execute(
                "DELETE FROM outbox WHERE stage = ? AND seq IN (SELECT unnest(?))", [stage, sent]
            )


def _identity(topic: str, key: bytes | None, value: bytes | None) -> object:
    """Identifies a record by its message id, not by its content: a dead letter contains the time at
    which it was written."""
    if topic == MEMORY_HISTORY.name:
        return key  # its text may be erased since
    try:
        raw = from_json(value or b"")
    except ValueError:
        return None
    if not isinstance(raw, dict):
        return None
    if topic == CACHE_INVALIDATIONS.name:
        # Once a memory is erased, it is no longer known whose caches held it.
        return raw.get("causation_id")
    if topic == TURNS_NORMALIZED.name:
        # Messages of an earlier release had other ids, and to send a turn again causes another
        # extraction.
        turn = raw.get("body")
        return (raw.get("scope"), turn.get("turn_id")) if isinstance(turn, dict) else None
    return raw.get("id")


# --- fold -----------------------------------------------------------------------------------------

BATCH_RECORDS = 4_096
BATCH_BYTES = 64 * 1024 * 1024
LATE_RECORDS = 1_000
"""Minimum number of a topic's last records whose output may not have been sent: the fold checks
whether the log has their output."""


@dataclass(frozen=True, slots=True)
class FoldJob:
    """The records of a partition before `ends`, from the log of `live`, for the shard of `own`,
    which is new or partly folded. Vectors come from the DuckDB files `stored`, copies of stores
    that nothing writes to; texts without a vector there are embedded."""

    live: Settings
    own: Settings
    partition: int
    ends: Offsets
    stored: tuple[Path, ...] = ()

    @property
    def records(self) -> int:
        """The number of offsets to fold, summed over all stages."""
        return sum(sum(topics.values()) for topics in self.ends.values())


@dataclass(frozen=True, slots=True)
class FoldResult:
    """This call folded `records` records, `by_stage` per stage, in `seconds` per stage. `embedded`
    counts the texts without a stored vector, which were embedded again. `stopped`: part of the
    request is not folded yet."""

    by_stage: Mapping[str, int]
    seconds: Mapping[str, float]
    embedded: int
    stopped: bool

    @property
    def records(self) -> int:
        return sum(self.by_stage.values())


async def fold_partition(
    job: FoldJob,
    log: LogReader,
    shard: Shard,
    embedding: EmbeddingModel,
    watch: Watch = UNWATCHED,
) -> FoldResult:
    """Executes a job on its open log and shard, or part of it up to a batch.

    Appends nothing to the log and calls no language model. Raises LogError, duckdb.Error, and a
    stage's error that concerns every record.
    """
    shard.is_searched = False
    with (
        StoredEmbeddings(embedding, job.stored) as embeddings,
        contextlib.ExitStack() as opened,
        _collecting_by_batch(),
    ):
        models = EmbeddingModels(job.own, embedding, lambda: {job.partition: shard})
        fold = _Fold(job, log, shard, embeddings, models, opened, watch)
        by_name = {stage.name: stage for stage in stages(job.own)}
        # Audit runs first: an erasure removes rows that must already be in the tables.
        for name in ("audit", "apply-writes", "graph-persist"):
            await fold.stage(by_name[name])
        if not fold.stopped:
            await asyncio.to_thread(_redact, shard)
            await asyncio.to_thread(fold.copy_vectors)
        await models.close()
        made = sum(each.made for each in (embeddings, *fold.spaces.values()))
        return FoldResult(fold.records, fold.seconds, made, fold.stopped)


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
    allocates. The fold calls it between batches, where it scans only what the batch left: all that
    was there before is frozen."""
    was_on = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()


@dataclass(slots=True)
class _Fold:
    """`spaces` are the vectors of the models that the partition's commands have chosen; `opened`
    closes them."""

    job: FoldJob
    log: LogReader
    shard: Shard
    embeddings: StoredEmbeddings
    models: EmbeddingModels
    opened: contextlib.ExitStack
    watch: Watch
    spaces: dict[str, StoredEmbeddings] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    stopped: bool = False

    def _of_space(self, space: str) -> StoredEmbeddings | None:
        model = None if space in self.spaces else self.models.of_space(space)
        if model is not None:
            found = self.opened.enter_context(StoredEmbeddings(model, self.job.stored))
            self.spaces[space] = found
        return self.spaces.get(space)

    def copy_vectors(self) -> None:
        """Copies the vectors that no record made: those of a migration, and of texts that got
        theirs from the worker. What is in no file is left to the worker."""
        others = [self._of_space(choice.space) for choice in choices(self.shard)]
        for found in (self.embeddings, *(each for each in others if each is not None)):
            copy_missing(self.shard, found.model, found.dimensions, found.stored)
            if keeps_tokens(found.model):
                copy_missing_turns(self.shard, found.model, found.turns)

    async def stage(self, stage: Stage) -> None:
        """Folds the topics of a stage that runs as it does live."""
        ends = self.job.ends.get(stage.name, {})
        late = max(LATE_RECORDS, self.job.own.worker.batch_records)
        # The stages of a fold request only embeddings; the rules model makes no calls in any case.
        # Vectors of long texts come from the live stores, too, and nobody catches up on them here.
        models = ModelPort(
            RulesLanguageModel(),
            self.embeddings,
            embed_batch=BATCH_RECORDS,
            defers_long=False,
            of_space=self._of_space,
        )
        runner = FoldingRunner(
            stage,
            self.job.partition,
            models,
            SendsNothing(),
            self.shard,
            utc_now,
            monotonic,
            max_record_bytes=self.job.own.log.max_record_bytes,
            partitions=self.log.partitions(CONVERSATION_TURNS.name),
            max_failures=self.job.own.worker.max_failures,
            sent_before={topic: end - late for topic, end in ends.items()},
        )
        cursors = {topic: self.shard.cursor_of(stage.name, topic) for topic in ends}
        total = sum(max(0, end - cursors[topic]) for topic, end in ends.items())
        began, done = monotonic(), 0
        for topic in ends:
            for records in self._batches(stage.name, topic):
                await runner.process(records)
                done += len(records)
                self.watch.report(ReplayProgress(stage.name, min(done, total), total))
        settle_outbox(self.shard, stage.name, self.log, self.job.partition)
        gc.collect()  # with what outlived its batch
        self.records[stage.name] = done
        self.seconds[stage.name] = monotonic() - began

    def _batches(self, stage: str, topic: str) -> Iterator[Sequence[Record]]:
        """Yields the remaining batches of a topic, each from the stage's present cursor."""
        end = self.job.ends[stage][topic]
        while (cursor := self.shard.cursor_of(stage, topic)) < end:
            records = self.log.read(topic, self.job.partition, cursor, BATCH_RECORDS, BATCH_BYTES)
            records = [record for record in records if record.offset < end]
            if not records:
                return
            if self.watch.stopping():
                self.stopped = True
                return
            yield records
            del records
            gc.collect(0)


# --- in processes ---------------------------------------------------------------------------------
# Folds partitions in parallel, each in its own process: one interpreter uses one core.

WORTH_PROCESSES_RECORDS = 4_000
"""Fewer records than this are folded before a second process has started."""
LOOK_SECONDS = 0.2
"""Interval between checks whether to stop."""


ProgressQueue: TypeAlias = "multiprocessing.Queue[tuple[int, ReplayProgress]]"


def fold_partitions(
    jobs: Sequence[FoldJob], watch: Watch = UNWATCHED, processes: int | None = None
) -> list[FoldResult]:
    """Executes jobs in up to `processes` processes (None: one per core), waits for all and returns
    their results in order. A process whose parent is gone ends after the batch in progress. Raises
    what a job raises; the running jobs then end after their batch."""
    context = multiprocessing.get_context("spawn")
    told: ProgressQueue = context.Queue()
    stop = context.Event()
    count = min(processes or os.cpu_count() or 1, max(1, len(jobs)))
    total = sum(job.records for job in jobs)
    done: dict[tuple[int, str], int] = {}
    with ProcessPoolExecutor(
        count, mp_context=context, initializer=_begin, initargs=(told, stop)
    ) as pool:
        results = [pool.submit(_execute_job, job) for job in jobs]
        under_way = {*results}
        try:
            while under_way:
                ended, under_way = wait(under_way, LOOK_SECONDS)
                for each in ended:
                    each.result()
                if watch.stopping():
                    stop.set()
                with contextlib.suppress(queue.Empty):
                    while True:
                        partition, progress = told.get_nowait()
                        done[partition, progress.phase] = progress.done
                watch.report(ReplayProgress("folding", min(sum(done.values()), total), total))
            return [each.result() for each in results]
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


async def fold_jobs(jobs: Sequence[FoldJob], watch: Watch) -> list[FoldResult]:
    """Executes jobs and returns their results in order: in this process for a single job or few
    records, else each in its own process. Raises what a job raises."""
    if len(jobs) == 1 or sum(job.records for job in jobs) < WORTH_PROCESSES_RECORDS:
        return [await fold_job(job, watch) for job in jobs]
    return await asyncio.to_thread(fold_partitions, jobs, watch)


_edges: dict[str, tuple[ProgressQueue, Event, int]] = {}
"""The start arguments of the process: the progress queue, the stop event, and the parent's id."""


def _begin(told: ProgressQueue, stop: Event) -> None:
    _edges["parent"] = (told, stop, os.getppid())


def _execute_job(job: FoldJob) -> FoldResult:
    told, stop, parent = _edges["parent"]
    watch = Watch(
        lambda progress: told.put((job.partition, progress)),
        lambda: stop.is_set() or os.getppid() != parent,
    )
    return asyncio.run(fold_job(job, watch))


async def fold_job(job: FoldJob, watch: Watch) -> FoldResult:
    """Executes a job in this process. Raises LogError, StoreError, FolderInUse, and what
    `fold_partition` raises."""
    with reading_log(job.live) as log:
        # The model that the partition began with; commands in the log change it.
        first = first_choice(log, job.partition)
        own = job.own if first is None else settings_of(job.own, first)
        embedding = embedding_model(own)
        shard = open_shard(job.own, job.partition, shard_options(job.own, embedding))
        try:
            note_embedding(shard, embedding.model)
            return await fold_partition(job, log, shard, embedding, watch)
        finally:
            shard.close()
            await embedding.close()
