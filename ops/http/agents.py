"""MCP within the service: the tools of agents over the caller's own scope, at `/mcp`.

`?scope=` names the memory space where the token has several. A tool needs the permission that the
same request over `/api` needs, and changes as an agent does, whoever's token it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final

from fastapi import FastAPI
from pydantic import JsonValue
from starlette.datastructures import QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from palimpsest.ops.command_kinds import CommandError
from palimpsest.ops.commanding import Order
from palimpsest.ops.http.callers import Caller, Permission
from palimpsest.ops.http.commands import commands_of
from palimpsest.ops.http.gate import Gate
from palimpsest.ops.http.problems import Problem, answer
from palimpsest.ops.http.rates import Kind, Rates
from palimpsest.ops.http.service import Service
from palimpsest.ops.http.settings import HttpSettings
from palimpsest.ops.http.tokens import Tokens
from palimpsest.ops.library.methods import Methods
from palimpsest.ops.library.results import NotDoneError, NotYetAppliedError
from palimpsest.ops.queries.errors import NotFoundError, RequestError, no_memory
from palimpsest.ops.queries.requests import ExplainRequest, GetRequest, Request
from palimpsest.schemas.commands import Actor, Command

PATH: Final = "/mcp"
NEEDS: Final[dict[str, Permission]] = {
    "search_memory": "recall",
    "get_context": "recall",
    "get_entity_info": "recall",
    "memory_stats": "recall",
    "explain_fact": "recall",
    "weak_facts": "recall",
    "remember_fact": "remember",
    "correct_fact": "modify",
    "confirm_fact": "modify",
    "forget_fact": "forget",
    "update_short_term_memory": "remember",
    "create_long_term_memory": "remember",
    "update_long_term_memory": "modify",
}
"""What a tool needs; one that is not here changes something."""
COUNTED: Final[dict[str, Kind]] = {
    "correct_fact": "modify",
    "confirm_fact": "modify",
    "update_long_term_memory": "modify",
    "forget_fact": "delete",
}

_CALLER: Final[ContextVar[Caller]] = ContextVar("caller")
_MEMORY: Final[ContextVar[Methods]] = ContextVar("memory")


class ServedMemory(Methods):
    """The memory of one caller as the service has it: nothing of its own is opened."""

    def __init__(self, service: Service, caller: Caller, scope: str) -> None:
        self._service = service
        self._caller = caller
        self.scope = scope
        self._actor = Actor(id=caller.name, type="agent")
        self.wait_seconds = service.settings.http.wait_seconds

    async def _ask(self, request: Request) -> JsonValue:
        if isinstance(request, GetRequest | ExplainRequest):
            await self._known(None, request.memory_id)
        return await self._service.ask(request)

    async def _known(self, scope: str | None, *memory_ids: str) -> Sequence[str]:
        """Whole ids: that a shortened one is ambiguous would tell of others' memories."""
        for memory_id in memory_ids:
            if await self._service.scope_of(memory_id, self._caller) != self._in(scope):
                raise no_memory(memory_id)
        return memory_ids

    async def _carry_out(self, command: Command, scope: str | None, key: str | None) -> JsonValue:
        order = Order(self._in(scope), command, self._actor, key)
        try:
            with self._service.metrics.command() as ended:
                given = await commands_of(self._service, self._caller).submit(
                    order, self.wait_seconds
                )
                result = given.result()
                ended("pending" if given.answer is None else "applied")
        except CommandError as error:
            raise NotDoneError(str(error), kind=error.kind) from error
        except Problem as problem:
            raise RequestError(problem.detail) from None
        if given.answer is None:
            raise NotYetAppliedError(
                f"the change is accepted as command {given.command_id} and not carried out yet"
            )
        return result


def checked(rates: Rates) -> Callable[[str], None]:
    """Raises RequestError where the caller of now may not use the tool, or not so often."""

    def check(tool: str) -> None:
        caller = _CALLER.get()
        needed = NEEDS.get(tool, "modify")
        if needed not in caller.permissions:
            raise RequestError(f"this token has not the permission {needed}")
        counted = COUNTED.get(tool)
        if counted is not None:
            try:
                rates.count(caller.id, counted)
            except Problem as problem:
                raise RequestError(problem.detail) from None

    return check


class ForCallers:
    """An ASGI application that has the caller and their memory at hand while it answers. `memory`
    gives that of a caller and a scope."""

    def __init__(self, app: ASGIApp, memory: Callable[[Caller, str | None], Methods]) -> None:
        self._app = app
        self._memory = memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] != "POST":
            # Nothing is ever told beside answers: a stream for that would stay open for nothing.
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
    """Answer agents too, until the context is left, where the MCP SDK is installed."""
    try:
        from palimpsest.ops.mcp.server import http_app, memory_server
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp_types"):
            raise
        yield
        return
    server = memory_server(_MEMORY.get, check=checked(service.rates))
    answering = http_app(server, checks_hosts=False)  # the gate has done so

    def memory(caller: Caller, scope: str | None) -> Methods:
        return ServedMemory(service, caller, caller.scope(scope))

    app.add_route(PATH, ForCallers(answering, memory), include_in_schema=False)  # type: ignore[arg-type]
    async with server.session_manager.run():
        yield


def guarded(http: HttpSettings, tokens: Tokens, memory: Methods) -> Callable[[ASGIApp], ASGIApp]:
    """What is put around a server of one scope that others than this machine reach: only those who
    have a token for the scope get through."""

    def of(caller: Caller, scope: str | None) -> Methods:
        if caller.scope(scope or memory.scope) != memory.scope:
            raise NotFoundError(f"there is no scope {scope}")
        return memory

    return lambda app: Gate(ForCallers(app, of), http, tokens, {})
