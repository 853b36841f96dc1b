"""The stages of one role on the partitions that the group gives this worker.

A partition's store is opened when it is assigned and closed when it is revoked; in between a
partition task a stage works on it. Before anything is processed the store and the log are held
against each other.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.kafka.cluster import Cluster, role_of
from palimpsest.streams.kafka.delivery_source import Delivery, DeliverySource, Flow
from palimpsest.streams.kafka.log import Identity, KafkaLog, Watermarks
from palimpsest.streams.kafka.sender import KafkaSender
from palimpsest.streams.logs.base import UNAVAILABLE_SECONDS, LogError, LogUnavailable
from palimpsest.streams.runtime.failures import first_failure
from palimpsest.streams.runtime.fair_queue import STORE_SHARE, FairQueue, Gathering
from palimpsest.streams.runtime.pace import pace_of
from palimpsest.streams.runtime.partition_task import Barrier, PartitionTask, end_all
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.runtime.source import Lease
from palimpsest.streams.settings import WorkerSettings
from palimpsest.streams.stage import Stage
from palimpsest.streams.store_port import StorePort

logger = logging.getLogger(__name__)

BUSY_SECONDS = 0.2
LOG_STATE = "kafka_log"
"""What a store remembers of the log that it is made from: the ids of cluster and topics."""


class Busy(Exception):
    """The partition's folder is still another process's; try again."""


class PartitionStore(StorePort, Protocol):
    """A partition's stores, and what they remember of the log that they are made from."""

    def state(self, name: str) -> str | None: ...

    def set_state(self, name: str, value: str) -> None: ...


class Parts(Protocol):
    """What a role works with, joined elsewhere."""

    def open(self, partition: int) -> PartitionStore | None:
        """The partition's stores; None for a role without. Called in a thread. Raises Busy."""
        ...

    def close(self, partition: int, store: PartitionStore) -> None:
        """Called in a thread."""
        ...

    def runner(self, task: PartitionTask, store: PartitionStore | None) -> StageRunner:
        """The task's runner, with the task's edges."""
        ...


@dataclass(slots=True)
class _Facts:
    """What the cluster says at an assignment."""

    identity: Identity
    committed: Mapping[tuple[str, int], int]
    watermarks: Mapping[tuple[str, int], Watermarks]


