"""Folds partitions in parallel, each in its own process: one interpreter uses one core."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import queue
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import TypeAlias

from palimpsest.ops.parts import embedding_model, note_embedding, open_shard, shard_options
from palimpsest.ops.replay.fold import Ends, FoldResult, fold_partition, never
from palimpsest.ops.replay.progress import Progress, Report, unreported
from palimpsest.ops.replay.recorded import reading_log
from palimpsest.ops.settings.sections import Settings

PHASE = "folding"
KIB = 1024
WORTH_PROCESSES_RECORDS = 4_000
"""Fewer records than this are folded before a second process has started."""
LOOK_SECONDS = 0.2
"""Interval between checks whether to stop."""


@dataclass(frozen=True, slots=True)
class FoldJob:
    """Folds one partition from the log of `live` into the shard of `own`. For the rest see
    `fold_partition`."""

    live: Settings
    own: Settings
    partition: int
    ends: Ends
    stored: tuple[Path, ...] = ()
    sequences: Path | None = None

    @property
    def records(self) -> int:
        """The number of offsets to fold, summed over all stages."""
        return sum(sum(topics.values()) for topics in self.ends.values())


@dataclass(frozen=True, slots=True)
class FoldedPartition:
    """The result of a job, its CPU time in seconds, and the peak memory of its process so far, in
    bytes."""

    result: FoldResult
    processor_seconds: float
    peak_bytes: int


Told: TypeAlias = "multiprocessing.Queue[tuple[int, Progress]]"


def fold_partitions(
    jobs: Sequence[FoldJob],
    report: Report = unreported,
    stopping: Callable[[], bool] = never,
    processes: int | None = None,
) -> list[FoldedPartition]:
    """Executes jobs in up to `processes` processes (None: one per core), waits for all and returns
    their results in order. A process whose parent is gone ends after the batch in progress. Raises
    what a job raises; the running jobs then end after their batch."""
    context = multiprocessing.get_context("spawn")
    told: Told = context.Queue()
    stop = context.Event()
    count = min(processes or os.cpu_count() or 1, max(1, len(jobs)))
    with (
        _relayed(told, jobs, report),
        ProcessPoolExecutor(
            count, mp_context=context, initializer=_begin, initargs=(told, stop)
        ) as pool,
    ):
        under_way = [pool.submit(_carry_out, job) for job in jobs]
        try:
            while _waiting(under_way):
                if stopping():
                    stop.set()
            return [each.result() for each in under_way]
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


async def fold_jobs(
    jobs: Sequence[FoldJob],
    report: Report = unreported,
    stopping: Callable[[], bool] = never,
) -> list[FoldResult]:
    """Executes jobs and returns their results in order: in this process for a single job or few
    records, else each in its own process. Raises what a job raises."""
    if len(jobs) == 1 or sum(job.records for job in jobs) < WORTH_PROCESSES_RECORDS:
        return [await fold_job(job, report, stopping) for job in jobs]
    folded = await asyncio.to_thread(fold_partitions, jobs, report, stopping)
    return [each.result for each in folded]


def _waiting(under_way: Sequence[Future[FoldedPartition]]) -> bool:
    """Returns whether any job is still running. Raises what a job raised."""
    done, left = wait(under_way, LOOK_SECONDS)
    for each in done:
        each.result()
    return bool(left)


@contextlib.contextmanager
def _relayed(told: Told, jobs: Sequence[FoldJob], report: Report) -> Iterator[None]:
    """Reports the combined progress of all processes."""
    total = sum(job.records for job in jobs)
    ended = threading.Event()
    done: dict[tuple[int, str], int] = {}

    def relay() -> None:
        while not ended.is_set():
            with contextlib.suppress(queue.Empty):
                partition, progress = told.get(timeout=LOOK_SECONDS)
                done[partition, progress.phase] = progress.done
                report(Progress(PHASE, min(sum(done.values()), total), total))

    thread = threading.Thread(target=relay, name="fold-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


# --- in the process ---------------------------------------------------------------------------

_edges: dict[str, tuple[Told, Event, int]] = {}
"""The start arguments of the process: the progress queue, the stop event, and the parent's id."""


def _begin(told: Told, stop: Event) -> None:
    _edges["parent"] = (told, stop, os.getppid())


def _carry_out(job: FoldJob) -> FoldedPartition:
    told, stop, parent = _edges["parent"]
    began = time.process_time()
    result = asyncio.run(
        fold_job(
            job,
            lambda progress: told.put((job.partition, progress)),
            lambda: stop.is_set() or os.getppid() != parent,
        )
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
    return FoldedPartition(result, time.process_time() - began, peak)


async def fold_job(
    job: FoldJob, report: Report = unreported, stopping: Callable[[], bool] = never
) -> FoldResult:
    """Executes a job in this process. Raises LogError, StoreError, FolderInUse, and what
    `fold_partition` raises."""
    with reading_log(job.live) as log:
        embedding = embedding_model(job.own)
        shard = open_shard(job.own, job.partition, shard_options(job.own, embedding))
        try:
            note_embedding(shard, embedding.model)
            return await fold_partition(
                job.own,
                log,
                job.partition,
                shard,
                job.ends,
                job.stored,
                embedding,
                report,
                stopping,
                job.sequences,
            )
        finally:
            shard.close()
            await embedding.close()
