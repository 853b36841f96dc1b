"""Runs the service: with the stages in the same process on the embedded log, as a gateway to the
workers on Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, cast

from fastapi import FastAPI
from starlette.datastructures import QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.http.gate import Gate
from palimpsest.ops.http.problems import Problem, answer
from palimpsest.ops.http.service import Rates, Service, check_permission
from palimpsest.ops.http.tokens import Caller, CallerAccess, Tokens
from palimpsest.ops.library.memory_methods import AsyncMethods
from palimpsest.ops.maintenance.embedded import Application
from palimpsest.ops.operations.awaited_results import awaited_commands
from palimpsest.ops.operations.lifecycle.pipeline import Status
from palimpsest.ops.operations.operation import Json, Operation
from palimpsest.ops.parts import SetupError, utc_now
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.server.application import create_app
from palimpsest.ops.service.client import is_loopback
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.service.queries import Queries
from palimpsest.ops.service.routing import RoutedQueries
from palimpsest.ops.service.server import (
    ConnectionLimits,
    listening,
    served,
    why_not_listening,
    with_file_descriptors,
)
from palimpsest.ops.settings.sections import HttpSettings, Settings
from palimpsest.ops.telemetry.metrics import Metrics
from palimpsest.ops.transport.base import Transport
from palimpsest.ops.worker.bootstrap import application
from palimpsest.ops.worker.local import serving_reads
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import Position

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0
"""Maximum wait of a request for a partition during a rebalance; then the client must retry."""
CLOSING_SECONDS = 5
"""Time that running requests have to finish when the service ends."""
NEWEST = 3
"""Scopes whose indexes are loaded at the start."""
_NEWEST = """
SELECT scope, last_activity FROM main.scopes WHERE last_activity IS NOT NULL
ORDER BY last_activity DESC, scope LIMIT ?"""


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
            return
        # This takes a second or two; requests are already answered meanwhile.
        await asyncio.to_thread(importlib.import_module, "palimpsest.stores.index.lance")
        if not self.service.stopping.is_set():
            self.service.started.set()
            given = [*self.app.shards.values()], self.service.stopping.is_set
            loading = asyncio.ensure_future(asyncio.to_thread(load_newest, *given))
            try:
                await self.app.run(until_drained=False)
            finally:
                # A thread cannot be stopped, and the stores must not close while it reads them.
                await asyncio.wait([loading])
                if (error := loading.exception()) is not None:
                    logger.warning("the newest scopes were not loaded at the start: %s", error)

    def stop(self) -> None:
        """Finishes running batches and requests, then ends `run`."""
        self.service.stopping.set()
        if self.app is not None:
            self.app.stop()


def load_newest(shards: Sequence[Shard], stops: Callable[[], bool]) -> None:
    """Loads the indexes of the scopes that changed last, so that nobody's first question after a
    start waits for that: with 100,000 memories over two seconds. Ends early once `stops`."""
    newest: list[tuple[datetime, str, Shard]] = []
    for shard in shards:
        with shard.reading() as reader:
            found = reader.execute(_NEWEST, [NEWEST]).fetchall()
        newest += [(changed, scope, shard) for scope, changed in found]
    for _, scope, shard in sorted(newest, key=lambda each: each[:2], reverse=True)[:NEWEST]:
        if stops():
            return
        shard.space.indexes.warm(scope)


@contextlib.asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Serving]:
    """Serves until the context exits; `Serving.run` runs the stages meanwhile. Raises SetupError,
    and the errors of opening log and stores."""
    tokens = Tokens(settings.data_dir)
    check_tokens(settings, tokens)
    async with contextlib.AsyncExitStack() as undo:
        listener = undo.enter_context(_listener(settings.http))
        parts = _of_cluster if settings.log.kind == "kafka" else _embedded
        service, stages, reach = await undo.enter_async_context(parts(settings, tokens))
        app = create_app(service)
        await undo.enter_async_context(agents(app, service))
        graceful = {"timeout_graceful_shutdown": CLOSING_SECONDS}
        http = settings.http
        limits = ConnectionLimits(http.max_connections, http.head_seconds, http.keep_alive_seconds)
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
        raise SetupError(why_not_listening(http.host, http.port, error)) from error


_Parts = tuple[Service, Application | None, Callable[[], Awaitable[None]] | None]


@contextlib.asynccontextmanager
async def _of_cluster(settings: Settings, tokens: Tokens) -> AsyncIterator[_Parts]:
    from palimpsest.ops.kafka.application import until_reached
    from palimpsest.streams.kafka.cluster import Waiting
    from palimpsest.streams.kafka.log import KafkaLog

    partitions, rates = settings.cluster.partitions, Rates(settings.http)
    routed = RoutedQueries(settings, partitions, PATIENCE_SECONDS)
    with KafkaLog(settings.cluster) as broker:
        own = Waiting(settings.kafka.bootstrap_servers, utc_now)

        async def lacks() -> str | None:
            if own.now is not None:  # the gateway itself has not reached the broker yet
                return own.now.as_json()["text"]
            return await without_owner(routed, partitions)

        async def polled(position: Position, seconds: float) -> bool:
            # The broker does not notify of new records.
            end = await asyncio.to_thread(broker.end_offset, position.topic, position.partition)
            if end <= position.next_offset:
                await asyncio.sleep(seconds)
            return end > position.next_offset

        metrics = Metrics(partial(pipeline_status, routed))
        try:
            service = Service(
                settings, routed, broker.append, broker, tokens, rates, lacks, polled, metrics
            )
            yield service, None, partial(until_reached, broker, own)
        finally:
            await routed.close()


@contextlib.asynccontextmanager
async def _embedded(settings: Settings, tokens: Tokens) -> AsyncIterator[_Parts]:
    async with application(settings) as app, serving_reads(app) as sources:
        queries, log = DirectQueries(sources), app.log
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
            Rates(settings.http),
            hindered,
            wait,
            metrics,
            awaited_commands(sources).of,
            app.shards.values(),
        )
        yield service, app, None


async def pipeline_status(queries: Queries) -> JsonObject:
    return cast("JsonObject", await queries.answer(Status()))


async def without_owner(queries: RoutedQueries, partitions: int) -> str | None:
    """Why reads or writes must wait: partitions without a worker, or workers without a broker."""
    found = await queries.found(range(partitions))
    missing = sorted({*range(partitions)} - found.owners.keys())
    if missing:
        return str(found.without(missing))
    return "; ".join(found.waiting(["broker"])) or None


# ---- agents ----
AGENTS_PATH: Final = "/mcp"
_CALLER: Final[ContextVar[Caller]] = ContextVar("caller")
_MEMORY: Final[ContextVar[AsyncMethods]] = ContextVar("memory")


def current_caller() -> Caller:
    """The sender of the request that is answered here."""
    return _CALLER.get()


class ServedTransport(Transport):
    """Operations of one caller, executed by the service, as an agent."""

    def __init__(self, service: Service, caller: Caller) -> None:
        self._service = service
        self._access = CallerAccess(caller, "agent")

    async def execute(self, operation: Operation[Any], seconds: float) -> Json:
        return await self._service.execute(operation, self._access)


def checked(rates: Rates) -> Callable[[type[Operation[Any]]], None]:
    """Returns a check that raises RequestError if the current caller lacks the permission for an
    operation or exceeds its rate limit."""

    def check(kind: type[Operation[Any]]) -> None:
        caller = _CALLER.get()
        try:
            check_permission(caller, kind.surface)
            if kind.surface.rate is not None:
                rates.count(caller.id, kind.surface.rate)
        except Problem as problem:
            raise RequestError(problem.detail) from None

    return check


class ForCallers:
    """An ASGI application that sets the caller and their memory while it answers. `memory` returns
    the memory of a caller and a scope."""

    def __init__(self, app: ASGIApp, memory: Callable[[Caller, str | None], AsyncMethods]) -> None:
        self._app = app
        self._memory = memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] != "POST":
            # The server sends only responses; a stream for other messages would stay open unused.
            problem = Problem("method_not_allowed", "agents send POST", {"Allow": "POST"})
            await answer(problem)(scope, receive, send)
            return
        caller: Caller = scope["state"]["caller"]
        try:
            memory = self._memory(caller, QueryParams(scope["query_string"]).get("scope"))
        except NotFoundError as error:
            await answer(Problem("not_found", str(error)))(scope, receive, send)
            return
        _CALLER.set(caller)
        _MEMORY.set(memory)
        await self._app(scope, receive, send)


@asynccontextmanager
async def agents(app: FastAPI, service: Service) -> AsyncIterator[None]:
    """Serves agents, too, until the context exits, if the MCP SDK is installed."""
    try:
        from palimpsest.ops.mcp.server import http_app, memory_server
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp_types"):
            raise
        yield
        return
    server = memory_server(_MEMORY.get, check=checked(service.rates))
    answering = http_app(server, checks_hosts=False)  # the gate has checked them

    def memory(caller: Caller, scope: str | None) -> AsyncMethods:
        transport = ServedTransport(service, caller)
        return AsyncMethods(transport, caller.scope(scope), service.settings.http.wait_seconds)

    app.add_route(AGENTS_PATH, ForCallers(answering, memory), include_in_schema=False)  # type: ignore[arg-type]
    async with server.session_manager.run():
        yield


def guarded(
    http: HttpSettings, tokens: Tokens, memory: AsyncMethods
) -> Callable[[ASGIApp], ASGIApp]:
    """Returns a wrapper for a server of one scope that other machines can reach: it admits only
    callers with a token for the scope."""

    def of(caller: Caller, scope: str | None) -> AsyncMethods:
        if caller.scope(scope or memory.scope) != memory.scope:
            raise NotFoundError(f"there is no scope {scope}")
        return memory

    return lambda app: Gate(ForCallers(app, of), http, tokens, {})
