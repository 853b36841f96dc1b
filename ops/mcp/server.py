"""The tools as an MCP server, with the official SDK: over stdio, or over streamable HTTP."""

from __future__ import annotations

import asyncio
import codecs
import difflib
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import (
    INVALID_PARAMS,
    PARSE_ERROR,
    CallToolResult,
    InputRequiredResult,
    JSONRPCError,
    ToolAnnotations,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palimpsest.ops.distribution import program_version
from palimpsest.ops.library.memory_methods import AsyncMethods
from palimpsest.ops.mcp.both_scopes import BothScopes
from palimpsest.ops.mcp.operation_tools import AnyOperation, tool_of
from palimpsest.ops.mcp.stdio import Answered, error_of, not_a_notification, refusal_of
from palimpsest.ops.mcp.tools import NOWHERE_ELSE, WORDS, AgentPlace, TeachingTools, with_errors
from palimpsest.ops.operations.changing import Confirm, Modify, Remember
from palimpsest.ops.operations.forgetting import ForgetOne
from palimpsest.ops.operations.operation import Write
from palimpsest.ops.operations.sessions import UpdateShortTermMemory
from palimpsest.ops.service.server import USUAL, served, with_file_descriptors
from palimpsest.ops.surfaces.catalogue import OPERATIONS
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.failures import describe

HOST = "127.0.0.1"
PATH = "/mcp"
AGENT = Actor(id="mcp", type="agent")
INSTRUCTIONS = (
    "Long-term memory of earlier conversations. Look into it (search_memory, get_context) before"
    " you answer what they may have settled, and remember_fact what later ones will need. Quote a"
    " memory's id when you correct, confirm or forget it."
)
ADDING = (Remember, Confirm, UpdateShortTermMemory)
"""Operations that change nothing existing and may be repeated."""


async def in_plain_words(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Answers a request with wrong parameters with what is wrong; the SDK says only that they
    are."""
    try:
        return await call_next(ctx)
    except ValidationError as error:
        why = describe(error).removeprefix("record: ")
    except MCPError as error:
        if error.error.code != INVALID_PARAMS or error.error.data != "":
            raise
        why = "send `initialize` first"
    except ValueError as error:
        if ctx.method != "prompts/get":
            raise
        why = str(error)  # there is no such prompt
    raise MCPError(code=INVALID_PARAMS, message=f"{ctx.method}: {why}")


class MemoryServer(MCPServer):
    """The SDK's server, which says in plain words what is wrong with a tool's arguments, refuses
    unknown ones, and over stdio answers what it cannot read."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        known = self._tool_manager.get_tool(name)
        if known is None:
            tools = [each.name for each in self._tool_manager.list_tools()]
            near = difflib.get_close_matches(name, tools, 1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(tools)}"
            raise ToolError(f"there is no tool {name[:100]!r}; {meant}")
        names = [*known.parameters["properties"]]
        for each in arguments.keys() - {*names}:
            near = difflib.get_close_matches(each, names, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ToolError(f"{each}: there is no such argument{meant}")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(describe(error.__cause__)) from None
            raise ToolError(str(error).removeprefix(f"Error executing tool {name}: ")) from error

    async def run_stdio_async(self) -> None:
        server = self._lowlevel_server
        async with stdio_server() as (received, sent):
            options = server.create_initialization_options()
            await server.run(Answered(received, sent), sent, options)


def memory_server(
    memory: Callable[[], AsyncMethods],
    agent: AgentPlace = NOWHERE_ELSE,
    check: Callable[[type[AnyOperation]], None] | None = None,
) -> MCPServer:
    """The server of all tools for the scope of the memory that `memory` returns for each call, and
    for the other scope of `agent`. `check`, if any, is called with a tool's operation first, and
    raises RequestError if it may not be used."""
    server = MemoryServer(
        "palimpsest",
        instructions=INSTRUCTIONS,
        version=program_version(),
        log_level="ERROR",
        middleware=[in_plain_words],
    )
    teaching = TeachingTools(memory, agent)
    words = WORDS if agent.personal_scope is None else {**WORDS, **BothScopes(agent).words()}
    tools: list[tuple[Callable[..., Awaitable[Any]], type[AnyOperation]]] = [
        (tool_of(kind, memory, words.get(kind.surface.tool)), kind)
        for kind in OPERATIONS.values()
        if kind.surface.tool is not None
    ]
    tools += [
        (teaching.update_short_term_memory, UpdateShortTermMemory),
        (teaching.create_long_term_memory, Remember),
        (teaching.update_long_term_memory, Modify),
        (teaching.delete_long_term_memory, ForgetOne),
    ]
    for tool, kind in tools:
        server.add_tool(with_errors(tool, kind, check), annotations=_annotations(kind))
    return server


def _annotations(kind: type[AnyOperation]) -> ToolAnnotations:
    is_write = issubclass(kind, Write)
    return ToolAnnotations(
        read_only_hint=not is_write,
        destructive_hint=kind not in ADDING if is_write else None,
        idempotent_hint=True if kind in ADDING else None,
        open_world_hint=False,
    )


async def serve_stdio(memory: AsyncMethods, agent: AgentPlace = NOWHERE_ELSE) -> None:
    """Answer the client on standard input and output until it closes them."""
    async with memory:
        await memory_server(lambda: memory, agent).run_stdio_async()


async def serve_http(
    memory: AsyncMethods,
    listener: socket.socket,
    on_ready: Callable[[str], None],
    agent: AgentPlace = NOWHERE_ELSE,
    guarded: Callable[[ASGIApp], ASGIApp] | None = None,
    check: Callable[[type[AnyOperation]], None] | None = None,
) -> None:
    """Answer clients on a socket until SIGTERM or Ctrl-C. `on_ready` is called with the address.

    Without `guarded` it answers only this machine; `guarded` wraps the server in checks of hosts
    and callers."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with listener:
        async with memory:
            server = memory_server(lambda: memory, agent, check)
            app: ASGIApp = http_app(server, checks_hosts=guarded is None)
            if guarded is not None:
                app = guarded(app)
            async with (
                server.session_manager.run(),
                served(app, listener, with_file_descriptors(USUAL)),
            ):
                host, port = listener.getsockname()[:2]
                on_ready(f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}")
                await stop.wait()


def http_app(server: MCPServer, checks_hosts: bool) -> ASGIApp:
    """The server over streamable HTTP. Requests are independent: none continues the session of
    another client."""
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        host=HOST,
        transport_security=None
        if checks_hosts
        else TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return Plainly(app)


class Plainly:
    """Answers a body that is no message with what is wrong with it, also a call that the SDK would
    take for a notification, to which it answers nothing. A client that leaves before its body has
    come is no error."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            body = await Request(scope, receive).body()
        except ClientDisconnect:
            return
        body = body.removeprefix(codecs.BOM_UTF8)
        refusal = _refusal(body)
        if refusal is not None:
            told = refusal.model_dump(mode="json", exclude={"error": {"data"}})
            await JSONResponse(told, 400)(scope, receive, send)
            return
        given: Message | None = {"type": "http.request", "body": body, "more_body": False}

        async def again() -> Message:
            nonlocal given
            message, given = given, None
            return message or await receive()

        await self._app(scope, again, send)


def _refusal(body: bytes) -> JSONRPCError | None:
    """The answer to a body that is no message; None for one that is."""
    try:
        message = jsonrpc_message_adapter.validate_json(body.decode(), by_name=False)
    except UnicodeDecodeError as error:
        return error_of(None, PARSE_ERROR, f"not UTF-8 at byte {error.start + 1}")
    except ValidationError as error:
        why = describe(error).removeprefix("record: ")
        return refusal_of(error) or error_of(None, PARSE_ERROR, why)
    return not_a_notification(message)
