"""What takes long to make, and what all tests of a process can share: sessions of models, routes of
the HTTP service, tools of agents."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx


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
    application: Any = importlib.import_module("palimpsest.ops.http.application")
    catalogue: Any = importlib.import_module("palimpsest.ops.operations.catalogue")
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
    application: Any = importlib.import_module("palimpsest.ops.http.application")

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
