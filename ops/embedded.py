"""Assembles the process that runs the stages on the embedded log."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from palimpsest.ops.maintenance.earning import Earning, any_busy
from palimpsest.ops.maintenance.erasing import FileErasing
from palimpsest.ops.maintenance.partition_timer import applies_commands
from palimpsest.ops.maintenance.periodic import PeriodicTask, running
from palimpsest.ops.maintenance.publishing import Publishing
from palimpsest.ops.maintenance.purge import Purge
from palimpsest.ops.maintenance.shadow_deciding import ShadowDeciding
from palimpsest.ops.maintenance.upkeep import Upkeep, expiring
from palimpsest.ops.maintenance.withholding import PrivacyRedactor
from palimpsest.ops.opening import open_log, open_shards
from palimpsest.ops.parts import (
    LOCK_PATIENCE_SECONDS,
    ModelGate,
    check_embedding,
    check_stages,
    embedding_model,
    known_private,
    language_model,
    model_stages,
    note_embedding,
    shard_options,
    stage_runner,
    utc_now,
)
from palimpsest.ops.recorded_replies import model_port, recorded_replies
from palimpsest.ops.settings.folder_settings import keep_index_settings
from palimpsest.ops.settings.sections import Settings
from palimpsest.stores.shard import Shard
from palimpsest.streams.kafka.waiting import Wait
from palimpsest.streams.logs.base import LogInUse
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.models.base import EmbeddingModel, LanguageModel
from palimpsest.streams.models.recorded import RecordedReplies
from palimpsest.streams.models.settings import LlmSettings
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.partition_task import PartitionTask
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.runtime.worker import Worker
from palimpsest.streams.stage import Stage
from palimpsest.streams.topology import stages


@dataclass(slots=True)
class Application:
    """One process that runs stages: log, models, one shard per partition, the worker."""

    settings: Settings
    log: EmbeddedLog
    language: LanguageModel
    embedding: EmbeddingModel
    models: ModelPort
    gate: ModelGate
    shards: list[Shard]
    worker: Worker
    erasing: FileErasing
    replies: RecordedReplies | None
    """The recorded replies of this folder."""
    deciding: ShadowDeciding
    clock: Callable[[], datetime] = utc_now
    warnings: list[str] = field(default_factory=list)
    on_drained: Callable[[], Awaitable[None]] | None = None
    """Awaited at the end of `run`, while the stores are open."""
    tasks: Callable[[Application], Sequence[PeriodicTask]] = lambda app: ()
    """More work for the background of `run`."""
    finished: bool = False
    """Whether `run(until_drained=True)` processed everything."""
    wait: Wait | None = None
    """On Kafka: what the worker waits for."""
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def runners(self) -> list[StageRunner]:
        """One runner per stage and partition."""
        return self.worker.runners

    async def run(self, until_drained: bool) -> None:
        """Processes until `stop`, or until everything is processed."""
        shards = dict(enumerate(self.shards))
        upkeep = Upkeep(lambda: shards, self.embedding, self.settings.pipeline)
        tasks = [*await self._expiring(), upkeep.task(), *self._removing(), *self.tasks(self)]
        if applies_commands(self.worker.stages):
            tasks += await self._publishing(shards)
        async with running(tasks, self._end_worker):
            await self._work(until_drained)
        if self.worker.drained:
            self.finished = await upkeep.finish(self._stopped)
        if self.on_drained is not None:
            await self.on_drained()

    async def _expiring(self) -> list[PeriodicTask]:
        if self.settings.pipeline.autonomous_frozen:
            return []
        seconds = self.settings.log.expire_seconds
        task = expiring((self.log, self.replies), self.clock, seconds)
        await task.once()
        return [task]

    def _removing(self) -> list[PeriodicTask]:
        """What removes from the log what it may not hold."""
        tasks = Purge(self.log, self.settings.pii).tasks()
        if self.settings.privacy.purge:
            tasks.append(PrivacyRedactor(self.log, self.shards).task())
        return tasks

    async def _publishing(self, shards: Mapping[int, Shard]) -> list[PeriodicTask]:
        append, flags = self.log.append, self.settings.pipeline
        known = (self.settings, self.clock, self.models)
        publishing = Publishing(lambda: shards, self.log, append, *known)
        earning = Earning(lambda: shards, self.log, append, flags, self.clock)
        self.worker.busy = any_busy(publishing.busy, self.deciding.busy, earning.once)
        return [*publishing.tasks(), *await self.deciding.tasks(), earning.task()]

    async def drain(self) -> bool:
        """Processes everything in the log with the stages alone, without fetching or maintenance;
        returns whether it finished. May be called again."""
        if self.worker.drained:
            self.worker = self.worker.resumed()
        await self._work(until_drained=True)
        return self.worker.drained

    async def _work(self, until_drained: bool) -> None:
        """Runs the stages, and between two runs executes pending erasures in files."""
        async with self.erasing.watching(self._pause).running():
            await self.erasing.execute()
            while True:
                await self.worker.run(until_drained)
                if not self.erasing.due:
                    return
                await self.erasing.execute()
                if self._stopped.is_set() or self.worker.drained:
                    return
                self.worker = self.worker.resumed()

    def _end_worker(self) -> None:
        self.worker.stop()

    def _pause(self) -> None:
        self.worker.pause()  # the current worker: a run after an erasure has a new one

    def under_way(self) -> dict[str, int]:
        """Records that the stages work on now, by stage."""
        return self.worker.under_way()

    def left(self) -> dict[str, int]:
        """Records that wait for each stage."""
        return self.worker.left()

    @property
    def is_stopping(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        """Finishes the current batches, then ends `run`; a second call abandons them."""
        self.gate.stopping = True
        self._stopped.set()
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
        language, embedding = _models(settings, make_language, make_embedding, undo)
        log = undo.enter_context(_processing_log(settings, clock))
        options = shard_options(settings, embedding)
        shards = open_shards(settings, log, options, undo)
        own = None if replies is not None else recorded_replies(settings, clock)
        if own is not None:
            undo.callback(own.close)
        models = model_port(settings, language, embedding, replies or own)
        gate = ModelGate(language)

        def runner(task: PartitionTask) -> StageRunner:
            return stage_runner(settings, task, models, log, shards[task.partition], clock, gate)

        async def after_batch(runner: StageRunner) -> None:
            if joined.erasing.due:
                joined.worker.pause()
            if on_batch is not None:
                await on_batch(runner)

        flow = stages(settings, known_private(dict(enumerate(shards))))
        chosen = [adapted(s) for s in flow if not only or s.name in only]
        asking = model_stages(settings)
        worker = Worker(log, chosen, len(shards), runner, settings.worker, asking, after_batch)
        opened = dict(enumerate(shards))
        given = (log, log.append, settings, clock, replies or own, models.usage)
        deciding = ShadowDeciding(lambda: opened, *given)
        undo.push_async_callback(deciding.close)
        erasing = FileErasing(log, shards, own)
        models_used = (language, embedding, models, gate)
        joined = Application(
            settings, log, *models_used, shards, worker, erasing, own, deciding, clock, tasks=tasks
        )
        await check_embedding(embedding)
        joined.warnings += _noted(settings, shards, embedding.model)
        if any(stage.name == "extract" for stage in chosen):
            gate.unusable = await language.check()
        yield joined


def _noted(settings: Settings, shards: Sequence[Shard], model: str) -> list[str]:
    """Records the current embedding and index settings; returns the warnings about them."""
    keep_index_settings(settings)
    return [told for shard in shards for told in note_embedding(shard, model)]


def _models(
    settings: Settings,
    make_language: Callable[[LlmSettings], LanguageModel] | None,
    make_embedding: Callable[[Settings], EmbeddingModel] | None,
    undo: contextlib.AsyncExitStack,
) -> tuple[LanguageModel, EmbeddingModel]:
    """Returns the configured models, created by these functions if given; `undo` closes them."""
    language = (make_language or language_model)(settings.llm)
    undo.push_async_callback(language.close)
    embedding = (make_embedding or embedding_model)(settings)
    undo.push_async_callback(embedding.close)
    return language, embedding


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
