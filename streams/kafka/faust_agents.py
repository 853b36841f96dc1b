"""The stages as Faust agents. Only this module and the consumer's import Faust.

Faust forms the group, fetches, reports rebalances and commits what is acknowledged. One agent per
stage passes raw records to `streams.kafka.role`; it never raises and never waits for work. The
project's own runner does serialization, processing, retries and order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Generic, TypeVar

import faust
from aiokafka.errors import KafkaError
from faust.events import Event
from faust.types import TP

from palimpsest.streams.kafka.cluster import Awaited, Cluster, is_refusal
from palimpsest.streams.kafka.faust_client import application
from palimpsest.streams.kafka.role import Delivery, Role
from palimpsest.streams.logs.base import LogError, LogUnavailable, Record
from palimpsest.streams.stage import Stage

LEASE_SHARE: Final = 0.8
"""Share of the session time-out after which, without a confirmed heartbeat, nothing is
committed."""
STOP_SECONDS: Final = 15.0
COMMIT_SECONDS: Final = 5.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

logger = logging.getLogger("palimpsest.kafka")


def ended_for(reason: BaseException) -> LogError:
    """Faust itself ended: LogUnavailable if another client may succeed."""
    kind = LogError if is_refusal(reason) else LogUnavailable
    return kind(f"the Kafka client ended: {type(reason).__name__}: {reason}")


class Member:
    """This process as a member of one role's group. Created and used inside a running loop."""

    def __init__(self, role: Role, cluster: Cluster, folder: Path) -> None:
        self.role = role
        role.flow = self
        self._cluster = cluster
        self._app = application(cluster, role.name, folder)
        self._app.before_revocation = self.before_revocation
        self._beat = time.monotonic()
        self._watched: object = None
        self._closing: int | None = None
        self._app.on_partitions_assigned.connect(self._on_assigned, weak=False)
        self._app.on_partitions_revoked.connect(self._on_revoked, weak=False)
        for stage in role.stages:
            self._add_agent(stage)

    async def run(self, stop: asyncio.Event) -> None:
        """Takes part until `stop`, then leaves the group with everything finished and committed.

        Raises the failure of a stage, a store or Faust, LogUnavailable if it may pass; the member
        has then left the group, so that others take over at once, and nothing unfinished was
        acknowledged."""
        stopping = asyncio.create_task(_wait(stop))
        working = asyncio.create_task(self._work())
        try:
            await asyncio.wait(
                [stopping, self.role.failed, working], return_when=asyncio.FIRST_COMPLETED
            )
            is_asked = stop.is_set()
        finally:
            stopping.cancel()
            working.cancel()
            await self.before_revocation()
            await self._app.stop_within(STOP_SECONDS)
            await self.role.release()
        try:
            for ending in (self.role.failed, working):
                if ending.done() and not ending.cancelled():
                    ending.result()
        except LogUnavailable:
            if not is_asked:
                raise

    async def _work(self) -> None:
        """Runs until Faust ends."""
        crashed = asyncio.create_task(self._app._crashed.wait())
        looking = asyncio.create_task(self._look_after())
        try:
            await self._app.start()
            await asyncio.wait([crashed, looking], return_when=asyncio.FIRST_COMPLETED)
            if looking.done():
                looking.result()
        except KafkaError as error:
            raise ended_for(error) from error
        finally:
            crashed.cancel()
            looking.cancel()
        reason = self._app.crash_reason
        assert reason is not None
        raise ended_for(reason) from reason

    def waits_for(self) -> Awaited | None:
        """What it currently waits for and cannot continue without."""
        if not self._app.knows_broker():
            return "broker"
        return None if self.role.works() else "partitions"

    async def _look_after(self) -> None:
        """Fetches again what was not delivered, and commits what the group was not told of."""
        undelivered: StallDetector[TP] = StallDetector()
        uncommitted: StallDetector[tuple[str, int]] = StallDetector()
        consumer = self._app.consumer
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            idle = [*self.role.wanted()] if self._app.knows_broker() else []
            if not idle:
                continue
            log = self.role.log
            try:
                # Not the consumer's own: it knows no end of a partition that it does not fetch, and
                # takes a position for committed that a rebalance has discarded.
                marks = await asyncio.to_thread(log.watermarks, idle)
                committed = await asyncio.to_thread(log.committed, self.role.name)
            except LogError:
                continue
            passed = self.role.passed()
            behind = {place: committed.get(place, 0) for place in passed}
            for topic, partition in uncommitted.found(behind, passed):
                # As it is now: Faust may have committed further while another one was committed.
                offset = self.role.passed().get((topic, partition))
                if offset is not None:
                    tp = TP(self._cluster.physical(topic), partition)
                    logger.info("%s[%d] is committed through %d", *tp, offset)
                    await consumer.commit_through(tp, offset)
            # Tasks only want assigned partitions: they end before a revocation and begin after it,
            # and this code does not yield to the loop in between.
            wanted = {
                TP(self._cluster.physical(topic), partition): offset
                for (topic, partition), offset in self.role.wanted().items()
            }
            ends = {
                TP(self._cluster.physical(topic), partition): found.end
                for (topic, partition), found in marks.items()
            }
            for tp, offset in undelivered.found(wanted, ends).items():
                logger.info("%s[%d] did not come from offset %d on", *tp, offset)
                await consumer.seek(tp, offset)

    # --- rebalances --------------------------------------------------------------------------

    async def before_revocation(self) -> None:
        """Finishes the commits under way and commits what is acknowledged."""
        self._closing = self._app.consumer_generation_id
        # Nothing can be sent without a broker.
        await self.role.quiesce(None if self._app.knows_broker() else COMMIT_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COMMIT_SECONDS):
                await self._app.consumer.commit()

    async def _on_revoked(self, app: faust.App, revoked: set[TP], **_: object) -> None:
        await self.role.release()

    async def _on_assigned(self, app: faust.App, assigned: set[TP], **_: object) -> None:
        """Returns at once: heartbeats begin only after it."""
        self._watch_heartbeats()
        self._closing = None
        generation = int(app.consumer_generation_id)
        numbers = {
            topic: {tp.partition for tp in assigned if self._cluster.logical(tp.topic) == topic}
            for topic in self.role.topics
        }
        first = next(iter(numbers.values()), set())
        if any(found != first for found in numbers.values()):
            # Assigned by a broker that does not know all topics yet: the next join assigns others.
            self.role.fail(
                LogUnavailable(f"the group gave different partitions of its topics: {numbers}")
            )
            return
        logger.info("%s works on partitions %s", self.role.name, sorted(first))
        self.role.assign(first, lambda number: _GenerationLease(self, number, generation))

    def _watch_heartbeats(self) -> None:
        """Records when the broker last confirmed the membership, which aiokafka does not expose."""
        coordinator = self._coordinator()
        self._beat = time.monotonic()
        if coordinator is self._watched:
            return
        self._watched = coordinator
        original: Callable[[], Awaitable[bool]] = coordinator._do_heartbeat  # type: ignore[attr-defined]

        async def beat() -> bool:
            sent_at = time.monotonic()
            confirmed = await original()
            if confirmed:
                self._beat = sent_at
            return confirmed

        coordinator._do_heartbeat = beat  # type: ignore[attr-defined]

    def _coordinator(self) -> object:
        return self._app.consumer._thread._consumer._coordinator

    def lost(self, partition: int, generation: int) -> str | None:
        if self._app.consumer_generation_id != generation:
            return f"generation {generation} is over"
        member = getattr(self._coordinator(), "generation", generation)
        if member != generation:
            return "the group goes on without this worker"
        return None

    def sure(self) -> bool:
        return time.monotonic() - self._beat < LEASE_SHARE * self._cluster.settings.session_seconds

    # --- the flow of records: Faust's marks for full buffers; its own pausing drops fetched records

    def hold(self, topic: str, partition: int) -> None:
        self._app.consumer.on_buffer_full(TP(self._cluster.physical(topic), partition))

    def let_go(self, topic: str, partition: int) -> None:
        self._app.consumer.on_buffer_drop(TP(self._cluster.physical(topic), partition))

    # --- records -----------------------------------------------------------------------------

    def _add_agent(self, stage: Stage) -> None:
        names = [self._cluster.physical(topic.name) for topic in stage.reads]
        source = self._app.topic(
            *names,
            key_serializer="raw",
            value_serializer="raw",
            partitions=self._cluster.partitions,
        )

        async def agent(stream: faust.Stream[bytes]) -> None:
            try:
                # Not `noack_take`, which polls every few milliseconds.
                stream.enable_acks = False
                async for _ in stream:
                    self._deliver(stage.name, stream.current_event)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                self.role.fail(error)
                await asyncio.Event().wait()  # returning would make Faust start it again

        agent.__name__ = stage.name.replace("-", "_")
        name = f"{self._cluster.settings.group}.{stage.name}"
        self._app.agent(source, name=name, concurrency=1)(agent)

    def _deliver(self, stage: str, event: Event) -> None:
        message = event.message
        now = self._app.consumer_generation_id
        if message.generation_id != now or now == self._closing:
            return  # from an assignment that is over: the partition's next owner reads it again
        headers = {
            name.decode() if isinstance(name, bytes) else name: value
            for name, value in message.headers or ()
        }
        record = Record(
            self._cluster.logical(message.topic),
            message.partition,
            message.offset,
            message.key,
            message.value,
            _EPOCH + timedelta(milliseconds=round(message.timestamp * 1000)),
            headers,
        )
        delivery = Delivery(record, event.ack)
        self.role.put(stage, record.topic, record.partition, delivery)


