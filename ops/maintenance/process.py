"""A process that runs stages, on either log: its models, and all that it does alongside them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from palimpsest.ops.embedding.models import EmbeddingModels, choice_of
from palimpsest.ops.embedding.tracker import EmbeddingTracker
from palimpsest.ops.lifecycle.access import AccessRecorder
from palimpsest.ops.lifecycle.accesses import AccessBuffer
from palimpsest.ops.maintenance.publishing import Fetcher, SilenceTimer, SummaryTimer
from palimpsest.ops.maintenance.recorded_replies import model_port, recorded_replies
from palimpsest.ops.maintenance.scheduled_jobs import JOBS
from palimpsest.ops.maintenance.shadow_deciding import Earning, ShadowDeciding
from palimpsest.ops.parts import ModelGate, embedding_model, language_model
from palimpsest.ops.scheduling.jobs import Scheduler
from palimpsest.ops.scheduling.periodic import PartitionTimer, PeriodicTask, in_thread, passing
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.index.cache import give_back
from palimpsest.stores.shard import Shard
from palimpsest.streams.kafka.cluster import Wait
from palimpsest.streams.logs.base import LogReader, Outgoing
from palimpsest.streams.models.base import EmbeddingModel, LanguageModel
from palimpsest.streams.models.recorded import RecordedReplies
from palimpsest.streams.models.settings import LlmSettings
from palimpsest.streams.runtime import offload
from palimpsest.streams.runtime.partition_task import PartitionTask, by_stage
from palimpsest.streams.runtime.runner import StageRunner


class ProcessLog(LogReader, Protocol):
    def append(self, outgoing: Sequence[Outgoing]) -> list[tuple[int, int]]:
        """Appends durably; returns partition and offset of each. Blocks. Raises LogError."""
        ...


class Process(ABC):
    """`make_language` and `make_embedding` create the models, in place of those that are set.
    `recorded` may be the recorded replies of another folder, which then controls their retention.
    `undo` closes all that is opened here. Raises SetupError and LogError."""

    log: ProcessLog
    shards: Mapping[int, Shard]
    """Those that are open here now, by partition."""
    _tracker: EmbeddingTracker
    _upkeep: Upkeep

    def __init__(
        self,
        settings: Settings,
        log: ProcessLog,
        clock: Callable[[], datetime],
        undo: contextlib.AsyncExitStack,
        make_language: Callable[[LlmSettings], LanguageModel] | None = None,
        make_embedding: Callable[[Settings], EmbeddingModel] | None = None,
        recorded: RecordedReplies | None = None,
    ) -> None:
        self.settings, self.log, self.clock = settings, log, clock
        self.warnings: list[str] = []
        self.on_drained: Callable[[], Awaitable[None]] | None = None
        """Awaited when everything is processed, while the stores are open."""
        self.finished = False
        """Whether `run(until_drained=True)` processed everything."""
        self.stopped = asyncio.Event()
        self.language = (make_language or language_model)(settings.llm)
        undo.push_async_callback(self.language.close)
        embedding = (make_embedding or embedding_model)(settings)
        undo.push_async_callback(embedding.close)
        self.replies = None if recorded is not None else recorded_replies(settings, clock)
        """The recorded replies of this folder."""
        if self.replies is not None:
            undo.callback(self.replies.close)
        make = make_embedding or embedding_model
        self.embeddings = EmbeddingModels(settings, embedding, self.opened, make)
        undo.push_async_callback(self.embeddings.close)
        self.models = model_port(settings, self.language, self.embeddings, recorded or self.replies)
        self.gate = ModelGate(self.language)
        self.accesses = AccessBuffer(settings.access.record)
        known = (self.opened, log, log.append, settings, clock)
        self.scheduler = Scheduler(*known, jobs=JOBS, models=self.models)
        self._timers: list[PartitionTimer[Any]] = [
            *(Fetcher(*known), SilenceTimer(*known), Earning(*known), self.scheduler)
        ]
        # Not awaited: a model may be unavailable for long.
        self._summaries = [SummaryTimer(*known, self.models)] if settings.summarizes else []
        self.deciding = ShadowDeciding(*known, recorded or self.replies, self.models.usage)
        undo.push_async_callback(self.deciding.close)

    def opened(self) -> Mapping[int, Shard]:
        """The shards that are open now, which may be other ones at the next call."""
        return self.shards

    @property
    def embedding(self) -> EmbeddingModel:
        """The model that is set."""
        return self.embeddings.own

    @property
    def wait(self) -> Wait | None:
        """What the worker waits for now."""
        return None

    @property
    @abstractmethod
    def runners(self) -> list[StageRunner]:
        """The last runner of every stage and partition."""

    @abstractmethod
    async def run(self, until_drained: bool) -> None:
        """Processes until `stop`, or until everything is processed. Raises the error of a stage,
        a store or the log."""

    @abstractmethod
    def partition_tasks(self) -> Iterable[PartitionTask]:
        """The work of the stages on the partitions that are open here."""

    def under_way(self) -> dict[str, int]:
        """Number of records of the current batches, by stage."""
        return by_stage(self.partition_tasks(), lambda task: task.taken)

    def left(self) -> dict[str, int]:
        """Number of records known here that wait for each stage, including the current batches: on
        Kafka only those already fetched from the log."""
        return by_stage(self.partition_tasks(), PartitionTask.left)

    def stop(self) -> None:
        """Finishes the current batches, then ends `run`."""
        self.gate.stopping = True
        self.stopped.set()

    # --- alongside the stages -----------------------------------------------------------------

    def tracker(self, publishes: bool) -> EmbeddingTracker:
        """Adds missing vectors; if it `publishes`, it also ends migrations."""
        append = self.log.append if publishes else None
        partitions = self.log.partitions(CONVERSATION_TURNS.name)
        return EmbeddingTracker(
            self.opened, self.embeddings, self.settings.pipeline, append, partitions, self.clock
        )

    async def background(
        self,
        publishes: bool,
        old: Sequence[Expiring | None],
        also: Sequence[PeriodicTask] = (),
    ) -> list[PeriodicTask]:
        """All that is done alongside the stages. `publishes`: also what these stages must apply.
        `old` expires; `also` is what only this log needs."""
        self._tracker = self.tracker(publishes)
        self._upkeep = Upkeep(self.opened, self._tracker)
        tasks = [self._upkeep.task(), *self._tracker.tasks(), *also]
        if not self.settings.pipeline.autonomous_frozen:
            tasks.append(expiring(old, self.clock, self.settings.log.expire_seconds))
            await tasks[-1].once()
        recorder = AccessRecorder(
            self.accesses, self.opened, self.log.append, self.settings, self.clock
        )
        tasks.append(recorder.task())
        if publishes:
            tasks += [timer.task() for timer in (*self._timers, *self._summaries)]
            tasks += await self.deciding.tasks()
        return tasks

    def busy(self) -> bool:
        """Whether something of the background will still publish. Blocks."""
        timers = any(each.busy() for each in self._timers)
        return timers or self.deciding.busy() or self._tracker.busy()


# --- upkeep ---------------------------------------------------------------------------------------
# Maintenance alongside the stages: on every open shard LanceDB follows DuckDB; records of the
# embedded log expire after the retention time of their topic (on Kafka the broker does that).
#
# `autonomous_frozen` stops the expiry. LanceDB still follows: it is a copy.

if TYPE_CHECKING:
    from palimpsest.stores.index.lance import VectorTable

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Minimum pause before shards are checked for changes again."""
SHARE = 0.05
"""Share of the time that syncs may take. A sync takes 10 to 50 ms however little it writes, and
nothing waits for it: recall finds new memories in the resident index."""
MOST_SECONDS = 10.0
"""Maximum pause: the first sync of a process compares everything."""


