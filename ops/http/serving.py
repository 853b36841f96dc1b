"""Runs the service: with the stages in the same process on the embedded log, as a gateway to the
workers on Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from palimpsest.ops.awaited_results import AwaitedResults
from palimpsest.ops.awaited_turns import TurnKey
from palimpsest.ops.bootstrap import application
from palimpsest.ops.embedded import Application
from palimpsest.ops.http.agents import agents
from palimpsest.ops.http.application import create_app
from palimpsest.ops.http.gate import is_loopback
from palimpsest.ops.http.metrics import Metrics
from palimpsest.ops.http.rates import Rates
from palimpsest.ops.http.service import Service
from palimpsest.ops.http.settings import HttpSettings
from palimpsest.ops.http.tokens import Tokens
from palimpsest.ops.operations.pipeline import Status, command_results
from palimpsest.ops.parts import SetupError, utc_now
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.connections import ConnectionLimits, with_file_descriptors
from palimpsest.ops.service.queries import DirectQueries, Queries
from palimpsest.ops.service.routing import RoutedQueries
from palimpsest.ops.service.running import serving_reads
from palimpsest.ops.service.server import listening, served
from palimpsest.ops.settings.sections import Settings
from palimpsest.streams.logs.base import LogReader, Position
from palimpsest.streams.runtime.runner import StageRunner

if TYPE_CHECKING:
    from palimpsest.streams.kafka.log import KafkaLog
    from palimpsest.streams.kafka.waiting import Waiting

PATIENCE_SECONDS = 2.0
"""Maximum wait of a request for a partition during a rebalance; then the client must retry."""
CLOSING_SECONDS = 5
"""Time that running requests have to finish when the service ends."""


@dataclass(slots=True)
class Serving:
    """A service that answers at `address`. `app` runs the stages; None on Kafka, where workers
    do. `reach` returns when their broker answers; None where the log is embedded."""

    address: str
    service: Service
    app: Application | None
    reach: Callable[[], Awaitable[None]] | None

    async def run(self) -> None:
        """Runs the stages, or waits, until `stop`. Raises the error that ended a stage or a store,
        and LogError if the broker lacks the required topics."""
        if self.app is None:
            self.service.started.set()
            await self._until_stopped()
            return
        # This takes a second or two; requests are already answered meanwhile.
        await asyncio.to_thread(importlib.import_module, "palimpsest.stores.index.lance")
        if not self.service.stopping.is_set():
            self.service.started.set()
            await self.app.run(until_drained=False)

    async def _until_stopped(self) -> None:
        assert self.reach is not None
        stopped = asyncio.ensure_future(self.service.stopping.wait())
        reached = asyncio.ensure_future(self.reach())
        try:
            await asyncio.wait((stopped, reached), return_when=asyncio.FIRST_COMPLETED)
            if reached.done():
                reached.result()
            await stopped
        finally:
            stopped.cancel()
            reached.cancel()

    def stop(self) -> None:
        """Finishes running batches and requests, then ends `run`."""
        self.service.stopping.set()
        if self.app is not None:
            self.app.stop()


@contextlib.asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Serving]:
    """Serves until the context exits; `Serving.run` runs the stages meanwhile. Raises SetupError,
    and the errors of opening log and stores."""
    tokens = Tokens(settings.data_dir)
    check_tokens(settings, tokens)
    async with contextlib.AsyncExitStack() as undo:
        listener = undo.enter_context(_listener(settings.http))
        service, stages, reach = await undo.enter_async_context(_parts(settings, tokens))
        app = create_app(service)
        await undo.enter_async_context(agents(app, service))
        graceful = {"timeout_graceful_shutdown": CLOSING_SECONDS}
        limits = ConnectionLimits(settings.http.max_connections, settings.http.head_seconds)
        granted = with_file_descriptors(limits)
        await undo.enter_async_context(served(app, listener, granted, **graceful))
        undo.callback(service.stopping.set)
        host, port = settings.http.host, listener.getsockname()[1]
        yield Serving(
            f"http://{f'[{host}]' if ':' in host else host}:{port}", service, stages, reach
        )


def check_tokens(settings: Settings, tokens: Tokens) -> None:
    """Raises SetupError for an address that other machines can reach if there is no token."""
    if not tokens.all() and not is_loopback(settings.http.host):
        raise SetupError(
            f"http.host is {settings.http.host}: others than this machine could read and change"
            " the memory; make a token first, with `palimpsest tokens create`"
        )


def _listener(http: HttpSettings) -> socket.socket:
    try:
        return listening(http.host, http.port)
    except OSError as error:
        raise SetupError(
            f"cannot listen at {http.host}:{http.port}: {error.strerror}; choose another address"
            " with --host and --port"
        ) from error


_Parts = tuple[Service, Application | None, Callable[[], Awaitable[None]] | None]


@contextlib.asynccontextmanager
async def _parts(settings: Settings, tokens: Tokens) -> AsyncIterator[_Parts]:
    rates = Rates(settings.http)
    if settings.log.kind == "kafka":
        from palimpsest.ops.kafka.application import until_reached

        async with _gateway(settings) as (routed, broker, own):
            lacks = partial(_lacking, own, routed, settings.cluster.partitions)
            polled = partial(_polled, broker)
            metrics = Metrics(partial(pipeline_status, routed))
            service = Service(
                settings, routed, broker.append, broker, tokens, rates, lacks, polled, metrics
            )
            yield service, None, partial(until_reached, broker, own)
        return
    async with _embedded(settings, tokens, rates) as (service, app):
        yield service, app, None


@contextlib.asynccontextmanager
async def _embedded(
    settings: Settings, tokens: Tokens, rates: Rates
) -> AsyncIterator[tuple[Service, Application]]:
    results, turns = AwaitedResults[str](), AwaitedResults[TurnKey]()

    async def note(runner: StageRunner) -> None:
        await results.note(runner)
        await turns.note(runner)

    async with application(settings, on_batch=note) as app, serving_reads(app) as sources:
        queries, log = DirectQueries(sources), app.log
        results.find = lambda ids: asyncio.to_thread(command_results, sources, ids)

        waits: dict[Position, asyncio.Task[bool]] = {}

        async def wait(position: Position, seconds: float) -> bool:
            # Requests that wait for the same record share one poll.
            if position not in waits:
                waits[position] = asyncio.create_task(log.wait([position], seconds))
                waits[position].add_done_callback(lambda _: waits.pop(position))
            return await asyncio.shield(waits[position])

        async def hindered() -> str | None:
            return app.worker.hindered()

        metrics = Metrics(partial(pipeline_status, queries), lambda: app.runners, app.models.usage)
        service = Service(
            settings,
            queries,
            log.append,
            log,
            tokens,
            rates,
            hindered,
            wait,
            metrics,
            results.of,
            turns,
        )
        yield service, app


async def pipeline_status(queries: Queries) -> JsonObject:
    return cast("JsonObject", await queries.answer(Status()))


@contextlib.asynccontextmanager
async def _gateway(
    settings: Settings,
) -> AsyncIterator[tuple[RoutedQueries, KafkaLog, Waiting]]:
    from palimpsest.streams.kafka.log import KafkaLog
    from palimpsest.streams.kafka.waiting import Waiting

    queries = RoutedQueries(settings, settings.cluster.partitions, PATIENCE_SECONDS)
    with KafkaLog(settings.cluster) as log:
        try:
            yield queries, log, Waiting(settings.kafka.bootstrap_servers, utc_now)
        finally:
            await queries.close()


async def _lacking(own: Waiting, queries: RoutedQueries, partitions: int) -> str | None:
    """Like `without_owner`, or that the gateway itself has not reached the broker yet."""
    if own.now is not None:
        return own.now.as_json()["text"]
    return await without_owner(queries, partitions)


async def without_owner(queries: RoutedQueries, partitions: int) -> str | None:
    """Why reads or writes must wait: partitions without a worker, or workers without a broker."""
    missing = sorted(set(range(partitions)) - (await queries.owners()).keys())
    ask = queries.waiting
    waiting = await (ask("broker", "partitions") if missing else ask("broker"))
    if missing:
        waiting.insert(0, f"no worker has the partitions {', '.join(map(str, missing))} open")
    return "; ".join(waiting) or None


async def _polled(log: LogReader, position: Position, seconds: float) -> bool:
    """Polls for a record, as the broker does not notify of new ones."""
    end = await asyncio.to_thread(log.end_offset, position.topic, position.partition)
    if end <= position.next_offset:
        await asyncio.sleep(seconds)
    return end > position.next_offset
