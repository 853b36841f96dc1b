"""What takes long to make, and what all tests of a process can share: sessions of models, routes of
the HTTP service, tools of agents, expressions of the rules, commands."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import importlib
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

TURNS = Path(__file__).parent / "data" / "turns.jsonl"


def share_sessions() -> None:
    """Load each model once, which takes a quarter of a second of processor: it runs in the thread
    of its caller."""
    for name in ("late_interaction", "cross_encoder"):
        module: Any = importlib.import_module(f"palimpsest.streams.models.{name}")
        module.onnx_session = _onnx_session()


@functools.cache
def _onnx_session() -> Callable[[Path], Any]:
    module: Any = importlib.import_module("palimpsest.streams.models.late_interaction")
    cached: Callable[[Path], Any] = functools.cache(module.onnx_session)
    return cached


def load_models() -> None:
    """Before forks, which have the model then."""
    module: Any = importlib.import_module("palimpsest.streams.models.late_interaction")
    with contextlib.suppress(Exception):  # the model is not installed
        module.onnx_session(module.model_folder())


@functools.cache
def share_routes() -> None:
    """Make the routes once, which takes most of a second of processor: what they do they find with
    the application of a request."""
    application: Any = importlib.import_module("palimpsest.ops.server.application")
    catalogue: Any = importlib.import_module("palimpsest.ops.surfaces.catalogue")
    made = functools.cache(lambda *operations, make=application._routed: make())

    def routed() -> Any:
        app = copy.copy(made(*catalogue.OPERATIONS.values()))
        app.state, app.router = type(app.state)(), copy.copy(app.router)
        app.router.routes = [*app.router.routes]  # an application gets others beside them
        app.router.middleware_stack = app.router.app
        app.user_middleware, app.exception_handlers = [], {**app.exception_handlers}
        return app

    application._routed = routed


def load_routes() -> None:
    """Before forks: a part is made by the first request."""
    application: Any = importlib.import_module("palimpsest.ops.server.application")

    async def ask() -> None:
        transport = httpx.ASGITransport(application._routed())
        async with httpx.AsyncClient(transport=transport, base_url="http://nowhere") as client:
            await client.get("/nothing")

    asyncio.run(ask())


@functools.cache
def share_tools() -> None:
    """Make the schemas of each tool for agents once, which takes a third of the start of a service:
    they are of its signature, whatever its memory."""
    try:
        base: Any = importlib.import_module("mcp.server.mcpserver.tools.base")
    except ImportError:  # an extra
        return
    made: dict[tuple[str, ...], Any] = {}
    usual = base.Tool.from_function

    def from_function(function: Callable[..., Any], **given: Any) -> Any:
        key = (function.__name__, str(function.__doc__), *map(repr, given.items()))
        key += (repr(inspect.signature(function)),)
        if key not in made:
            made[key] = usual(function, **given)
        return made[key].model_copy(update={"fn": function})

    base.Tool.from_function = from_function


def load_tools() -> None:
    """Before forks."""
    with contextlib.suppress(ImportError):  # an extra
        server: Any = importlib.import_module("palimpsest.ops.mcp.server")
        server.memory_server(lambda: None)


def load_rules() -> None:
    """Before forks: to compile the expressions that read a turn takes a third of a run over a few
    turns, and each is compiled when the first sentence needs it."""
    model: Any = importlib.import_module("palimpsest.streams.rules.model")
    base: Any = importlib.import_module("palimpsest.streams.models.base")
    sensitive: Any = importlib.import_module("palimpsest.streams.sensitive.detection")
    for line in TURNS.read_text(encoding="utf-8").splitlines():
        said = json.loads(line)
        sensitive.redacted(said["turn"])
        subject = {"content": said["turn"], "speaker": said["speaker"], "occurred_at": "2026-03-01"}
        model.answer(base.Prompt("extract", "", "", {}, 0, subject))


def load_messages() -> None:
    """Before forks: what reads and writes a message is made by the first one of its kind."""
    codec: Any = importlib.import_module("palimpsest.schemas.codec")
    for schema in codec.SCHEMAS:
        codec.adapter(schema).rebuild()


def load_commands() -> None:
    """Before forks: what asks for help, or for a command of a group, prepares all commands."""
    typer_main: Any = importlib.import_module("typer.main")
    program: Any = importlib.import_module("palimpsest.ops.cli.main")
    typer_main.get_command = functools.cache(typer_main.get_command)
    typer_main.get_command(program.whole())
