"""mcp: tools for agents."""

from __future__ import annotations

from typing import Annotated

import typer

from palimpsest.ops.cli.common import Cli, command, complain, not_done


def register(app: typer.Typer) -> None:
    command(app)(mcp)


def mcp(
    cli: Cli,
    scope: Annotated[
        str, typer.Option("--scope", "-s", help="The memory space that the agent has.")
    ] = "default",
    personal_scope: Annotated[
        str | None, typer.Option(help="The memory space of the person it speaks with, if another.")
    ] = None,
    lineage: Annotated[
        int | None, typer.Option(min=0, help="Lineage of its persona, kept with what it creates.")
    ] = None,
    http: Annotated[
        bool, typer.Option("--http", help="Over streamable HTTP instead of stdin and stdout.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Its port on 127.0.0.1; 0 is any free one.")
    ] = 3851,
) -> None:
    """Give agents tools over one memory space, by the Model Context Protocol.

    A desktop client starts this itself: ops/docs/recipes.md has the settings to paste. The stages
    run in the same process; several clients may use one folder. Needs the extra `mcp`.

    Example: palimpsest mcp --scope ana
    """
    import asyncio

    try:
        from palimpsest.ops.mcp.server import AGENT, HOST, serve_http, serve_stdio
        from palimpsest.ops.mcp.teaching_tools import AgentPlace
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp_types"):
            raise
        raise not_done("the MCP SDK is not installed: pip install 'palimpsest[mcp]'") from None
    from palimpsest.ops.library.memory import AsyncMemory
    from palimpsest.ops.service.server import listening

    memory = AsyncMemory(scope=scope, loaded=cli.settings, actor=AGENT)
    agent = AgentPlace(personal_scope, lineage)
    if not http:
        asyncio.run(serve_stdio(memory, agent))
        return
    try:
        listener = listening(HOST, port)
    except OSError as error:
        raise not_done(f"cannot listen on port {port}: {error.strerror}; name another") from None
    asyncio.run(serve_http(memory, listener, _tell_where, agent))


def _tell_where(address: str) -> None:
    complain(f"serving {address}")