@dataclass
class Role:
    """`states` tells what every assigned partition is doing: `opening`, `working`, or what it
    waits for. `failed` has the exception that the worker must end for."""

    name: str
    cluster: Cluster
    stages: Sequence[Stage]
    parts: Parts
    log: KafkaLog
    sender: KafkaSender
    flow: Flow
    queue: FairQueue
    limits: WorkerSettings = field(default_factory=WorkerSettings)
    model_stages: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.states: dict[int, str] = {}
        self._joined = False
        self.tasks: dict[tuple[str, int], PartitionTask] = {}
        self._sources: dict[tuple[str, int], DeliverySource] = {}
        self.stores: dict[int, PartitionStore] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Lock()
        self.topics = sorted({topic.name for stage in self.stages for topic in stage.reads})

    def fail(self, error: BaseException) -> None:
        """End the worker for this; the first one counts."""
        if not self.failed.done():
            self.failed.set_exception(first_failure(error))

    def works(self) -> bool:
        """Whether the group has given this worker its partitions, if any, and all are open."""
        return self._joined and all(state == "working" for state in self.states.values())

    # --- assignment --------------------------------------------------------------------------

    def assign(self, partitions: Iterable[int], lease_of: Callable[[int], Lease]) -> None:
        """Begin to work on these partitions. Returns at once: stores are opened in tasks."""
        numbers = sorted(partitions)
        self._joined = True
        self.states = dict.fromkeys(numbers, "opening")
        facts = asyncio.create_task(asyncio.to_thread(self._ask, numbers))
        for number in numbers:
            barrier = self._barrier(number)
            for stage in self.stages:
                self._add_task(stage, number, lease_of(number), barrier, STORE_SHARE / len(numbers))
            opening = asyncio.create_task(self._open(number, barrier, facts))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)

    def _barrier(self, partition: int) -> Barrier:
        return Barrier(lambda: self.sender.sent_through(MEMORY_WRITES.name, partition))

    def _add_task(
        self, stage: Stage, partition: int, lease: Lease, barrier: Barrier, share: float
    ) -> None:
        pace = pace_of(stage, self.limits, self.model_stages.get(stage.name))
        topics = [topic.name for topic in stage.reads]
        gathering = Gathering(self.queue, stage.name, share)
        source = DeliverySource(self.log, partition, topics, pace, lease, self.flow, gathering)
        self._sources[stage.name, partition] = source
        self.tasks[stage.name, partition] = PartitionTask(
            stage, partition, pace, source, self.fail, barrier
        )

    def put(self, stage: str, topic: str, partition: int, delivery: Delivery) -> None:
        """Hand a record over; one of a partition that is not ours any more is dropped."""
        source = self._sources.get((stage, partition))
        if source is not None:
            source.put(topic, delivery)

    def wanted(self) -> dict[tuple[str, int], int]:
        """The least offset that idle tasks wait for, by topic and partition."""
        least: dict[tuple[str, int], int] = {}
        for (stage, partition), task in self.tasks.items():
            if not task.idle:
                continue
            for topic, at in self._sources[stage, partition].wanted().items():
                place = topic, partition
                least[place] = min(at, least.get(place, at))
        return least

    async def quiesce(self, limit_seconds: float | None = None) -> None:
        """Begin nothing new, and let what is being committed end. What could not be sent by then
        (as set, when not given) is left to the next owner: it is in the store's outbox, or was not
        acknowledged."""
        async with self._ending:
            tasks = [*self.tasks.values()]
            self.tasks.clear()
            self._sources.clear()
            limits = self.cluster.settings
            try:
                await end_all(tasks, limits.grace_seconds, limit_seconds or limits.quiesce_seconds)
            except LogUnavailable as error:
                logger.warning("%s: %s", self.name, error)
            except Exception as error:
                self.fail(error)

    async def release(self) -> None:
        """After `quiesce`: close the stores; the next owner may open them at once."""
        async with self._ending:  # a rebalance may begin while another one is being prepared for
            for task in [*self._opening]:
                task.cancel()
            if self._opening:
                await asyncio.wait([*self._opening])
            for partition in [*self.stores]:
                store = self.stores.pop(partition)
                await asyncio.to_thread(self.parts.close, partition, store)
            self.states = {}
            self._joined = False

    # --- opening -----------------------------------------------------------------------------

    def _ask(self, partitions: Sequence[int]) -> _Facts:
        places = [(topic, number) for topic in self.topics for number in partitions]
        return _Facts(
            self.log.identity(), self.log.committed(self.name), self.log.watermarks(places)
        )

    async def _open(self, partition: int, barrier: Barrier, asked: asyncio.Task[_Facts]) -> None:
        try:
            store = await self._opened_store(partition)
            while True:
                try:
                    self._begin(partition, store, barrier, await asyncio.shield(asked))
                except LogUnavailable as error:
                    # The broker is away or just back: others would fare no better with it.
                    logger.warning("%s[%d] waits: %s", self.name, partition, error)
                    self.states[partition] = f"waiting: {error}"
                    await asyncio.sleep(UNAVAILABLE_SECONDS)
                    asked = asyncio.create_task(asyncio.to_thread(self._ask, [partition]))
                else:
                    self.states[partition] = "working"
                    return
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.fail(error)

    def _begin(
        self, partition: int, store: PartitionStore | None, barrier: Barrier, facts: _Facts
    ) -> None:
        """Start the partition's tasks: all, or none where the log cannot be used."""
        if store is not None:
            self._check_store(partition, store, facts)
        marks = facts.watermarks.get((MEMORY_WRITES.name, partition))
        barrier.proposed_before = 0 if marks is None else marks.end
        tasks = [task for task in self.tasks.values() if task.partition == partition]
        runners = [self.parts.runner(task, store) for task in tasks]
        for runner in runners:
            source = self._sources[runner.stage.name, partition]
            source.open(*self._beginning(partition, runner, facts))
        for task, runner in zip(tasks, runners, strict=True):
            task.start(runner)

    async def _opened_store(self, partition: int) -> PartitionStore | None:
        """The store; waits for as long as another process keeps it, the one before most likely."""
        while True:
            opening = asyncio.create_task(asyncio.to_thread(self.parts.open, partition))
            try:
                store = await asyncio.shield(opening)
            except Busy as busy:
                self.states[partition] = f"waiting: {busy}"
                await asyncio.sleep(BUSY_SECONDS)
                continue
            except asyncio.CancelledError:
                # The thread goes on; what it opens must not stay open.
                opening.add_done_callback(lambda done: self._discard(partition, done))
                raise
            if store is not None:
                self.stores[partition] = store
            return store

    def _discard(self, partition: int, opening: asyncio.Task[PartitionStore | None]) -> None:
        if opening.cancelled() or opening.exception() is not None:
            return
        store = opening.result()
        if store is not None:
            self.parts.close(partition, store)

    def _beginning(
        self, partition: int, runner: StageRunner, facts: _Facts
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Where the stage is in each of its topics, and where what is delivered begins."""
        topics = [topic.name for topic in runner.stage.reads]
        committed = {
            topic: facts.committed[topic, partition]
            for topic in topics
            if (topic, partition) in facts.committed
        }
        next_offsets: dict[str, int] = {}
        for topic in topics:
            if runner.store is not None:
                next_offsets[topic] = runner.store.cursor_of(runner.stage.name, topic)
            else:
                _check_beginning(topic, partition, committed.get(topic), facts)
                # From the first record on: the first to arrive need not be it.
                beginning = facts.watermarks[topic, partition].beginning
                next_offsets[topic] = committed.get(topic, beginning)
        return next_offsets, committed

    # --- do store and log belong together? ---------------------------------------------------

    def _check_store(self, partition: int, store: PartitionStore, facts: _Facts) -> None:
        """Raises LogError, saying what to do, for a store that was not made from this log, or
        that misses records which the log no longer holds."""
        cursors = {
            (stage.name, topic.name): store.cursor_of(stage.name, topic.name)
            for stage in self.stages
            for topic in stage.reads
        }
        state = state_of(facts.identity, self.topics)
        said = store.state(LOG_STATE)
        if said is None and not any(cursors.values()):
            store.set_state(LOG_STATE, state)
            said = state
        before: dict[str, str] = {} if said is None else json.loads(said)
        here: dict[str, str] = json.loads(state)
        for what, value in here.items():
            if before.get(what) == value:
                continue
            raise LogError(
                f"the store of partition {partition} was made from another log: its {what} was"
                f" {before.get(what, 'not on Kafka')}, here it is {value}. Give each log its own"
                " data folder; or move the folder of this partition away, and it is built again"
                " from this log."
            )
        for (stage, topic), cursor in cursors.items():
            self._check_cursor(partition, stage, topic, cursor, facts)

    def _check_cursor(
        self, partition: int, stage: str, topic: str, cursor: int, facts: _Facts
    ) -> None:
        marks = facts.watermarks[topic, partition]
        if cursor > marks.end:
            raise LogError(
                f"the store has processed {topic}[{partition}] up to offset {cursor}, but the log"
                f" ends at {marks.end}: records are gone that the store holds. Restore the log,"
                " or move the partition's folder away to build it again from what is left."
            )
        if cursor < marks.beginning:
            raise LogError(
                f"{stage} is at offset {cursor} of {topic}[{partition}], but the log begins at"
                f" {marks.beginning}: what lies between was removed before it was processed."
                " Restore a copy of the store that is further on, or the log; and let"
                " `palimpsest topics describe` look for a retention that removes records."
            )


def state_of(identity: Identity, topics: Iterable[str]) -> str:
    """What a store remembers of the log that these topics of it are folded from."""
    here = {"cluster": identity.cluster_id}
    here |= {f"topic {topic}": identity.topic_ids.get(topic, "") for topic in sorted(topics)}
    return json.dumps(here)


def _check_beginning(topic: str, partition: int, committed: int | None, facts: _Facts) -> None:
    marks = facts.watermarks[topic, partition]
    if committed is not None and committed < marks.beginning:
        raise LogError(
            f"the stages that hold no store are at offset {committed} of {topic}[{partition}], but"
            f" the log begins at {marks.beginning}: what lies between was removed before it was"
            " processed. `palimpsest topics describe` looks for a retention that removes records;"
            " to go on without them, set the group's offset with Kafka's own tools."
        )
    if committed is not None and committed > marks.end:
        raise LogError(
            f"the stages that hold no store have read {topic}[{partition}] up to offset"
            f" {committed}, but the log ends at {marks.end}: the topic was recreated. Delete the"
            " consumer group, or restore the log."
        )


def stages_of(role: str, all_stages: Iterable[Stage]) -> tuple[Stage, ...]:
    return tuple(stage for stage in all_stages if role_of(stage.name) == role)
