"""The stages of one role on the partitions that the group assigns to this worker.

A partition's store is opened when it is assigned and closed when it is revoked; in between one task
per stage works on it. The store is checked against the log before anything is processed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.kafka.cluster import STORE, Cluster, role_of
from palimpsest.streams.kafka.log import Identity, KafkaLog, Watermarks
from palimpsest.streams.kafka.sender import KafkaSender
from palimpsest.streams.logs.base import (
    UNAVAILABLE_SECONDS,
    LogError,
    LogReader,
    LogUnavailable,
    Record,
)
from palimpsest.streams.runtime.failures import first_failure
from palimpsest.streams.runtime.pace import STORE_SHARE, FairQueue, Gathering, Pace, pace_of
from palimpsest.streams.runtime.partition_task import (
    Barrier,
    Interrupted,
    Lease,
    PartitionTask,
    end_all,
    in_time_order,
)
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.settings import WorkerSettings
from palimpsest.streams.stage import Stage
from palimpsest.streams.store_port import StorePort

logger = logging.getLogger(__name__)

BUSY_SECONDS = 0.2
LOG_STATE = "kafka_log"
"""What a store records about its log: the ids of cluster and topics."""


class Busy(Exception):
    """Another process still holds the partition's folder; try again."""


class PartitionStore(StorePort, Protocol):
    """A partition's stores, and what they record about their log."""

    def state(self, name: str) -> str | None: ...

    def set_state(self, name: str, value: str) -> None: ...


class Parts(Protocol):
    """The parts that a role works with, assembled elsewhere."""

    def open(self, partition: int) -> PartitionStore:
        """Opens the partition's stores, for the role that has them. Called in a thread. Raises
        Busy."""
        ...

    def close(self, partition: int, store: PartitionStore) -> None:
        """Called in a thread."""
        ...

    def runner(self, task: PartitionTask, store: PartitionStore | None) -> StageRunner:
        """Returns the task's runner, with the task's hooks."""
        ...


@dataclass(slots=True)
class _Facts:
    """What the cluster reports at an assignment."""

    identity: Identity
    committed: Mapping[tuple[str, int], int]
    watermarks: Mapping[tuple[str, int], Watermarks]


