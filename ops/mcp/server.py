"""The tools as an MCP server, with the official SDK: over stdio, or over streamable HTTP."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

import uvicorn
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import ToolAnnotations
from starlette.applications import Starlette
from starlette.types import ASGIApp

from palimpsest.ops.distribution import program_version
from palimpsest.ops.library.methods import Methods
from palimpsest.ops.mcp.teaching_tools import NOWHERE_ELSE, AgentPlace, TeachingTools
from palimpsest.ops.mcp.tools import MemoryTools, told_errors
from palimpsest.ops.service.connections import (
    BACKLOG,
    ConnectionLimits,
    protocol,
    with_file_descriptors,
)
from palimpsest.schemas.commands import Actor

HOST = "127.0.0.1"
PATH = "/mcp"
AGENT = Actor(id="mcp", type="agent")
INSTRUCTIONS = (
    "Long-term memory of earlier conversations. Look into it (search_memory, get_context) before"
    " you answer what they may have settled, and remember_fact what later ones will need. Quote a"
    " memory's id when you correct, confirm or forget it."
)
READING = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADDING = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
CHANGING = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)


def _everybody(_: str) -> None:
    """Whoever reaches the server may use every tool."""


def memory_server(
    memory: Callable[[], Methods],
    agent: AgentPlace = NOWHERE_ELSE,
    check: Callable[[str], None] = _everybody,
) -> MCPServer:
    """The server of all tools over the scope of the memory that `memory` gives for each call,
    and those that `agent` has beside it; `check` is given a tool's name before, and raises
    RequestError where it may not be used."""
    server: MCPServer = MCPServer(
        "palimpsest",
        instructions=INSTRUCTIONS,
        version=program_version(),
        log_level="ERROR",
    )
    tools, teaching = MemoryTools(memory), TeachingTools(memory, agent)
    for tool, about in (
        (tools.search_memory, READING),
        (tools.get_context, READING),
        (tools.remember_fact, ADDING),
        (tools.correct_fact, CHANGING),
        (tools.confirm_fact, ADDING),
        (tools.forget_fact, CHANGING),
        (tools.get_entity_info, READING),
        (tools.memory_stats, READING),
        (tools.explain_fact, READING),
        (tools.weak_facts, READING),
        (teaching.update_short_term_memory, ADDING),
        (teaching.create_long_term_memory, ADDING),
        (teaching.update_long_term_memory, CHANGING),
    ):
        server.add_tool(told_errors(tool, check), annotations=about)
    return server


async def serve_stdio(memory: Methods, agent: AgentPlace = NOWHERE_ELSE) -> None:
    """Answer the client on standard input and output until it closes them."""
    logging.captureWarnings(True)
    async with memory:
        await memory_server(lambda: memory, agent).run_stdio_async()


async def serve_http(
    memory: Methods,
    listener: socket.socket,
    on_ready: Callable[[str], None],
    agent: AgentPlace = NOWHERE_ELSE,
    guarded: Callable[[ASGIApp], ASGIApp] | None = None,
    check: Callable[[str], None] = _everybody,
) -> None:
    """Answer clients on a socket until SIGTERM or Ctrl-C. `on_ready` is told the address.

    Without `guarded` it answers this machine alone; `guarded` puts around the server what checks
    hosts and callers instead."""
    with listener:
        async with memory:
            server = memory_server(lambda: memory, agent, check)
            app: ASGIApp = http_app(server, checks_hosts=guarded is None)
            if guarded is not None:
                app = guarded(app)
            config = uvicorn.Config(
                app,
                http=protocol(with_file_descriptors(ConnectionLimits())),
                backlog=BACKLOG,
                ws="none",
                log_level="error",
                access_log=False,
                server_header=False,
            )
            running = uvicorn.Server(config)
            serving = asyncio.create_task(running.serve([listener]))
            while not running.started and not serving.done():  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0.005)
            host, port = listener.getsockname()[:2]
            on_ready(f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}")
            await serving


def http_app(server: MCPServer, checks_hosts: bool) -> Starlette:
    """The server over streamable HTTP. Every request stands for itself: none goes on in a session
    that somebody else began."""
    return server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        host=HOST,
        transport_security=None
        if checks_hosts
        else TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
