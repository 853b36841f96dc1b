"""Assembles a worker on Kafka, like `ops.embedded.application` for the embedded log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import duckdb

from palimpsest.ops.log_folder import make_private
from palimpsest.ops.maintenance.earning import Earning, any_busy
from palimpsest.ops.maintenance.erasing import carry_out_on_kafka
from palimpsest.ops.maintenance.periodic import PeriodicTask, running
from palimpsest.ops.maintenance.publishing import Publishing
from palimpsest.ops.maintenance.shadow_deciding import ShadowDeciding
from palimpsest.ops.maintenance.upkeep import Upkeep, expiring
from palimpsest.ops.parts import (
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
from palimpsest.stores.lock import FolderInUse
from palimpsest.stores.settings import ShardOptions
from palimpsest.stores.shard import Shard
from palimpsest.streams.kafka.cluster import ROLES, STATELESS, STORE, Cluster, role_of
from palimpsest.streams.kafka.faust_agents import FaustFlow, Member, quieten
from palimpsest.streams.kafka.log import KafkaLog
from palimpsest.streams.kafka.role import Busy, PartitionStore, Role, stages_of
from palimpsest.streams.kafka.sender import KafkaSender
from palimpsest.streams.kafka.waiting import Wait, Waiting
from palimpsest.streams.logs.base import UNAVAILABLE_SECONDS, LogError, LogUnavailable, Outgoing
from palimpsest.streams.models.base import EmbeddingModel, LanguageModel
from palimpsest.streams.models.recorded import RecordedReplies
from palimpsest.streams.runtime.fair_queue import FairQueue
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.partition_task import PartitionTask, by_stage
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.topology import stages

DRAINED_SECONDS = 0.5
WATCH_SECONDS = 0.25
logger = logging.getLogger(__name__)


def roles_of(only: Sequence[str]) -> tuple[str, ...]:
    """Returns the roles of the named stages, all if none is named. Raises SetupError if only some
    stages of a role are named: its members share the topics of all its stages."""
    check_stages(only)
    if not only:
        return tuple(ROLES)
    roles = tuple(role for role in ROLES if role in {role_of(name) for name in only})
    missing = [name for role in roles for name in ROLES[role] if name not in only]
    if missing:
        raise SetupError(
            f"on Kafka the stages {', '.join(only)} run together with {', '.join(missing)};"
            f" name one of {' or '.join(','.join(names) for names in ROLES.values())}, or none"
            " for all"
        )
    return roles


class ShardSet(Mapping[int, Shard]):
    """The shards that this worker has open now, by partition. May be read from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, Shard] = {}

    def add(self, partition: int, shard: Shard) -> None:
        with self._lock:
            self._open[partition] = shard

    def remove(self, partition: int) -> None:
        with self._lock:
            self._open.pop(partition, None)

    def now(self) -> dict[int, Shard]:
        """Returns the shards that are open now."""
        with self._lock:
            return dict(sorted(self._open.items()))

    def __getitem__(self, partition: int) -> Shard:
        return self.now()[partition]

    def __iter__(self) -> Iterator[int]:
        return iter(self.now())

    def __len__(self) -> int:
        return len(self.now())


@dataclass(slots=True)
class _Parts:
    """Opens shards and creates runners for one role."""

    app: KafkaApplication
    options: ShardOptions | None
    clock: Callable[[], datetime]

    def open(self, partition: int) -> Shard | None:
        if self.options is None:
            return None
        try:
            shard = open_shard(self.app.settings, partition, self.options)
        except FolderInUse as error:
            raise Busy(str(error)) from error
        if shard.has_erasures:
            self._erase(partition, shard)
        self.app.warnings += note_embedding(shard, self.app.embedding.model)
        keep_index_settings(self.app.settings)
        with contextlib.suppress(LogError):  # shadow deciders start later without a broker
            self.app.deciding.opened(partition, shard)
        self.app.shards.add(partition, shard)
        return shard

    def _erase(self, partition: int, shard: Shard) -> None:
        """Executes pending erasures in files before the partition's stages start. A failure is
        logged, and the erasure stays pending."""
        try:
            carry_out_on_kafka(self.app.log.append, partition, shard, self.app.replies)
        except (LogError, OSError, duckdb.Error) as error:
            logger.warning("erased texts are still in files of partition %d: %s", partition, error)

    def close(self, partition: int, store: PartitionStore) -> None:
        assert isinstance(store, Shard)
        self.app.shards.remove(partition)
        store.close()

    def runner(self, task: PartitionTask, store: PartitionStore | None) -> StageRunner:
        app, place = self.app, (task.stage.name, task.partition)
        before = app.made.get(place)
        app.made[place] = stage_runner(
            app.settings,
            task,
            app.models,
            app.sender,
            store,
            self.clock,
            app.gate,
            app.log.cluster.partitions,
            None if before is None else before.counts,
        )
        return app.made[place]


