"""The tools as an MCP server, with the official SDK: over stdio, or over streamable HTTP."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from importlib.metadata import version

import uvicorn
from mcp.server import MCPServer
from mcp_types import ToolAnnotations

from palimpsest.ops.library.memory import AsyncMemory
from palimpsest.ops.mcp.teaching_tools import NOWHERE_ELSE, AgentPlace, TeachingTools
from palimpsest.ops.mcp.tools import MemoryTools, told_errors
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


def memory_server(memory: AsyncMemory, agent: AgentPlace = NOWHERE_ELSE) -> MCPServer:
    """The server of all tools over the scope of a memory, and those that `agent` has beside it."""
    server: MCPServer = MCPServer(
        "palimpsest",
        instructions=INSTRUCTIONS,
        version=version("palimpsest"),
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
        server.add_tool(told_errors(tool), annotations=about)
    return server


async def serve_stdio(memory: AsyncMemory, agent: AgentPlace = NOWHERE_ELSE) -> None:
    """Answer the client on standard input and output until it closes them."""
    logging.captureWarnings(True)
    async with memory:
        await memory_server(memory, agent).run_stdio_async()


async def serve_http(
    memory: AsyncMemory,
    listener: socket.socket,
    on_ready: Callable[[str], None],
    agent: AgentPlace = NOWHERE_ELSE,
) -> None:
    """Answer clients on a socket of this machine until SIGTERM or Ctrl-C. `on_ready` is told the
    address."""
    with listener:
        async with memory:
            server_of_tools = memory_server(memory, agent)
            app = server_of_tools.streamable_http_app(streamable_http_path=PATH, host=HOST)
            config = uvicorn.Config(app, log_level="error", access_log=False, server_header=False)
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve([listener]))
            while not server.started and not serving.done():  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0.005)
            on_ready(f"http://{HOST}:{listener.getsockname()[1]}{PATH}")
            await serving
