"""serve: the HTTP service. tokens: its access tokens. gateway: one address for reads from all
workers of a cluster."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from palimpsest.ops.operations.operation import Permission
from palimpsest.ops.terminal.common import (
    AsJson,
    Cli,
    command,
    echo,
    not_done,
    print_json,
    show,
    usage_error,
    warn,
)

if TYPE_CHECKING:
    from palimpsest.ops.http.tokens import Token
    from palimpsest.ops.library.memory import AsyncMemory
    from palimpsest.ops.mcp.tools import AgentPlace
    from palimpsest.ops.settings.sections import Settings

if TYPE_CHECKING:
    PermissionName = Permission
else:  # typer reads a list of choices by their enumeration only
    PermissionName = StrEnum("Permission", {each: each for each in get_args(Permission)})

TURN_SECONDS = 0.0005
STOP_SECONDS = 60.0
"""What a stop may take in all: of the stages, of requests under way, of closing the stores."""


def register(app: typer.Typer) -> None:
    command(app)(serve)
    tokens = typer.Typer(help="Manage the access tokens of the HTTP service.", no_args_is_help=True)
    for function, name in ((create, "create"), (list_, "list"), (revoke, "revoke")):
        command(tokens, name)(function)
    app.add_typer(tokens, name="tokens")
    command(app)(mcp)


def serve(
    cli: Cli,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; by default http.host.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port; by default http.port. 0 picks a free one."),
    ] = None,
) -> None:
    """Serve the memory over HTTP, and run the stages.

    The console is at `/`. Listens on this machine only, and without tokens is open to all its
    users; any other address needs tokens. /openapi.json describes the routes. On Kafka it runs no
    stages and forwards requests to the workers. SIGTERM or Ctrl-C finishes running requests. Needs
    the extra `serve`.

    Example: palimpsest serve --port 7245
    """

    import asyncio

    from palimpsest.ops.distribution import install_hint
    from palimpsest.ops.parts import SetupError

    try:
        import fastapi  # noqa: F401
        import jinja2  # noqa: F401
    except ModuleNotFoundError:
        raise SetupError(f"this needs FastAPI and Jinja: {install_hint('serve')}") from None
    options = [("http.host", host), ("http.port", port)]
    flags = tuple(f"{name}={value}" for name, value in options if value is not None)
    asyncio.run(_serve(Cli(cli.data_dir, cli.config, (*cli.overrides, *flags)).settings))


def serve_console(settings: Settings) -> None:
    """Serves, and opens the console in the browser of this machine."""
    import asyncio
    import webbrowser

    asyncio.run(_serve(settings, webbrowser.open))


async def _serve(settings: Settings, opened: Callable[[str], object] | None = None) -> None:
    """`opened` is called with the address when requests are answered."""
    import asyncio

    from palimpsest.ops.cli.running import on_outage
    from palimpsest.ops.server.serving import serving

    # What computes for others takes turns with the event loop, each turn this long.
    sys.setswitchinterval(TURN_SECONDS)

    def stop() -> None:
        up.stop()
        _end_anyway()

    async with serving(settings) as up:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        if up.app is not None:
            up.app.models.on_outage = on_outage(up.app, once=False)
            for warning in up.app.warnings:
                warn(warning)
            if up.app.gate.unusable is not None:
                warn(f"extraction waits, all else runs: {up.app.gate.unusable}")
        warn(f"serving at {up.address}; Ctrl-C stops")
        if opened is not None:
            loop.run_in_executor(None, opened, up.address)
        try:
            await up.run()
        finally:
            _end_anyway()


def _end_anyway() -> None:
    """Ends the process after `STOP_SECONDS`, even if a thread hangs or a connection cannot be
    closed; the next start recovers as after a power failure."""

    def end() -> None:
        sys.stderr.write(f"the service did not stop within {STOP_SECONDS:g} s; it is ended\n")
        sys.stderr.flush()
        os._exit(1)

    timer = threading.Timer(STOP_SECONDS, end)
    timer.daemon = True
    timer.start()


def create(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="Name of the token, shown in lists.")],
    scope: Annotated[
        list[str],
        typer.Option("--scope", "-s", help="A memory space, or its prefix and *; repeatable."),
    ],
    permission: Annotated[
        list[PermissionName] | None,
        typer.Option("--permission", "-p", help="Repeatable; by default recall and remember."),
    ] = None,
    actor: Annotated[
        Literal["human", "agent"],
        typer.Option(help="Its user: an agent may not change protected memories."),
    ] = "agent",
    days: Annotated[
        float | None, typer.Option(min=0.0, help="Number of days until it expires.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Create a token for the HTTP service. It is shown once; only its hash is stored.

    `--scope '*'` grants all scopes, which sql and admin need.

    Example: palimpsest tokens create helpdesk --scope support --permission recall
    """
    from palimpsest.ops.http.tokens import Tokens
    from palimpsest.ops.parts import utc_now

    if not name.strip() or not all(each.strip() for each in scope):
        raise usage_error("name and scopes must not be empty")
    allowed: list[Permission] = [*dict.fromkeys(permission or ("recall", "remember"))]
    of_all = [each for each in allowed if each in ("sql", "admin")]
    if of_all and "*" not in scope:
        named = " and ".join(of_all)
        raise usage_error(f"for all scopes only: {named}; give --scope '*', or leave it out")
    ends = None if days is None else utc_now() + timedelta(days=days)
    token, secret = Tokens(cli.settings.data_dir).create(
        name, scope, allowed, actor, utc_now(), ends
    )
    if json:
        print_json({**_as_json(token), "token": secret})
        return
    warn(f"token {name} for {', '.join(scope)} may {', '.join(allowed)}; it is shown only now")
    echo(secret)


