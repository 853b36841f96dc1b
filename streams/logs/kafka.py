"""The stages as Faust agents: the only module that imports Faust.

Faust forms the group, fetches, tells of rebalances and commits what is acknowledged. One agent a
stage hands raw records to the lanes of `streams.logs.kafka_role`; nothing escapes from it and it
never waits for work. Serialization, processing, retries and order are the project's own runner's.

Where Faust's own behaviour would lose or doubt something, a subclass of its consumer says
otherwise; what that relies on is private to Faust 0.15.3, and a test holds it to that version.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import faust
from faust.events import Event
from faust.transport.drivers.aiokafka import Consumer as FaustConsumer
from faust.transport.drivers.aiokafka import Transport as FaustTransport
from faust.types import TP
from mode.services import WaitResults

from streams.logs.base import LogError, Record
from streams.logs.kafka_base import MAX_REQUEST_BYTES, Cluster
from streams.logs.kafka_gaps import LOOK_SECONDS, Gaps
from streams.logs.kafka_lane import Arrival
from streams.logs.kafka_role import Role
from streams.stage import Stage

FAUST_VERSION: Final = "0.15.3"
"""The version whose private parts are relied on below."""
LEASE: Final = 0.8
"""Part of a session without a confirmed heartbeat after which nothing is committed."""
STOP_SECONDS: Final = 30.0
COMMIT_SECONDS: Final = 5.0
COMMIT_INTERVAL_SECONDS: Final = 0.5
NEVER_SECONDS: Final = 86_400.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

logger = logging.getLogger("palimpsest.kafka")


class Crashed(LogError):
    """Faust itself ended."""


class _Consumer(FaustConsumer):  # type: ignore[misc]
    """Faust's consumer, with the role's turn before a revocation: Faust forgets what is
    acknowledged and not committed first of all, and then waits without limit until every record
    that it handed out is acknowledged, which a record that waits for a model never is."""

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        await self.app.member.before_revocation()
        await super().on_partitions_revoked(revoked)

    async def wait_empty(self) -> None:
        # The role has finished or given up all that was handed out.
        self._unacked_messages.clear()
        await self.commit_and_end_transactions()

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Faust seeks here after it has dropped what came while its flow stood. A partition of
        which nothing is committed yet is left where it is, and what was dropped of it would not
        come again before a restart: it begins anew, too."""
        committed: Mapping[TP, int] = await super().seek_to_committed()
        uncommitted = [tp for tp, offset in committed.items() if not offset or offset < 0]
        if uncommitted:
            await self._thread.seek_to_beginning(*uncommitted)
        return committed

    async def _commit_offsets(
        self, offsets: Mapping[TP, int], start_new_transaction: bool = True
    ) -> bool:
        """Faust takes offsets for committed also when the group has refused them, because it had
        rebalanced meanwhile. It would ignore the acknowledgements of these records, which come
        again, and the group would stand before them for ever."""
        did_commit: bool = await super()._commit_offsets(offsets, start_new_transaction)
        if not did_commit:
            for tp, offset in offsets.items():
                if self._committed_offset[tp] == offset:
                    self._committed_offset[tp] = None
        return did_commit

    async def wait_first(self, *awaited: object, timeout: float | None = None) -> WaitResults:  # noqa: ASYNC109
        """Faust makes four tasks to hand over one message, which is nearly always taken without
        waiting: hand it over directly, and go Faust's way when it has to wait."""
        first = awaited[0]
        usual: Callable[..., Awaitable[WaitResults]] = super().wait_first
        if not asyncio.iscoroutine(first) or getattr(first, "__name__", "") != "on_message":
            return await usual(*awaited, timeout=timeout)
        if len(awaited) != 2 or not self.flow_active:
            return await usual(*awaited, timeout=timeout)
        try:
            waiting = first.send(None)
        except StopIteration as done:
            assert asyncio.iscoroutine(awaited[1])
            awaited[1].close()
            return WaitResults([first], [done.value], False)
        return await usual(_rest(first, waiting), *awaited[1:], timeout=timeout)

    async def _wait_next_records(self, timeout: float) -> object:  # noqa: ASYNC109
        # A fetch waits as long as it was told to for the partitions that were active when it
        # began; one that is let go meanwhile waits with it.
        if self.flow_active and not self._get_active_partitions():
            await self.sleep(0.02)
            return {}, set()
        return await super()._wait_next_records(min(timeout, 0.05))


