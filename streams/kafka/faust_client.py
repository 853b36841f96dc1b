"""Faust's client, adapted to this project.

Subclasses of its consumer replace behaviour of Faust that would lose records, leave commits
uncertain, or end for transient errors; they rely on private parts of Faust 0.15.3, and a test pins
that version."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from pathlib import Path
from typing import Final

import faust
from aiokafka.errors import ConsumerStoppedError, KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from faust.transport.drivers.aiokafka import Consumer as FaustConsumer
from faust.transport.drivers.aiokafka import Transport as FaustTransport
from faust.types import TP
from mode.services import Service, WaitResults
from mode.threads import ServiceThread, WorkerThread

from palimpsest.streams.kafka.cluster import MAX_REQUEST_BYTES, Cluster, is_refusal

FAUST_VERSION: Final = "0.15.3"
"""The version whose private parts this module relies on."""
COMMIT_INTERVAL_SECONDS: Final = 0.5
COMMIT_SECONDS: Final = 5.0
"""Time limit of a commit; afterwards it is left to the next one."""
AGAIN_SECONDS: Final = 0.5
CANCELLATIONS: Final = 20
"""More than the nesting depth of Faust's services."""
NEVER_SECONDS: Final = 86_400.0

logger = logging.getLogger("palimpsest.kafka")


class _Thread(WorkerThread):
    """Faust waits for the end of its thread in the event loop, which the thread may be waiting for.
    At that point everything important is done: the member has left the group."""

    def __init__(self, service: ServiceThread) -> None:
        super().__init__(service)
        self.daemon = True

    def stop(self) -> None:
        pass


class _ConsumerThread(AIOKafkaConsumerThread):  # type: ignore[misc]
    """Faust's consumer thread, which does not end for transient errors."""

    Worker = _Thread

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        # Faust ends on any error of a restarting broker or a rebalancing group, and waits without
        # limit for an unreachable one.
        here = self.assignment()
        wanted = {
            TopicPartition(*tp): OffsetAndMetadata(at, "")
            for tp, at in offsets.items()
            if tp in here
        }
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                await self._ensure_consumer().commit(wanted)
        except (TimeoutError, ConsumerStoppedError):
            return False
        except KafkaError as error:
            await self._survive(error)
            return False
        return True

    async def _fetch_records(self, *args: object, **options: object) -> object:
        try:
            return await super()._fetch_records(*args, **options)
        except KafkaError as error:
            await self._survive(error)
            await self.sleep(AGAIN_SECONDS)
            return {}

    async def on_thread_stop(self) -> None:
        # aiokafka propagates the cancellation of its own fetch while the broker is away, and Faust
        # would wait forever for the thread that it ended.
        try:
            await super().on_thread_stop()
        except asyncio.CancelledError:
            await self._ensure_consumer()._client.close()

    @Service.task
    async def _watch_coordination(self) -> None:
        """aiokafka stops after an error of the group until its user reads the error, which Faust
        does not. If that ended its heartbeats, they resume only with the next join."""
        coordinator = self._ensure_consumer()._coordinator
        while not self.should_stop:
            await self.sleep(AGAIN_SECONDS)
            try:
                coordinator.check_errors()
            except KafkaError as error:
                if coordinator._coordination_task.done():
                    await self.crash(error)
                else:
                    await self._survive(error)
                    coordinator.request_rejoin()

    async def _survive(self, error: KafkaError) -> None:
        if is_refusal(error):
            await self.crash(error)
        else:
            logger.info("%s: %s", type(error).__name__, error)


