"""Assembles the process that runs the stages on the embedded log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime

from palimpsest.ops.maintenance.erasing import FileErasing
from palimpsest.ops.maintenance.process import Process
from palimpsest.ops.maintenance.withholding import PrivacyRedactor, Purge
from palimpsest.ops.opening import open_log, open_shards
from palimpsest.ops.parts import (
    LOCK_PATIENCE_SECONDS,
    check_stages,
    embedding_warnings,
    follow_language,
    graph_warnings,
    known_private,
    model_stages,
    note_embedding,
    shard_options,
    stage_runner,
    utc_now,
)
from palimpsest.ops.scheduling.periodic import PeriodicTask, running
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import keep_index_settings
from palimpsest.streams.logs.base import LogInUse
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.models.base import EmbeddingModel, LanguageModel
from palimpsest.streams.models.recorded import RecordedReplies
from palimpsest.streams.models.settings import LlmSettings
from palimpsest.streams.runtime.partition_task import PartitionTask
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.runtime.worker import Worker
from palimpsest.streams.stage import Stage
from palimpsest.streams.topology import stages


class Application(Process):
    """One process that runs stages on the embedded log, with a shard for each partition."""

    log: EmbeddedLog
    worker: Worker
    erasing: FileErasing
    tasks: Callable[[Application], Sequence[PeriodicTask]]
    """More work for the background of `run`."""

    @property
    def runners(self) -> list[StageRunner]:
        """One runner per stage and partition."""
        return self.worker.runners

    async def run(self, until_drained: bool) -> None:
        publishes = {"normalize", "apply-writes"} <= {stage.name for stage in self.worker.stages}
        also = [*Purge(self.log, self.settings.pii).tasks(), *self.tasks(self)]
        if self.settings.privacy.purge:
            also.append(PrivacyRedactor(self.log, self.shards).task())
        tasks = await self.background(publishes, (self.log, self.replies), also)
        if publishes:
            self.worker.busy = self.busy
        async with running(tasks, self.stop):
            await self._work(until_drained)
        if self.worker.drained:
            self.finished = await self._upkeep.finish(self.stopped)
        if self.on_drained is not None:
            await self.on_drained()

    async def drain(self) -> bool:
        """Processes everything in the log with the stages alone, without fetching or maintenance;
        returns whether it finished. May be called again."""
        if self.worker.drained:
            self.worker = self.worker.resumed()
        await self._work(until_drained=True)
        return self.worker.drained

    async def _work(self, until_drained: bool) -> None:
        """Runs the stages, and between two runs executes pending erasures in files."""
        async with self.erasing.background_task(self._pause).running():
            await self.erasing.execute()
            while True:
                await self.worker.run(until_drained)
                ended = self.stopped.is_set() or self.worker.drained
                if self.erasing.due:
                    await self.erasing.execute(files=ended)
                if ended:
                    return
                self.worker = self.worker.resumed()

    def _pause(self) -> None:
        self.worker.pause()  # the current worker: a run after an erasure has a new one

    def partition_tasks(self) -> Sequence[PartitionTask]:
        return self.worker.tasks

    def stop(self) -> None:
        """Finishes the current batches, then ends `run`; a second call abandons them."""
        super().stop()
        self.worker.stop()


@contextlib.asynccontextmanager
async def application(
    settings: Settings,
    only: Sequence[str] = (),
    on_batch: Callable[[StageRunner], Awaitable[None]] | None = None,
    clock: Callable[[], datetime] = utc_now,
    make_language: Callable[[LlmSettings], LanguageModel] | None = None,
    make_embedding: Callable[[Settings], EmbeddingModel] | None = None,
    adapted: Callable[[Stage], Stage] = lambda stage: stage,
    replies: RecordedReplies | None = None,
    tasks: Callable[[Application], Sequence[PeriodicTask]] = lambda app: (),
) -> AsyncIterator[Application]:
    """Assembles a process that runs the stages named in `only` (all if it is empty), each passed
    through `adapted`. `replies` may be the recorded replies of another folder, which then controls
    their retention. `tasks` are done in the background of `run`, beside those of maintenance.

    Raises SetupError, LogError, StoreError or FolderInUse, each with advice.
    """
    check_stages(only)
    async with contextlib.AsyncExitStack() as undo:
        log = undo.enter_context(_processing_log(settings, clock))
        made = (make_language, make_embedding, replies)
        joined = Application(settings, log, clock, undo, *made)
        options = shard_options(settings, joined.embedding)
        joined.shards = shards = open_shards(settings, log, options, undo)
        for shard in shards.values():
            joined.warnings += follow_language(shard, settings.search.language)
        joined.erasing = FileErasing(log, shards, joined.replies)
        joined.tasks = tasks

        def runner(task: PartitionTask) -> StageRunner:
            store = shards[task.partition]
            return stage_runner(settings, task, joined.models, log, store, clock, joined.gate)

        async def after_batch(runner: StageRunner) -> None:
            if joined.erasing.due:
                joined.erasing.begin()
            if on_batch is not None:
                await on_batch(runner)

        flow = stages(settings, known_private(shards))
        chosen = [adapted(s) for s in flow if not only or s.name in only]
        asking = model_stages(settings)
        joined.worker = Worker(
            log, chosen, len(shards), runner, settings.worker, asking, after_batch
        )
        joined.warnings += await embedding_warnings(joined.embedding)
        joined.warnings += graph_warnings(settings)
        keep_index_settings(settings)
        for shard in shards.values():
            joined.warnings += note_embedding(shard, joined.embedding.model)
        if any(stage.name == "extract" for stage in chosen):
            joined.gate.unusable = await joined.language.check()
        yield joined


def _processing_log(settings: Settings, clock: Callable[[], datetime]) -> EmbeddedLog:
    """Opens the log for processing; waits while a reader checks the lock."""
    deadline = time.monotonic() + LOCK_PATIENCE_SECONDS / 4
    while True:
        try:
            return open_log(settings, "process", clock)
        except LogInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