class _Rest:
    """The rest of a coroutine that has been run up to its first wait."""

    def __init__(self, begun: Coroutine[object, object, object], waiting: object) -> None:
        self._begun = begun
        self._waiting = waiting

    def __await__(self) -> Generator[object, object, object]:
        waiting = self._waiting
        while True:
            try:
                sent = yield waiting
            except BaseException as error:
                step, value = self._begun.throw, error
            else:
                step, value = self._begun.send, sent  # type: ignore[assignment]
            try:
                waiting = step(value)
            except StopIteration as done:
                return done.value


async def _rest(begun: Coroutine[object, object, object], waiting: object) -> object:
    return await _Rest(begun, waiting)


class _Transport(FaustTransport):  # type: ignore[misc]
    Consumer = _Consumer


class _App(faust.App):  # type: ignore[misc]
    member: Member


class Member:
    """This process as a member of one role's group. Made and used inside a running loop."""

    def __init__(self, role: Role, options: Cluster, folder: Path) -> None:
        self.role = role
        self._options = options
        self._app = _application(role, options, folder)
        self._app.member = self
        self._app.transport = _Transport(self._app.conf.broker_consumer, self._app)
        self._beat = time.monotonic()
        self._watched: object = None
        self._closing: int | None = None
        self._app.on_partitions_assigned.connect(self._on_assigned, weak=False)
        self._app.on_partitions_revoked.connect(self._on_revoked, weak=False)
        for stage in role.stages:
            self._add_agent(stage)

    async def run(self, stop: asyncio.Event) -> None:
        """Take part until `stop`, then leave the group with everything finished and committed.

        Raises what a stage, a store or Faust ended for; the member has then left the group, so
        that others take over at once, and nothing was acknowledged that was not done.
        """
        crashed = asyncio.create_task(self._crash())
        stopping = asyncio.create_task(_wait(stop))
        looking = asyncio.create_task(self._fetch_gaps())
        try:
            await self._app.start()
            await asyncio.wait(
                [stopping, self.role.failed, crashed, looking],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            stopping.cancel()
            crashed.cancel()
            looking.cancel()
            await self._leave()
        if looking.done() and not looking.cancelled():
            looking.result()
        if self.role.failed.done():
            self.role.failed.result()
        if self._app.crash_reason is not None:
            reason = self._app.crash_reason
            raise Crashed(f"the Kafka client ended: {type(reason).__name__}: {reason}") from reason

    async def _crash(self) -> None:
        await self._app._crashed.wait()

    async def _leave(self) -> None:
        await self.before_revocation()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._app.stop()
        except TimeoutError:
            logger.error("the Kafka client did not stop within %.0f s", STOP_SECONDS)
        await self.role.release()

    async def _fetch_gaps(self) -> None:
        gaps: Gaps[TP] = Gaps()
        consumer = self._app.consumer
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            # What lanes want is assigned: they end before a revocation and begin after it, and
            # nothing here gives up the loop meanwhile.
            wanted = {
                TP(self._options.physical(topic), partition): offset
                for (topic, partition), offset in self.role.wanted().items()
            }
            # As of the last fetch, which is enough: what it brought is what can be dropped.
            ends = {tp: consumer.highwater(tp) or 0 for tp in wanted}
            for tp, offset in gaps.found(wanted, ends).items():
                logger.info("%s[%d] did not come from offset %d on", *tp, offset)
                await consumer.seek(tp, offset)

    # --- rebalances --------------------------------------------------------------------------

    async def before_revocation(self) -> None:
        """Finish what is being committed and commit what is acknowledged."""
        self._closing = self._app.consumer_generation_id
        await self.role.quiesce()
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
            topic: {tp.partition for tp in assigned if self._options.logical(tp.topic) == topic}
            for topic in self.role.topics
        }
        first = next(iter(numbers.values()), set())
        if any(found != first for found in numbers.values()):
            self.role.fail(
                LogError(f"the group gave different partitions of its topics: {numbers}")
            )
            return
        logger.info("%s works on partitions %s", self.role.name, sorted(first))
        self.role.assign(first, lambda number: _Tenure(self, number, generation))

    def _watch_heartbeats(self) -> None:
        """Remember when the broker last confirmed the membership, which aiokafka does not tell."""
        coordinator = self._coordinator()
        self._beat = time.monotonic()
        if coordinator is self._watched:
            return
        self._watched = coordinator
        original: Callable[[], Awaitable[bool]] = coordinator._do_heartbeat  # type: ignore[attr-defined]

        async def beat() -> bool:
            asked = time.monotonic()
            confirmed = await original()
            if confirmed:
                self._beat = asked
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
        return time.monotonic() - self._beat < LEASE * self._options.settings.session_seconds

    # --- records -----------------------------------------------------------------------------

    def _add_agent(self, stage: Stage) -> None:
        names = [self._options.physical(topic.name) for topic in stage.reads]
        source = self._app.topic(
            *names,
            key_serializer="raw",
            value_serializer="raw",
            partitions=self._options.partitions,
        )

        async def agent(stream: faust.Stream[bytes]) -> None:
            try:
                # Not `noack_take`, which looks every few milliseconds whether something came.
                stream.enable_acks = False
                async for _ in stream:
                    self._arrived(stage.name, stream.current_event)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                self.role.fail(error)
                await asyncio.Event().wait()  # returning would make Faust start it again

        agent.__name__ = stage.name.replace("-", "_")
        name = f"{self._options.settings.group}.{stage.name}"
        self._app.agent(source, name=name, concurrency=1)(agent)

    def _arrived(self, stage: str, event: Event) -> None:
        message = event.message
        now = self._app.consumer_generation_id
        if message.generation_id != now or now == self._closing:
            return  # of an assignment that is over: its next owner reads it again
        topic = self._options.logical(message.topic)
        arrival = Arrival(_record(topic, event), event.ack)
        self.role.put(stage, topic, message.partition, arrival)


