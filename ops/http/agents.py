"""MCP within the service: the tools of agents over the caller's own scope, at `/mcp`.

`?scope=` names the memory space where the token has several. A tool needs the permission that the
same operation over `/api` needs, and commands are an agent's, also with a person's token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

from fastapi import FastAPI
from starlette.datastructures import QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.http.callers import Caller, CallerAccess
from palimpsest.ops.http.gate import Gate
from palimpsest.ops.http.problems import Problem, answer
from palimpsest.ops.http.rates import Rates
from palimpsest.ops.http.service import Service, check_permission
from palimpsest.ops.http.settings import HttpSettings
from palimpsest.ops.http.tokens import Tokens
from palimpsest.ops.library.memory_methods import AsyncMethods
from palimpsest.ops.operations.operation import Json, Operation
from palimpsest.ops.transport.base import Transport

PATH: Final = "/mcp"
_CALLER: Final[ContextVar[Caller]] = ContextVar("caller")
_MEMORY: Final[ContextVar[AsyncMethods]] = ContextVar("memory")


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

    app.add_route(PATH, ForCallers(answering, memory), include_in_schema=False)  # type: ignore[arg-type]
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