class _GenerationLease:
    """One partition in one generation of the group."""

    def __init__(self, member: Member, partition: int, generation: int) -> None:
        self._member = member
        self._partition = partition
        self._generation = generation

    def lost(self) -> str | None:
        return self._member.lost(self._partition, self._generation)

    def sure(self) -> bool:
        return self._member.sure()


def quieten(level: int = logging.CRITICAL) -> None:
    """Silences Faust and aiokafka, which log every attempt during an outage and every rebalance;
    the status reports both."""
    names: Sequence[str] = (
        "faust",
        "mode",
        "aiokafka",
        "aiokafka.consumer",
        "aiokafka.producer",
        "aiokafka.cluster",
        "kafka",
    )
    for name in names:
        logging.getLogger(name).setLevel(level)


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


# Records that are in the log but are never delivered. Around a rebalance Faust may drop records
# that it has fetched and continue after them. A task that receives a later record notices, and
# reads the missing ones; without a later record it would wait until the next rebalance. So the
# log's end is checked periodically.
#
# Nothing is acknowledged of records that a task has read from the log itself and that are then not
# delivered, and a rebalance may discard what was acknowledged. The group would seem to be behind
# until a later record comes, so its positions are compared with those of the tasks, too.

LOOK_SECONDS: Final = 5.0
"""The interval of the checks: a record missing in two consecutive checks is not in flight."""

Place = TypeVar("Place", bound=tuple[str, int])


class StallDetector(Generic[Place]):
    """What was missing at the last check, by topic and partition."""

    def __init__(self) -> None:
        self._stood: Mapping[Place, int] = {}

    def found(self, wanted: Mapping[Place, int], ends: Mapping[Place, int]) -> dict[Place, int]:
        """Returns where to fetch again from, by place. `wanted` are the offsets that idle tasks
        wait for, `ends` those after the last records of the log."""
        stands = {place: at for place, at in wanted.items() if at < ends.get(place, 0)}
        again = {place: at for place, at in stands.items() if self._stood.get(place) == at}
        self._stood = stands
        return again