@dataclass(slots=True)
class KafkaApplication:
    """One process that runs roles: its permanent parts, and those of its current partitions. `made`
    holds the last runner of every stage and partition that this worker has had."""

    settings: Settings
    log: KafkaLog
    sender: KafkaSender
    language: LanguageModel
    embedding: EmbeddingModel
    models: ModelPort
    gate: ModelGate
    names: tuple[str, ...]
    replies: RecordedReplies | None = None
    roles: list[Role] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    queue: FairQueue = field(default_factory=FairQueue)
    shards: ShardSet = field(default_factory=ShardSet)
    warnings: list[str] = field(default_factory=list)
    on_drained: Callable[[], Awaitable[None]] | None = None
    """Awaited when everything is processed, before the stores are closed."""
    finished: bool = False
    """Whether `run(until_drained=True)` processed everything."""
    made: dict[tuple[str, int], StageRunner] = field(default_factory=dict)
    clock: Callable[[], datetime] = utc_now
    patient: bool = False
    """Whether `run` waits for a broker that is unavailable at the start."""
    waiting: Waiting = field(init=False)
    _is_connected: bool = False
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _publishing: Publishing = field(init=False)
    deciding: ShadowDeciding = field(init=False)
    _earning: Earning = field(init=False)

    def __post_init__(self) -> None:
        self.waiting = Waiting(self.settings.kafka.bootstrap_servers, self.clock)
        given = (self.log, self.append, self.settings, self.clock)
        self._publishing = Publishing(self.shards.now, *given, self.models)
        self.deciding = ShadowDeciding(self.shards.now, *given, self.replies, self.models.usage)
        flags = self.settings.pipeline
        self._earning = Earning(self.shards.now, self.log, self.append, flags, self.clock)

    @property
    def wait(self) -> Wait | None:
        """What the worker waits for now."""
        return self.waiting.now

    @property
    def runners(self) -> list[StageRunner]:
        return [*self.made.values()]

    def append(self, outgoing: Sequence[Outgoing]) -> list[tuple[int, int]]:
        return self.log.append(outgoing)

    async def run(self, until_drained: bool) -> None:
        """Processes until `stop`, or until every stage of every worker has processed everything.
        Raises the error of a stage, a store or the client, LogUnavailable if another process may
        succeed; the other roles are stopped."""
        async with PeriodicTask("waiting", WATCH_SECONDS, self._note_waiting).running(self.stop):
            if await self._connected():
                await self._work(until_drained)

    async def _connected(self) -> bool:
        """Waits for the broker; returns False if stopped first."""
        while not self._stop.is_set():
            try:
                await asyncio.to_thread(self.log.check)
                await self.sender.start()
            except LogUnavailable:
                if not self.patient:
                    raise
                await self._unless_stopped(UNAVAILABLE_SECONDS)
            else:
                self._is_connected = True
                return True
        return False

    async def _note_waiting(self) -> None:
        found = {member.waits_for() for member in self.members}
        if not self._is_connected or "broker" in found:
            self.waiting.note("broker")
        else:
            self.waiting.note("partitions" if "partitions" in found else None)

    async def _unless_stopped(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    async def _work(self, until_drained: bool) -> None:
        tasks = [asyncio.create_task(member.run(self._stop)) for member in self.members]
        if until_drained:
            tasks.append(asyncio.create_task(self._until_drained()))
        async with running(await self._background(), self.stop):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self.stop()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for failure in results:
            if isinstance(failure, BaseException):
                raise failure

    async def _background(self) -> list[PeriodicTask]:
        flags = self.settings.pipeline
        found = [Upkeep(self.shards.now, self.embedding, flags).task(), self._earning.task()]
        if not flags.autonomous_frozen:
            found.append(expiring([self.replies], self.clock, self.settings.log.expire_seconds))
            await found[-1].once()
        return [*found, *self._publishing.tasks(), *await self.deciding.tasks()]

    def stop(self) -> None:
        """Finishes the current batches, leaves the group, then ends `run`."""
        self.gate.stopping = True
        self._stop.set()

    def under_way(self) -> dict[str, int]:
        """Records that the stages work on now, by stage."""
        return by_stage(self._tasks(), lambda task: task.taken)

    def left(self) -> dict[str, int]:
        """Records that wait here for each stage: only those already fetched from the log."""
        return by_stage(self._tasks(), PartitionTask.left)

    async def _drained(self) -> bool:
        return await asyncio.to_thread(self.log.drained)

    async def _busy(self) -> bool:
        """Whether a background task will still publish."""
        asked = any_busy(self._publishing.busy, self.deciding.busy, self._earning.once)
        return await asyncio.to_thread(asked)

    def _tasks(self) -> Iterator[PartitionTask]:
        return (task for role in self.roles for task in role.tasks.values())

    async def _until_drained(self) -> None:
        while not self._stop.is_set():
            # Checks twice: background tasks may publish before they finish. Until the partitions
            # are open, it is unknown what is to be published.
            works = all(role.works() for role in self.roles)
            if works and await self._drained() and not await self._busy() and await self._drained():
                self.finished = True
                if self.on_drained is not None:
                    await self.on_drained()
                return
            await self._unless_stopped(DRAINED_SECONDS)


async def until_reached(log: KafkaLog, waiting: Waiting) -> None:
    """Returns as soon as the broker answers and has the topics; `waiting` reports the wait. Raises
    LogError if the broker answers with an error that waiting does not fix."""
    waiting.note("broker")
    while True:
        try:
            await asyncio.to_thread(log.check)
        except LogUnavailable:
            await asyncio.sleep(UNAVAILABLE_SECONDS)
            waiting.note("broker")
        else:
            waiting.note(None)
            return


@contextlib.asynccontextmanager
async def kafka_application(
    settings: Settings,
    only: Sequence[str] = (),
    clock: Callable[[], datetime] = utc_now,
    patient: bool = False,
) -> AsyncIterator[KafkaApplication]:
    """Assembles a process that runs the stages named in `only` (all if it is empty).

    Raises SetupError and LogError, each with advice; `run` reports an unusable store when its
    partition is assigned. With `patient`, `run` waits for an unavailable broker.
    """
    names = roles_of(only)
    cluster = settings.cluster
    quieten()
    async with contextlib.AsyncExitStack() as undo:
        language = language_model(settings.llm)
        undo.push_async_callback(language.close)
        embedding = embedding_model(settings)
        undo.push_async_callback(embedding.close)
        await check_embedding(embedding)
        log = undo.enter_context(KafkaLog(cluster))
        if not patient:
            await asyncio.to_thread(log.check)
        sender = KafkaSender(cluster)
        undo.push_async_exit(sender)
        replies = recorded_replies(settings, clock)
        if replies is not None:
            undo.callback(replies.close)
        models = model_port(settings, language, embedding, replies)
        gate = ModelGate(language)
        if STATELESS in names:
            gate.unusable = await language.check()
        joined = KafkaApplication(
            *(settings, log, sender, language, embedding, models, gate, names, replies),
            clock=clock,
            patient=patient,
        )
        undo.push_async_callback(joined.deciding.close)
        for name in names:
            _add_role(joined, name, cluster, clock)
        yield joined


def _add_role(
    joined: KafkaApplication, name: str, cluster: Cluster, clock: Callable[[], datetime]
) -> None:
    settings = joined.settings
    own = stages_of(name, stages(settings, known_private(joined.shards)))
    store = shard_options(settings, joined.embedding) if name == STORE else None
    flow = FaustFlow(cluster)
    role = Role(
        name,
        cluster,
        own,
        _Parts(joined, store, clock),
        joined.log,
        joined.sender,
        flow,
        joined.queue,
        settings.worker,
        model_stages(settings),
    )
    folder = settings.data_dir / "faust"
    make_private(settings.data_dir)
    folder.mkdir(exist_ok=True)
    member = Member(role, cluster, folder)
    flow.member = member
    joined.roles.append(role)
    joined.members.append(member)