class _Consumer(FaustConsumer):  # type: ignore[misc]
    """Faust's consumer, with a hook for the role before a revocation: Faust first discards
    acknowledgements that are not committed, and then waits without limit until every record that it
    handed out is acknowledged, which never happens for a record that waits for a model."""

    def _new_consumer_thread(self) -> _ConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        await self.app.before_revocation()
        await super().on_partitions_revoked(revoked)

    async def wait_empty(self) -> None:
        # The role has finished or abandoned all records handed out.
        self._unacked_messages.clear()
        await self.commit_and_end_transactions()

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Faust seeks here after it has dropped what arrived while its flow was stopped. It does
        not move a partition without a committed offset, whose dropped records would not come again
        before a restart: this also resets such partitions. Retries both until the broker answers,
        while there are partitions; Faust ends on an error of either."""
        while self.assignment() and not self.should_stop:
            try:
                committed: Mapping[TP, int] = await super().seek_to_committed()
                uncommitted = [tp for tp, offset in committed.items() if not offset or offset < 0]
                if uncommitted:
                    await self._thread.seek_to_beginning(*uncommitted)
            except (KafkaError, AssertionError) as error:
                if is_refusal(error):
                    raise
                await self.sleep(AGAIN_SECONDS)
            else:
                return committed
        return {}

    async def _commit_offsets(
        self, offsets: Mapping[TP, int], start_new_transaction: bool = True
    ) -> bool:
        """Faust treats offsets as committed even if the commit failed, because the group had
        rebalanced meanwhile or the broker is away. It would ignore the acknowledgements of these
        records if they come again, and commit nothing if they do not, and the group would be stuck
        before them: so they are acknowledged once more."""
        did_commit: bool = await super()._commit_offsets(offsets, start_new_transaction)
        if not did_commit:
            for tp, offset in offsets.items():
                if self._committed_offset[tp] == offset:
                    self._committed_offset[tp] = None
                if offset - 1 not in self._acked_index[tp]:
                    self._acked_index[tp].add(offset - 1)
                    self._acked[tp].append(offset - 1)
        return did_commit

    async def commit_through(self, tp: TP, offset: int) -> None:
        """Commits a position that nothing was acknowledged for, unless the group has rebalanced
        meanwhile or the broker is away."""
        if await self._commit({tp: offset}):
            self._committed_offset[tp] = offset
            self._acked[tp] = [each for each in self._acked[tp] if each >= offset]
            self._acked_index[tp] = {*self._acked[tp]}

    async def wait_first(self, *awaited: object, timeout: float | None = None) -> WaitResults:  # noqa: ASYNC109
        """Faust creates four tasks to hand over one message, which is nearly always taken without
        waiting: this hands it over directly, and uses Faust's way only if it has to wait."""
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

    async def verify_all_partitions_active(self) -> None:
        """Faust would look for streams that stand still, only to log them, and end at a partition
        that a rebalance has just brought and that has no position yet. The lag of every stage tells
        what stands still."""

    async def _wait_next_records(self, timeout: float) -> object:  # noqa: ASYNC109
        # A fetch waits for its full time-out for the partitions that were active when it began; one
        # that becomes active meanwhile waits with it.
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


class App(faust.App):  # type: ignore[misc]
    """`before_revocation` is awaited before Faust handles the revocation of partitions."""

    before_revocation: Callable[[], Awaitable[None]]

    def knows_broker(self) -> bool:
        """Whether the broker that coordinates the group has answered recently."""
        consumer = None if self._consumer is None else self._consumer._thread._consumer
        # It has none before its first connection.
        coordinator = None if consumer is None else consumer._coordinator
        return coordinator is not None and coordinator.coordinator_id is not None

    async def stop_within(self, seconds: float) -> None:
        """Stops and leaves the group. Abandons what has not ended by then: services of Faust
        swallow cancellations, and wait for threads that wait for them."""
        stopping = asyncio.create_task(self.stop())
        await asyncio.wait([stopping], timeout=seconds)
        if stopping.done():
            stopping.result()
            return
        logger.error("the Kafka client did not stop within %.0f s", seconds)
        loop = self.consumer._thread.thread_loop
        with contextlib.suppress(RuntimeError):  # it has just been closed
            loop.call_soon_threadsafe(loop.stop)
        for _ in range(CANCELLATIONS):
            stopping.cancel()
            await asyncio.wait([stopping], timeout=AGAIN_SECONDS / 10)


def application(cluster: Cluster, role: str, folder: Path) -> App:
    """Returns one role's client, to be used inside a running loop."""
    session = cluster.settings.session_seconds
    app = App(
        cluster.group_of(role),
        broker=[f"kafka://{server}" for server in cluster.servers],
        loop=asyncio.get_running_loop(),
        datadir=str(folder),
        web_enabled=False,
        worker_redirect_stdouts=False,
        cython_optimizations=True,
        topic_partitions=cluster.partitions,
        topic_allow_declare=False,  # `palimpsest topics create` makes the topics
        topic_disable_leader=True,
        table_standby_replicas=1,  # 0 would let the topics of a scope part ways
        key_serializer="raw",
        value_serializer="raw",
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=MAX_REQUEST_BYTES,
        broker_session_timeout=session,
        broker_heartbeat_interval=session / 10,
        broker_rebalance_timeout=max(session, 2 * cluster.settings.quiesce_seconds),
        broker_request_timeout=max(session + 5, 2 * cluster.settings.quiesce_seconds + 5),
        broker_commit_interval=COMMIT_INTERVAL_SECONDS,
        broker_commit_every=10_000,
        broker_max_poll_records=500,
        # During a provider's outage every partition may be full and nothing be fetched.
        broker_max_poll_interval=NEVER_SECONDS,
        stream_wait_empty=True,
        stream_buffer_maxsize=4096,
    )
    app.transport = _Transport(app.conf.broker_consumer, app)
    return app