def list_(cli: Cli, json: AsJson = False) -> None:
    """List the tokens: their scopes and permissions.

    Example: palimpsest tokens list
    """
    from palimpsest.ops.http.tokens import Tokens

    records = [_as_json(token) for token in Tokens(cli.settings.data_dir).all()]
    if json:
        print_json({"tokens": records})
        return
    from palimpsest.ops.terminal.tables import print_listed

    names = ("name", "id", "scopes", "permissions", "actor", "created_at", "expires_at")
    print_listed(names, records, "there are no tokens")


def revoke(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="Name or id of the token.")],
    json: AsJson = False,
) -> None:
    """Revoke a token; a running service refuses it at once.

    Example: palimpsest tokens revoke helpdesk
    """
    from palimpsest.ops.http.tokens import Tokens

    token = Tokens(cli.settings.data_dir).revoke(name)
    show(json, {"revoked": _as_json(token)}, f"token {token.name} is revoked")


def _as_json(token: Token) -> dict[str, object]:
    return {
        "id": token.id,
        "name": token.name,
        "scopes": list(token.scopes),
        "permissions": list(token.permissions),
        "actor": token.actor,
        "created_at": token.created_at.isoformat(),
        "expires_at": token.expires_at.isoformat() if token.expires_at else None,
    }


def gateway(cli: Cli) -> None:
    """Serve queries at one address, each answered by the owner of the scope's partition.

    Listens at kafka.listen and kafka.listen_port; has no store. On an address other than loopback
    it needs kafka.worker_token, the secret that callers send as a bearer token.

    Example: palimpsest gateway --set log.kind=kafka --set kafka.listen_port=8765
    """
    import asyncio

    settings = cli.settings
    if settings.log.kind != "kafka":
        raise usage_error("the gateway is for workers on Kafka; add --set log.kind=kafka")
    asyncio.run(_serve_gateway(settings))


async def _serve_gateway(settings: Settings) -> None:
    import asyncio

    from palimpsest.ops.service.routing import RoutedQueries
    from palimpsest.ops.worker.local import listen_address, local_interface

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    folder = settings.data_dir / "gateway"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    routed = RoutedQueries(settings, settings.cluster.partitions)
    try:
        async with local_interface(routed, folder, listen_address(settings)) as announced:
            warn(f"the gateway listens at {settings.kafka.listen}:{announced.port}")
            await stop.wait()
    finally:
        await routed.close()


# ---- agents ----
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
    ] = 7246,
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
        from palimpsest.ops.mcp.tools import AgentPlace
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
    asyncio.run(_serve_mcp(memory, agent, cli.settings, host, port))


async def _serve_mcp(
    memory: AsyncMemory, agent: AgentPlace, settings: Settings, host: str, port: int
) -> None:
    from palimpsest.ops.mcp.server import serve_http
    from palimpsest.ops.service.client import is_loopback
    from palimpsest.ops.service.server import listening, why_not_listening

    http = settings.http.model_copy(update={"host": host, "port": port})
    is_guarded = not is_loopback(host) or (settings.data_dir / "tokens.json").exists()
    guards: tuple[Any, ...] = ()
    if is_guarded:
        guards = _guards(memory, settings.model_copy(update={"http": http}))
        agent = replace(agent, sees=_caller_sees)
    try:
        listener = listening(host, port)
    except OSError as error:
        raise not_done(why_not_listening(host, port, error)) from None
    await serve_http(memory, listener, lambda at: warn(f"serving {at}"), agent, *guards)


def _caller_sees(scope: str) -> bool:
    from palimpsest.ops.server.serving import current_caller

    return current_caller().sees(scope)


def _guards(memory: AsyncMemory, settings: Settings) -> tuple[Any, ...]:
    """The protection against callers without a token, as arguments of `serve_http`. Raises
    SetupError without any token, and Exit."""
    try:
        from palimpsest.ops.http.service import Rates
        from palimpsest.ops.http.tokens import Tokens
        from palimpsest.ops.server.serving import check_tokens, checked, guarded
    except ModuleNotFoundError as error:
        raise not_done(f"tokens need the extra `serve` ({error.name} is missing)") from None
    tokens = Tokens(settings.data_dir)
    check_tokens(settings, tokens)
    return guarded(settings.http, tokens, memory), checked(Rates(settings.http))