class _Tenure:
    """One partition in one generation of the group."""

    def __init__(self, member: Member, partition: int, generation: int) -> None:
        self._member = member
        self._partition = partition
        self._generation = generation

    def lost(self) -> str | None:
        return self._member.lost(self._partition, self._generation)

    def sure(self) -> bool:
        return self._member.sure()


class FaustFlow:
    """Holds partitions by Faust's marks for full buffers. Its own pausing drops what is fetched."""

    def __init__(self, options: Cluster) -> None:
        self._options = options
        self.member: Member | None = None

    def hold(self, topic: str, partition: int) -> None:
        if self.member is not None:
            tp = TP(self._options.physical(topic), partition)
            self.member._app.consumer.on_buffer_full(tp)

    def let_go(self, topic: str, partition: int) -> None:
        if self.member is not None:
            tp = TP(self._options.physical(topic), partition)
            self.member._app.consumer.on_buffer_drop(tp)


def _record(topic: str, event: Event) -> Record:
    message = event.message
    headers = {
        name.decode() if isinstance(name, bytes) else name: value
        for name, value in message.headers or ()
    }
    return Record(
        topic,
        message.partition,
        message.offset,
        message.key,
        message.value,
        _EPOCH + timedelta(milliseconds=round(message.timestamp * 1000)),
        headers,
    )


def _application(role: Role, options: Cluster, folder: Path) -> _App:
    session = options.settings.session_seconds
    return _App(
        options.group_of(role.name),
        broker=[f"kafka://{server}" for server in options.servers],
        loop=asyncio.get_running_loop(),
        datadir=str(folder),
        web_enabled=False,
        worker_redirect_stdouts=False,
        cython_optimizations=True,
        topic_partitions=options.partitions,
        topic_allow_declare=False,  # `palimpsest topics create` makes the topics
        topic_disable_leader=True,
        table_standby_replicas=1,  # 0 would let the topics of a scope part ways
        key_serializer="raw",
        value_serializer="raw",
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=MAX_REQUEST_BYTES,
        broker_session_timeout=session,
        broker_heartbeat_interval=session / 10,
        broker_rebalance_timeout=max(session, 2 * options.settings.quiesce_seconds),
        broker_request_timeout=max(session + 5, 2 * options.settings.quiesce_seconds + 5),
        broker_commit_interval=COMMIT_INTERVAL_SECONDS,
        broker_commit_every=10_000,
        broker_max_poll_records=500,
        # Through a provider's outage every partition may be full and nothing be fetched.
        broker_max_poll_interval=NEVER_SECONDS,
        stream_wait_empty=True,
        stream_buffer_maxsize=4096,
    )


def quieten(level: int = logging.CRITICAL) -> None:
    """Faust and aiokafka log every try of an outage and every rebalance; the status tells both."""
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
