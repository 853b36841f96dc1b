"""The embedded log, and the processes that work on it: the one that runs stages, and readers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from palimpsest.ops.folder_swap import unexchanged
from palimpsest.ops.log_folder import log_folder, make_private
from palimpsest.ops.log_identity import is_of_another, note_log
from palimpsest.ops.maintenance.erasing import FileErasing
from palimpsest.ops.maintenance.shadow_deciding import ShadowDeciding
from palimpsest.ops.parts import (
    LOCK_PATIENCE_SECONDS,
    ModelGate,
    SetupError,
    check_embedding,
    check_stages,
    embedding_model,
    known_private,
    language_model,
    model_stages,
    note_embedding,
    open_shard,
    shard_options,
    stage_runner,
    utc_now,
)
from palimpsest.ops.recorded_replies import model_port, recorded_replies
from palimpsest.ops.settings.folder_settings import keep_index_settings
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_CHANGES
from palimpsest.stores.database.damage import REBUILD
from palimpsest.stores.settings import ShardOptions
from palimpsest.stores.shard import Shard, StoreError
from palimpsest.streams.kafka.waiting import Wait
from palimpsest.streams.logs.base import LogInUse
from palimpsest.streams.logs.embedded import EmbeddedLog, Mode
from palimpsest.streams.models.base import EmbeddingModel, LanguageModel
from palimpsest.streams.models.recorded import RecordedReplies
from palimpsest.streams.models.settings import LlmSettings
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.partition_task import PartitionTask
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.runtime.worker import Worker
from palimpsest.streams.stage import Stage
from palimpsest.streams.topology import stages


def open_log(
    settings: Settings, mode: Mode, clock: Callable[[], datetime] = utc_now
) -> EmbeddedLog:
    """Opens the embedded log. Raises LogError, and SetupError for a log that is not embedded."""
    if settings.log.kind != "embedded":
        raise SetupError(
            "log.kind is kafka: this command needs the embedded log; unset it, or use the Kafka"
            " worker"
        )
    folder = log_folder(settings)
    partitions = settings.log.partitions
    with unexchanged(settings.data_dir):
        if mode != "read":
            with contextlib.suppress(OSError):  # creating the log reports it
                make_private(settings.data_dir)
        if partitions is None and mode != "read" and not (folder / "log.sqlite").exists():
            partitions = 1
        return EmbeddedLog.open(folder, partitions, clock, mode)


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
        # Imported here: a reader needs neither LanceDB nor the other imports of a worker.
        from palimpsest.ops.maintenance.branch_erasing import BranchErasing
        from palimpsest.ops.maintenance.earning import Earning, any_busy
        from palimpsest.ops.maintenance.partition_timer import applies_commands
        from palimpsest.ops.maintenance.publishing import Publishing
        from palimpsest.ops.maintenance.purge import Purge
        from palimpsest.ops.maintenance.upkeep import Upkeep, expiring
        from palimpsest.ops.maintenance.withholding import PrivacyRedactor

        shards = dict(enumerate(self.shards))
        flags = self.settings.pipeline
        upkeep = Upkeep(lambda: shards, self.embedding, flags)
        kept = (self.log, self.replies)
        seconds = self.settings.log.expire_seconds
        purge = Purge(self.log, self.settings.pii)
        withholding = PrivacyRedactor(self.log, self.shards, self.settings.privacy.purge)
        ended = self._stopped.is_set
        branches = BranchErasing(self.settings, self.log, shards, ended)
        async with (
            expiring(kept, self.clock, seconds, unless=flags.autonomous_frozen),
            upkeep.running(),
            purge.running(),
            withholding.running(),
            branches.running(),
            contextlib.AsyncExitStack() as timers,
        ):
            if applies_commands(self.worker.stages):
                append = self.log.append
                known = (self.settings, self.clock, self.models)
                publishing = Publishing(lambda: shards, self.log, append, *known)
                earning = Earning(lambda: shards, self.log, append, flags, self.clock)
                self.worker.busy = any_busy(publishing.busy, self.deciding.busy, earning.once)
                await timers.enter_async_context(publishing.running(self._end_worker))
                await timers.enter_async_context(self.deciding.running(self._end_worker))
                await timers.enter_async_context(earning.running(self._end_worker))
            await self._work(until_drained)
        if self.worker.drained:
            self.finished = await upkeep.finish(self._stopped)
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
        async with self.erasing.watching(self._pause):
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
) -> AsyncIterator[Application]:
    """Assembles a process that runs the stages named in `only` (all if it is empty), each passed
    through `adapted`. `replies` may be the recorded replies of another folder, which then controls
    their retention.

    Raises SetupError, LogError, StoreError or FolderInUse, each with advice.
    """
    check_stages(only)
    async with contextlib.AsyncExitStack() as undo:
        language, embedding = _models(settings, make_language, make_embedding, undo)
        log = undo.enter_context(_processing_log(settings, clock))
        options = shard_options(settings, embedding)
        shards = _open_shards(settings, log, options, undo)
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
            settings, log, *models_used, shards, worker, erasing, own, deciding, clock
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


def _open_shards(
    settings: Settings, log: EmbeddedLog, options: ShardOptions, undo: contextlib.AsyncExitStack
) -> list[Shard]:
    """Opens the shard of every partition; `undo` closes them."""
    shards = []
    for partition in range(log.partitions(CONVERSATION_TURNS.name)):
        shard = open_shard(settings, partition, options)
        undo.callback(shard.close)
        check_shard(log, partition, shard)
        shards.append(shard)
    return shards


def check_shard(log: EmbeddedLog, partition: int, shard: Shard) -> None:
    """Raises StoreError for an empty store if the log shows that a store had content, since
    processing the log again would repeat model calls; and for a store built from another log."""
    # An empty log may be that of a branch, whose stores come from the live log.
    has_more = log.end_offset(MEMORY_CHANGES.name, partition) > 0
    if shard.is_untouched and has_more:
        raise StoreError(
            f"the store of partition {partition} in {shard.folder} is empty, and the log tells of"
            f" one that was not: it was removed or lost; {REBUILD}"
        )
    if shard.is_untouched:
        note_log(shard, log)
    elif has_more and is_of_another(shard, log):
        raise StoreError(
            f"the store of partition {partition} in {shard.folder} was made from another log than"
            f" {log.path}: one of both is from before the log was dealt out into other partitions,"
            f" or from after; {REBUILD}"
        )


@dataclass(slots=True)
class Readers:
    """The resources of a reader without a worker: the log, and the shard of every partition."""

    settings: Settings
    log: EmbeddedLog
    shards: list[Shard]
    embedding: EmbeddingModel


@contextlib.asynccontextmanager
async def readers(settings: Settings) -> AsyncIterator[Readers]:
    """Opens log and stores for reading. Raises LogError, StoreError or FolderInUse."""
    async with contextlib.AsyncExitStack() as undo:
        log = undo.enter_context(open_log(settings, "read"))
        embedding = embedding_model(settings)
        undo.push_async_callback(embedding.close)
        options = shard_options(settings, embedding)
        yield Readers(settings, log, _open_shards(settings, log, options, undo), embedding)
