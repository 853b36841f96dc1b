"""mcp: tools for agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from palimpsest.ops.cli.common import Cli, command, not_done, warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from palimpsest.ops.library.memory import AsyncMemory
    from palimpsest.ops.mcp.teaching_tools import AgentPlace
    from palimpsest.ops.operations.operation import Operation
    from palimpsest.ops.settings.sections import Settings

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Guard(TypedDict, total=False):
    """Protection of a server that other machines can reach."""

    guarded: Callable[[ASGIApp], ASGIApp]
    check: Callable[[type[Operation[Any]]], None]


def register(app: typer.Typer) -> None:
    command(app)(mcp)


def mcp(
    cli: Cli,
    scope: Annotated[
        str, typer.Option("--scope", "-s", help="The memory space of the agent.")
    ] = "default",
    personal_scope: Annotated[
        str | None, typer.Option(help="The memory space of the person it talks to, if different.")
    ] = None,
    lineage: Annotated[
        int | None, typer.Option(min=0, help="Version of its persona, stored with what it creates.")
    ] = None,
    http: Annotated[
        bool, typer.Option("--http", help="Use streamable HTTP instead of stdin and stdout.")
    ] = False,
    host: Annotated[
        str, typer.Option(help="Address for --http; other than loopback, it needs tokens.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for --http; 0 picks a free one.")
    ] = 3851,
) -> None:
    """Serve one memory space to agents as tools, over the Model Context Protocol.

    A desktop client starts this itself: ops/docs/recipes.md has the settings to paste. The stages
    run in the same process; several clients may share a folder. Needs the extra `mcp`.

    Example: palimpsest mcp --scope ana
    """
    import asyncio

    from palimpsest.ops.distribution import install_hint

    try:
        from palimpsest.ops.mcp.server import AGENT, serve_stdio
        from palimpsest.ops.mcp.teaching_tools import AgentPlace
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp_types"):
            raise
        raise not_done(f"the MCP SDK is not installed: {install_hint('mcp')}") from None
    from palimpsest.ops.library.memory import AsyncMemory

    memory = AsyncMemory(scope=scope, loaded=cli.settings, actor=AGENT)
    agent = AgentPlace(personal_scope, lineage)
    if not http:
        asyncio.run(serve_stdio(memory, agent))
        return
    asyncio.run(_serve(memory, agent, cli.settings, host, port))


async def _serve(
    memory: AsyncMemory, agent: AgentPlace, settings: Settings, host: str, port: int
) -> None:
    from palimpsest.ops.mcp.server import serve_http
    from palimpsest.ops.service.server import listening

    http = settings.http.model_copy(update={"host": host, "port": port})
    tokens_file = settings.data_dir / "tokens.json"
    guard: Guard = {}
    if host not in LOOPBACK or tokens_file.exists():
        guard = _guard(memory, settings.model_copy(update={"http": http}))
    try:
        listener = listening(host, port)
    except OSError as error:
        raise not_done(f"cannot listen at {host}:{port}: {error.strerror}; name another") from None
    await serve_http(memory, listener, _print_address, agent, **guard)


def _guard(memory: AsyncMemory, settings: Settings) -> Guard:
    """The protection against callers without a token. Raises SetupError without any token, and
    Exit."""
    try:
        from palimpsest.ops.http.agents import checked, guarded
        from palimpsest.ops.http.rates import Rates
        from palimpsest.ops.http.serving import check_tokens
        from palimpsest.ops.http.tokens import Tokens
    except ModuleNotFoundError as error:
        raise not_done(f"tokens need the extra `serve` ({error.name} is missing)") from None
    tokens = Tokens(settings.data_dir)
    check_tokens(settings, tokens)
    return {
        "guarded": guarded(settings.http, tokens, memory),
        "check": checked(Rates(settings.http)),
    }


def _print_address(address: str) -> None:
    warn(f"serving {address}")
