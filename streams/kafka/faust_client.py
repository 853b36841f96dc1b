"""Faust's client, as this project needs it.

Where Faust's own behaviour would lose or doubt something, a subclass of its consumer says
otherwise; what that relies on is private to Faust 0.15.3, and a test holds it to that version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from pathlib import Path
from typing import Final

import faust
from faust.transport.drivers.aiokafka import Consumer as FaustConsumer
from faust.transport.drivers.aiokafka import Transport as FaustTransport
from faust.types import TP
from mode.services import WaitResults

from palimpsest.streams.kafka.cluster import MAX_REQUEST_BYTES, Cluster

FAUST_VERSION: Final = "0.15.3"
"""The version whose private parts are relied on below."""
COMMIT_INTERVAL_SECONDS: Final = 0.5
NEVER_SECONDS: Final = 86_400.0


class _Consumer(FaustConsumer):  # type: ignore[misc]
    """Faust's consumer, with the role's turn before a revocation: Faust forgets what is
    acknowledged and not committed first of all, and then waits without limit until every record
    that it handed out is acknowledged, which a record that waits for a model never is."""

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        await self.app.before_revocation()
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


class App(faust.App):  # type: ignore[misc]
    """`before_revocation` is awaited before Faust hears that partitions are taken away."""

    before_revocation: Callable[[], Awaitable[None]]


def application(cluster: Cluster, role: str, folder: Path) -> App:
    """One role's client, to be used inside a running loop."""
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
        # Through a provider's outage every partition may be full and nothing be fetched.
        broker_max_poll_interval=NEVER_SECONDS,
        stream_wait_empty=True,
        stream_buffer_maxsize=4096,
    )
    app.transport = _Transport(app.conf.broker_consumer, app)
    return app
