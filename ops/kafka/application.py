"""Assembles a worker on Kafka, like `ops.maintenance.embedded` for the embedded log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import (
    AsyncIterator,
    Callable,
    ItemsView,
    Iterator,
    Mapping,
    Sequence,
    ValuesView,
)
from datetime import datetime

import duckdb

from palimpsest.ops.log_folder import make_private
from palimpsest.ops.maintenance.erasing import execute_on_kafka
from palimpsest.ops.maintenance.process import Process
from palimpsest.ops.parts import (
    SetupError,
    check_stages,
    embedding_warnings,
    follow_language,
    graph_warnings,
    known_private,
    model_stages,
    note_embedding,
    open_shard,
    shard_options,
    stage_runner,
    utc_now,
)
from palimpsest.ops.scheduling.periodic import PeriodicTask, running
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import keep_index_settings
from palimpsest.stores.lock import FolderInUse
from palimpsest.stores.shard import Shard
from palimpsest.streams.kafka.cluster import ROLES, STATELESS, Wait, Waiting, role_of
from palimpsest.streams.kafka.faust_agents import Member, quieten
from palimpsest.streams.kafka.log import KafkaLog
from palimpsest.streams.kafka.role import Busy, PartitionStore, Role, stages_of
from palimpsest.streams.kafka.sender import KafkaSender
from palimpsest.streams.logs.base import UNAVAILABLE_SECONDS, LogError, LogUnavailable
from palimpsest.streams.runtime.pace import FairQueue
from palimpsest.streams.runtime.partition_task import PartitionTask
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

    # Those of Mapping look up one key after the other, of which a rebalance may remove some.
    def items(self) -> ItemsView[int, Shard]:
        return self.now().items()

    def values(self) -> ValuesView[Shard]:
        return self.now().values()


class KafkaApplication(Process):
    """One process that runs roles, and the parts of the partitions that it has now. `made` holds
    the last runner of every stage and partition that it has had. With `patient`, `run` waits for a
    broker that is unavailable at the start."""

    log: KafkaLog
    shards: ShardSet

    def __init__(
        self,
        settings: Settings,
        log: KafkaLog,
        clock: Callable[[], datetime],
        undo: contextlib.AsyncExitStack,
        names: Sequence[str],
        patient: bool,
    ) -> None:
        self.shards = ShardSet()
        super().__init__(settings, log, clock, undo)
        self.sender = KafkaSender(log.cluster)
        undo.push_async_exit(self.sender)
        self.patient = patient
        self.waiting = Waiting(settings.kafka.bootstrap_servers, clock)
        self.made: dict[tuple[str, int], StageRunner] = {}
        self._is_connected = False
        self._queue = FairQueue()
        self.members = [self._member(name) for name in names]
        self.roles = [member.role for member in self.members]

    def _member(self, name: str) -> Member:
        settings, cluster = self.settings, self.log.cluster
        role = Role(
            name,
            cluster,
            stages_of(name, stages(settings, known_private(self.shards))),
            self,
            self.log,
            self.sender,
            self._queue,
            settings.worker,
            model_stages(settings),
        )
        folder = settings.data_dir / "faust"
        make_private(settings.data_dir)
        folder.mkdir(exist_ok=True)
        return Member(role, cluster, folder)

    def opened(self) -> Mapping[int, Shard]:
        return self.shards.now()

    @property
    def wait(self) -> Wait | None:
        return self.waiting.now

    @property
    def runners(self) -> list[StageRunner]:
        return [*self.made.values()]

    # --- the parts of a role ------------------------------------------------------------------

    def open(self, partition: int) -> Shard:
        options = shard_options(self.settings, self.embedding)
        try:
            shard = open_shard(self.settings, partition, options)
        except FolderInUse as error:
            raise Busy(str(error)) from error
        shard.redacts_names_at_once = True  # the log keeps its records
        self.warnings += follow_language(shard, self.settings.search.language)
        if shard.has_erasures:
            # In files, before the partition's stages start. What fails stays pending.
            try:
                execute_on_kafka(self.log.append, partition, shard, self.replies)
            except (LogError, OSError, duckdb.Error) as error:
                logger.warning(
                    "erased texts are still in files of partition %d: %s", partition, error
                )
        self.warnings += note_embedding(shard, self.embedding.model)
        keep_index_settings(self.settings)
        with contextlib.suppress(LogError):  # shadow deciders start later without a broker
            self.deciding.opened(partition, shard)
        self.shards.add(partition, shard)
        return shard

    def close(self, partition: int, store: PartitionStore) -> None:
        assert isinstance(store, Shard)
        self.shards.remove(partition)
        store.close()

    def runner(self, task: PartitionTask, store: PartitionStore | None) -> StageRunner:
        place = (task.stage.name, task.partition)
        before = self.made.get(place)
        self.made[place] = stage_runner(
            self.settings,
            task,
            self.models,
            self.sender,
            store,
            self.clock,
            self.gate,
            self.log.cluster.partitions,
            None if before is None else before.counts,
        )
        return self.made[place]

    # --- running --------------------------------------------------------------------------------

    async def run(self, until_drained: bool) -> None:
        """As of any process; until everything is processed by all workers. Raises LogUnavailable
        if another process may succeed; the other roles are stopped."""
        async with PeriodicTask("waiting", WATCH_SECONDS, self._note_waiting).running(self.stop):
            if not await self._connected():
                return
            background = await self.background(True, [self.replies])
            tasks = [asyncio.create_task(member.run(self.stopped)) for member in self.members]
            if until_drained:
                tasks.append(asyncio.create_task(self._until_drained()))
            async with running(background, self.stop):
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                self.stop()
                results = await asyncio.gather(*tasks, return_exceptions=True)
            for failure in results:
                if isinstance(failure, BaseException):
                    raise failure

    async def _connected(self) -> bool:
        """Waits for the broker; returns False if stopped first."""
        while not self.stopped.is_set():
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
                await self.stopped.wait()

    def partition_tasks(self) -> Iterator[PartitionTask]:
        return (task for role in self.roles for task in role.tasks.values())

    async def _until_drained(self) -> None:
        while not self.stopped.is_set():
            # Until the partitions are open, it is unknown what is to be published.
            works = all(role.works() for role in self.roles)
            if works and await asyncio.to_thread(self._is_settled):
                self.finished = True
                if self.on_drained is not None:
                    await self.on_drained()
                return
            await self._unless_stopped(DRAINED_SECONDS)

    def _is_settled(self) -> bool:
        # Checks twice: background tasks may publish before they finish.
        return self.log.drained() and not self.busy() and self.log.drained()


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
    quieten()
    async with contextlib.AsyncExitStack() as undo:
        log = undo.enter_context(KafkaLog(settings.cluster))
        joined = KafkaApplication(settings, log, clock, undo, names, patient)
        joined.warnings += await embedding_warnings(joined.embedding)
        joined.warnings += graph_warnings(settings)
        if not patient:
            await asyncio.to_thread(log.check)
        if STATELESS in names:
            joined.gate.unusable = await joined.language.check()
        yield joined