@dataclass
class Role:
    """`states` holds the state of every assigned partition: `opening`, `working`, or what it waits
    for. `failed` has the exception that must end the worker. `flow` is set by the group's member,
    before anything is assigned."""

    name: str
    cluster: Cluster
    stages: Sequence[Stage]
    parts: Parts
    log: KafkaLog
    sender: KafkaSender
    queue: FairQueue
    limits: WorkerSettings = field(default_factory=WorkerSettings)
    model_stages: Mapping[str, int] = field(default_factory=dict)
    flow: Flow = field(init=False)

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
        """Ends the worker with this error; the first one counts."""
        if not self.failed.done():
            self.failed.set_exception(first_failure(error))

    def works(self) -> bool:
        """Returns whether the group has assigned this worker its partitions, if any, and all are
        open."""
        return self._joined and all(state == "working" for state in self.states.values())

    # --- assignment --------------------------------------------------------------------------

    def assign(self, partitions: Iterable[int], lease_of: Callable[[int], Lease]) -> None:
        """Begins to work on these partitions. Returns at once: tasks open the stores."""
        numbers = sorted(partitions)
        self._joined = True
        self.states = dict.fromkeys(numbers, "opening")
        facts = asyncio.create_task(asyncio.to_thread(self._ask, numbers))
        for number in numbers:
            barrier = self._barrier(number)
            for stage in self.stages:
                pace = pace_of(stage, self.limits, self.model_stages.get(stage.name))
                topics = [topic.name for topic in stage.reads]
                gathering = Gathering(self.queue, stage.name, STORE_SHARE / len(numbers))
                source = DeliverySource(
                    self.log, number, topics, pace, lease_of(number), self.flow, gathering
                )
                self._sources[stage.name, number] = source
                self.tasks[stage.name, number] = PartitionTask(
                    stage, number, pace, source, self.fail, barrier
                )
            opening = asyncio.create_task(self._open(number, barrier, facts))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)

    def _barrier(self, partition: int) -> Barrier:
        return Barrier(lambda: self.sender.sent_through(MEMORY_WRITES.name, partition))

    def put(self, stage: str, topic: str, partition: int, delivery: Delivery) -> None:
        """Passes a record on; drops one of a partition that is no longer assigned."""
        source = self._sources.get((stage, partition))
        if source is not None:
            source.put(topic, delivery)

    def wanted(self) -> dict[tuple[str, int], int]:
        """Returns the least offset that idle tasks wait for, by topic and partition."""
        least: dict[tuple[str, int], int] = {}
        for place, at in self._awaited():
            if at is not None:
                least[place] = min(at, least.get(place, at))
        return least

    def passed(self) -> dict[tuple[str, int], int]:
        """Returns the offsets that all stages have passed, by topic and partition, of those that
        every stage reading them waits for more of."""
        behind = {place for place, at in self._awaited() if at is None}
        return {place: at for place, at in self.wanted().items() if place not in behind}

    def _awaited(self) -> Iterator[tuple[tuple[str, int], int | None]]:
        """The offset that each task waits for, by topic and partition; None if it is not idle."""
        for (stage, partition), task in self.tasks.items():
            wanted = self._sources[stage, partition].wanted() if task.idle else {}
            for topic in task.stage.reads:
                yield (topic.name, partition), wanted.get(topic.name)

    async def quiesce(self, limit_seconds: float | None = None) -> None:
        """Begins nothing new, and waits for the commits under way. What could not be sent within
        the limit (the configured one by default) is left to the next owner: it is in the store's
        outbox, or was not acknowledged."""
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
        """Closes the stores after `quiesce`; the next owner may open them at once."""
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

    async def _open(self, partition: int, barrier: Barrier, facts: asyncio.Task[_Facts]) -> None:
        try:
            store = await self._opened_store(partition)
            while True:
                try:
                    self._begin(partition, store, barrier, await asyncio.shield(facts))
                except LogUnavailable as error:
                    # The broker is unreachable or just back: other workers would have the same
                    # problem.
                    logger.warning("%s[%d] waits: %s", self.name, partition, error)
                    self.states[partition] = f"waiting: {error}"
                    await asyncio.sleep(UNAVAILABLE_SECONDS)
                    facts = asyncio.create_task(asyncio.to_thread(self._ask, [partition]))
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
        """Starts the partition's tasks: all of them, or none if the log cannot be used."""
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
        """Returns the store; waits while another process holds it, most likely the previous
        owner. None for a role without stores."""
        while self.name == STORE:
            opening = asyncio.create_task(asyncio.to_thread(self.parts.open, partition))
            try:
                store = await asyncio.shield(opening)
            except Busy as busy:
                self.states[partition] = f"waiting: {busy}"
                await asyncio.sleep(BUSY_SECONDS)
                continue
            except asyncio.CancelledError:
                # The thread continues; the store that it opens must not stay open.
                opening.add_done_callback(lambda done: self._discard(partition, done))
                raise
            self.stores[partition] = store
            return store
        return None

    def _discard(self, partition: int, opening: asyncio.Task[PartitionStore]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self.parts.close(partition, opening.result())

    def _beginning(
        self, partition: int, runner: StageRunner, facts: _Facts
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Returns the stage's position in each of its topics, and where the deliveries begin."""
        topics = [topic.name for topic in runner.stage.reads]
        committed = {
            topic: facts.committed[topic, partition]
            for topic in topics
            if (topic, partition) in facts.committed
        }
        store = runner.state_store
        next_offsets: dict[str, int] = {}
        for topic in topics:
            if store is not None:
                next_offsets[topic] = store.cursor_of(runner.stage.name, topic)
                continue
            marks, at = facts.watermarks[topic, partition], committed.get(topic)
            if at is not None and at < marks.beginning:
                raise LogError(
                    f"the stages that hold no store are at offset {at} of {topic}[{partition}], but"
                    f" the log begins at {marks.beginning}: what lies between was removed before it"
                    " was processed. `palimpsest topics describe` looks for a retention that"
                    " removes records; to go on without them, set the group's offset with Kafka's"
                    " own tools."
                )
            if at is not None and at > marks.end:
                raise LogError(
                    f"the stages that hold no store have read {topic}[{partition}] up to offset"
                    f" {at}, but the log ends at {marks.end}: the topic was recreated. Delete the"
                    " consumer group, or restore the log."
                )
            # Counted from the first record: the first to arrive need not be it.
            next_offsets[topic] = marks.beginning if at is None else at
        return next_offsets, committed

    # --- do store and log belong together? ---------------------------------------------------

    def _check_store(self, partition: int, store: PartitionStore, facts: _Facts) -> None:
        """Raises LogError with a remedy for a store that was not made from this log, or that lacks
        records which the log no longer holds."""
        cursors = {
            (stage.name, topic.name): store.cursor_of(stage.name, topic.name)
            for stage in self.stages
            if stage.stateful
            for topic in stage.reads
        }
        state = state_of(facts.identity, self.topics)
        recorded = store.state(LOG_STATE)
        if recorded is None and not any(cursors.values()):
            store.set_state(LOG_STATE, state)
            recorded = state
        before: dict[str, str] = {} if recorded is None else json.loads(recorded)
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
            marks = facts.watermarks[topic, partition]
            if cursor > marks.end:
                raise LogError(
                    f"the store has processed {topic}[{partition}] up to offset {cursor}, but the"
                    f" log ends at {marks.end}: records are gone that the store holds. Restore the"
                    " log, or move the partition's folder away to build it again from what is left."
                )
            if cursor < marks.beginning:
                raise LogError(
                    f"{stage} is at offset {cursor} of {topic}[{partition}], but the log begins at"
                    f" {marks.beginning}: what lies between was removed before it was processed."
                    " Restore a copy of the store that is further on, or the log; and let"
                    " `palimpsest topics describe` look for a retention that removes records."
                )


def state_of(identity: Identity, topics: Iterable[str]) -> str:
    """Returns what a store records about the log for these topics."""
    here = {"cluster": identity.cluster_id}
    here |= {f"topic {topic}": identity.topic_ids.get(topic, "") for topic in sorted(topics)}
    return json.dumps(here)


def stages_of(role: str, all_stages: Iterable[Stage]) -> tuple[Stage, ...]:
    return tuple(stage for stage in all_stages if role_of(stage.name) == role)


# --- a broker's deliveries as a source ------------------------------------------------------------


FULL_BATCHES = 4
"""A topic is not fetched further while this many batches of it wait; fetching resumes at half."""


class Flow(Protocol):
    """The stream of records of one role."""

    def hold(self, topic: str, partition: int) -> None:
        """Stops fetching the partition for now; records already fetched are still delivered."""
        ...

    def let_go(self, topic: str, partition: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record and its acknowledgement."""

    record: Record
    acknowledge: Callable[[], None]


class DeliverySource:
    """A Source of the deliveries to one stage on one partition in one generation of the group:
    queued, gathered, and completed from the log. Records may be `put` before it is opened; they
    wait.

    It does not know Faust. It counts offsets itself and reads undelivered records from the log:
    those that the group has acknowledged but this store has not seen, and those missing before a
    delivered one."""

    def __init__(
        self,
        log: LogReader,
        partition: int,
        topics: Sequence[str],
        pace: Pace,
        lease: Lease,
        flow: Flow,
        gathering: Gathering,
    ) -> None:
        self.log = log
        self.lease = lease
        self.next_offsets = dict.fromkeys(topics, 0)
        self._partition = partition
        self._pace = pace
        self._flow = flow
        self._gathering = gathering
        self._queues: dict[str, deque[Delivery]] = {topic: deque() for topic in topics}
        self._begin: Mapping[str, int] = {}
        self._held: set[str] = set()
        self._taken: list[Delivery] = []
        self._wake = asyncio.Event()
        self._closed = False

    # --- what comes --------------------------------------------------------------------------

    def open(self, next_offsets: Mapping[str, int], committed: Mapping[str, int]) -> None:
        """`next_offsets` is the stage's position in each of its topics, `committed` where the
        deliveries begin."""
        self.next_offsets = dict(next_offsets)
        self._begin = committed

    def put(self, topic: str, delivery: Delivery) -> None:
        """Queues a record, without waiting; those of a partition arrive in offset order."""
        if self._closed:
            return
        queue = self._queues[topic]
        queue.append(delivery)
        self._wake.set()
        if len(queue) >= FULL_BATCHES * self._pace.most:
            self._held.add(topic)
            self._flow.hold(topic, self._partition)

    def wanted(self) -> Mapping[str, int]:
        """The offset that it waits for in each topic; empty while records are queued."""
        return {} if self._closed or any(self._queues.values()) else self.next_offsets

    # --- what is given -----------------------------------------------------------------------

    async def take(self) -> Sequence[Record]:
        for topic, queue in self._queues.items():
            done = []  # by this stage, before
            while queue and queue[0].record.offset < self.next_offsets[topic]:
                done.append(queue.popleft())
            self._tell(done)
            self._fetch_on(topic)
            missing = await self._missing(topic)
            if missing:
                return missing
        if not any(self._queues.values()):
            return []
        full = any(len(queue) >= self._pace.size for queue in self._queues.values())
        await self._gathering.wait(self._pace, full)
        return in_time_order([self._popped(topic) for topic in self._queues])

    async def wait(self) -> None:
        if self._closed or any(self._queues.values()):
            return
        self._wake.clear()
        await self._wake.wait()

    def acknowledge(self, records: Sequence[Record]) -> None:
        self.next_offsets.update((record.topic, record.offset + 1) for record in records)
        done, self._taken = self._taken, []
        self._tell(done)

    def left(self) -> int:
        behind = (self._begin.get(topic, 0) - at for topic, at in self.next_offsets.items())
        fetched = sum(map(len, self._queues.values()))
        return len(self._taken) + fetched + sum(max(0, count) for count in behind)

    def close(self) -> None:
        self._closed = True
        for topic in self._held:
            self._flow.let_go(topic, self._partition)
        self._held.clear()
        for queue in self._queues.values():
            queue.clear()
        self._wake.set()

    # --- one topic ---------------------------------------------------------------------------

    def _tell(self, done: Sequence[Delivery]) -> None:
        why = self.lease.lost()
        if why is not None:
            raise Interrupted(why)
        for delivery in done:
            delivery.acknowledge()

    async def _missing(self, topic: str) -> Sequence[Record]:
        """Returns the next undelivered records, read from the log."""
        queue = self._queues[topic]
        end = max(self._begin.get(topic, 0), queue[0].record.offset if queue else 0)
        while (start := self.next_offsets[topic]) < end and not self._closed:
            count = min(self._pace.size, end - start)
            try:
                found = await asyncio.to_thread(self.log.read, topic, self._partition, start, count)
            except LogUnavailable:
                await asyncio.sleep(UNAVAILABLE_SECONDS)
                continue
            records = self._pace.taken([record for record in found if record.offset < end])
            if records:
                return records
            self.next_offsets[topic] = end  # removed from the log, by compaction or a purge
        return ()

    def _popped(self, topic: str) -> Sequence[Record]:
        """Removes and returns the start of the queue up to the first gap."""
        queue, expected = self._queues[topic], self.next_offsets[topic]
        ready: list[Record] = []
        for delivery in queue:
            if delivery.record.offset != expected + len(ready) or len(ready) == self._pace.size:
                break
            ready.append(delivery.record)
        batch = self._pace.taken(ready)
        self._taken += [queue.popleft() for _ in batch]
        self._fetch_on(topic)
        return batch

    def _fetch_on(self, topic: str) -> None:
        if topic in self._held and len(self._queues[topic]) <= FULL_BATCHES * self._pace.most // 2:
            self._held.discard(topic)
            self._flow.let_go(topic, self._partition)