IDLE_SECONDS = 60.0
"""After so long without a write a shard gives back memory."""
FILES_SECONDS = 330.0
"""After so long without a write no search needs an older version of the vectors."""

Position = tuple[int, int]
"""The write sequence of a shard, and how many batches of vectors were added without one."""


@dataclass(slots=True)
class _Kept:
    """`synced`: by vector space the position as of its last sync. `written` and `since`: what the
    shard had written when it was last seen to write, and when that was."""

    synced: dict[str, Position] = field(default_factory=dict)
    is_failing: bool = False
    written: int = -1
    since: float = 0.0
    rested: int = 0
    """Number of the steps of `_rest` that were taken since."""
    tried_at: float = 0.0
    """When it last tried to give back memory, which it does not while somebody reads."""
    readers: int = 0
    """How many readers there had been when it gave back memory."""


class Upkeep:
    """Maintains the open shards, which `shards` returns and which may change at any time."""

    def __init__(
        self, shards: Callable[[], Mapping[int, Shard]], tracker: EmbeddingTracker | None = None
    ) -> None:
        """`tracker` adds missing vectors before a `finish`."""
        # The import takes more than a second: do it before stages and readers are at work.
        import palimpsest.stores.index.lance  # noqa: F401

        self._shards = shards
        self._tracker = tracker
        # A closed shard must not keep its resident indexes alive.
        self._kept: WeakKeyDictionary[Shard, _Kept] = WeakKeyDictionary()

    def task(self) -> PeriodicTask:
        return PeriodicTask("upkeep", LOOK_SECONDS, self._once)

    async def finish(self, stopped: asyncio.Event | None = None) -> bool:
        """Maintains every shard once more, regardless of its last check, until done or until
        `stopped` is set; returns whether it finished."""
        doing = asyncio.create_task(self._finish())
        stopping = asyncio.create_task((stopped or asyncio.Event()).wait())
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (doing, stopping):
            task.cancel()
        [failure, _] = await asyncio.gather(doing, stopping, return_exceptions=True)
        if isinstance(failure, asyncio.CancelledError):
            return False
        if failure is not None:
            raise failure
        return True

    async def _finish(self) -> None:
        for partition, shard in self._shards().items():
            if self._tracker is not None:
                await self._tracker.track(partition, shard)
                await self._tracker.migrate(partition, shard)
            await self._keep(shard)

    async def _once(self) -> float:
        syncing = 0.0
        for partition, shard in self._shards().items():
            with passing("upkeep", partition):
                syncing += await self._keep(shard)
                await self._rest(shard)
        return pause_after(syncing)

    async def _rest(self, shard: Shard) -> None:
        """Gives back what a shard needed, once it has not been written for a while: memory first,
        then small files and older versions of vectors, then what reading has filled again."""
        kept, now = self._kept.setdefault(shard, _Kept()), time.monotonic()
        if shard.written != kept.written:
            kept.written, kept.since, kept.rested = shard.written, now, 0
        elif kept.rested == 0 and now >= max(kept.since, kept.tried_at) + IDLE_SECONDS:
            await self._give_back(shard, kept)
        elif kept.rested == 1 and now >= kept.since + FILES_SECONDS:
            kept.rested = 2
            await asyncio.to_thread(shard.vector_table().rest)
        elif (
            kept.rested == 2
            and now >= kept.tried_at + FILES_SECONDS
            and shard.readers.count != kept.readers
        ):
            await self._give_back(shard, kept)

    async def _give_back(self, shard: Shard, kept: _Kept) -> None:
        async with shard.lock:
            has_rested = await offload.in_thread(shard.rest)
        await asyncio.to_thread(give_back)
        kept.tried_at = time.monotonic()
        if has_rested:
            kept.rested, kept.readers = max(kept.rested, 1), shard.readers.count

    async def _keep(self, shard: Shard) -> float:
        """Syncs the vectors in use, and those that a migration makes; returns the seconds that it
        took."""
        kept, row = self._kept.setdefault(shard, _Kept()), shard.embedding
        tables = {shard.embedding_space: shard.vector_table()}
        if row is not None and row.upcoming is not None:
            to = choice_of(row.upcoming)
            tables[to.space] = shard.vector_table(to.space, to.dimensions)
        newest = (shard.write_seq, shard.vectors_changed)
        began = time.monotonic()
        for space, table in tables.items():
            if kept.synced.get(space) != newest or not table.is_open:
                await self._sync(shard, kept, space, table, newest)
        return time.monotonic() - began

    async def _sync(
        self, shard: Shard, kept: _Kept, space: str, table: VectorTable, newest: Position
    ) -> None:
        """Syncs LanceDB. An error is logged once and is not raised: recall does not need LanceDB's
        copy, and the next sync repairs damage."""
        try:
            syncing = asyncio.get_running_loop().run_in_executor(None, table.sync)
        except RuntimeError:
            return  # the interpreter is shutting down and starts no more threads
        try:
            await syncing
        except StoreClosed:
            raise
        except Exception as error:
            if not kept.is_failing:
                logger.warning("vectors of %s, to be tried again: %s", shard.folder, error)
            kept.is_failing = True
        else:
            kept.synced[space], kept.is_failing = newest, False


class Expiring(Protocol):
    """Anything with a retention time."""

    def expire(self, now: datetime) -> int:
        """Removes what is too old; returns how many were removed. Raises LogError."""
        ...


def expiring(
    kept: Sequence[Expiring | None], clock: Callable[[], datetime], seconds: float
) -> PeriodicTask:
    """Removes records of the embedded log and recorded replies past their retention time, every
    `seconds`. Call it `once` before something may read what is too old."""

    def expire() -> None:
        for each in filter(None, kept):
            each.expire(clock())

    return PeriodicTask("what is too old", seconds, in_thread(expire), first=seconds)


def pause_after(syncing: float) -> float:
    """Returns the pause, in seconds, after syncs that took `syncing` seconds."""
    return min(max(LOOK_SECONDS, syncing / SHARE), MOST_SECONDS)
