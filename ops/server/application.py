"""The application: its routes, its gate, its errors and its OpenAPI document."""

from __future__ import annotations

import base64
import hashlib
import logging
import re
import time
from collections.abc import Mapping
from functools import cache
from http import HTTPMethod
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from markupsafe import Markup, escape
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palimpsest.ops.console.page import rendered, shown, static_files
from palimpsest.ops.console.views import console_routes
from palimpsest.ops.distribution import program_version
from palimpsest.ops.http import (
    answers,
    problems,
    scope_routes,
    turn_routes,
)
from palimpsest.ops.http.answers import Failure
from palimpsest.ops.http.gate import PUBLIC_PATHS, Gate
from palimpsest.ops.http.problems import unavailable
from palimpsest.ops.http.routing import ALWAYS, errors
from palimpsest.ops.http.service import Administrator, Service, ServiceOf
from palimpsest.ops.surfaces.http import api_routes
from palimpsest.ops.telemetry.metrics import Metrics
from palimpsest.streams.runtime import tracing

logger = logging.getLogger(__name__)

watched = APIRouter(tags=["operation"], responses=errors(*ALWAYS))
lives = APIRouter(tags=["operation"], responses=errors("misdirected", "forbidden", "failed"))


@lives.get("/health", response_model=answers.State)
async def health() -> Response:
    """Report that the process answers."""
    return JSONResponse({"status": "ok"})


@lives.get("/ready", response_model=answers.State, responses=errors("unavailable"))
async def ready(service: ServiceOf) -> Response:
    """Report whether requests can be answered: the stores are open and the stages run."""
    why = await service.unready()
    if why is not None:
        raise unavailable(why)
    return JSONResponse({"status": "ok"})


@watched.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"description": "Metrics in the text format of Prometheus, or OpenMetrics"}},
)
async def metrics(service: ServiceOf, _: Administrator, request: Request) -> Response:
    """Return metrics for Prometheus: requests, stages, models, the state of the pipeline."""
    shown, form = await service.metrics.shown(request.headers.get("accept", ""))
    return Response(shown, media_type=form)


DESCRIPTION = """Long-term memory for AI agents. Every answer that is an error has problem details
(RFC 9457). A token, where tokens are in use, is sent as `Authorization: Bearer …`; a scope or a
memory that is not the token's is answered like one that does not exist."""

LARGER: Final = ("/api/documents", "/api/rpc/add_document", "/documents")
"""Routes whose body may be as large as a document."""


def create_app(service: Service) -> FastAPI:
    """Creates the ASGI application of a service."""
    app = _routed()
    app.state.service = service
    problems.install(app, shown)
    app.add_middleware(
        Gate,
        settings=service.settings.http,
        tokens=service.tokens,
        larger=dict.fromkeys(LARGER, service.settings.documents.max_bytes),
        shown=shown,
    )
    app.add_middleware(Counting, metrics=service.metrics)
    app.add_middleware(Heads)
    return app


def _routed() -> FastAPI:
    app = FastAPI(
        title="Palimpsest",
        version=program_version(),
        description=DESCRIPTION,
        # FastAPI's pages load scripts from the network; `documentation` has a page without any.
        docs_url=None,
        redoc_url=None,
    )
    others = (scope_routes.events_api, scope_routes.routes, scope_routes.sql_api)
    for routes in (
        api_routes(),
        turn_routes.routes,
        *others,
        watched,
        lives,
        page,
        console_routes(),
    ):
        app.include_router(routes)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    return _document(_routed())


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, generated once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        parts = document["components"]
        parts["schemas"]["Failure"] = Failure.model_json_schema(mode="serialization")
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if path not in PUBLIC_PATHS:
                    operation["security"] = [{"token": []}]
                if method == "get" and not _may_be_invalid(operation):
                    operation["responses"].pop("422", None)
        app.openapi_schema = document
    return app.openapi_schema


def _may_be_invalid(operation: dict[str, Any]) -> bool:
    """Whether a request has parameters that can be invalid: those in its path only name what exists
    or not."""
    bounded = [
        parameter
        for parameter in operation.get("parameters", ())
        if parameter["in"] != "path" or len(parameter["schema"].keys() - {"type", "title"}) > 0
    ]
    return bool(bounded) or "requestBody" in operation


class Heads:
    """An ASGI middleware around all others: HEAD is answered as GET is, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})  # ends a stream, too

        await self._app({**scope, "method": "GET"}, receive, without_body)


# Counts every response, including those of requests refused before their route.

METHODS: Final = frozenset(HTTPMethod)
UNKNOWN: Final = "other"
"""Replaces an unknown method or route, so that a label has few values."""


class Counting:
    """An ASGI middleware around all others."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500
        headers = dict(scope["headers"])
        tracing.caller.set(tracing.valid(headers.get(tracing.HEADER.encode())))

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            route = getattr(scope.get("route"), "path_format", UNKNOWN)
            method = scope["method"] if scope["method"] in METHODS else UNKNOWN
            seconds = time.perf_counter() - began
            self._metrics.answered(method, route, status, seconds)
            if logger.isEnabledFor(logging.INFO):
                told = {
                    "method": method,
                    "route": route,
                    "status": status,
                    "seconds": round(seconds, 6),
                }
                logger.info("request", extra=told)


# ---- the documentation page: the OpenAPI document, without scripts or external resources ----
Json = Mapping[str, Any]

page = APIRouter(tags=["operation"], responses=errors("misdirected", "forbidden", "failed"))

STYLE: Final = "docs.css"
_CODE: Final = re.compile(r"`([^`]+)`")
_BOUNDS: Final = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "minLength": "characters at least",
    "maxLength": "characters at most",
    "default": "else",
}


@page.get("/docs", response_class=HTMLResponse)
async def docs(request: Request) -> Response:
    """This documentation, for people."""
    shown = html(request.app.openapi(), request.scope.get("root_path", ""))
    headers = {"Content-Security-Policy": _policy(), "Referrer-Policy": "no-referrer"}
    return HTMLResponse(shown, headers=headers)


@cache
def _policy() -> str:
    digest = base64.b64encode(hashlib.sha256(static_files()[STYLE]).digest()).decode()
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        f" style-src 'sha256-{digest}'"
    )


def html(document: Json, root: str = "") -> str:
    """Renders a document; `root` is the path prefix of the service."""
    groups: dict[str, list[tuple[str, str, Json]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    return rendered(
        "docs.html",
        info=document["info"],
        groups=groups,
        schemas=document["components"]["schemas"],
        root=root,
        style=Markup(static_files()[STYLE].decode()),  # noqa: S704 (our own file)
        type=_type,
        text=lambda text: Markup(_CODE.sub(r"<code>\1</code>", escape(text or ""))),  # noqa: S704 (escaped)
    )


def _type(schema: Json | None) -> Markup:
    """The type of a value as HTML, with links to the schemas that it names."""
    schema = schema or {}
    if "$ref" in schema:
        return Markup('<a href="#{0}">{0}</a>').format(schema["$ref"].rpartition("/")[2])
    for joined in ("anyOf", "oneOf", "allOf"):
        if joined in schema:
            return Markup(" or ").join(dict.fromkeys(map(_type, schema[joined])))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return Markup(" or ").join(Markup("<code>{}</code>").format(value) for value in values)
    if schema.get("type") == "array":
        return Markup("list of {}").format(_type(schema.get("items")))
    format_name = str(schema.get("format", schema.get("type", "any")))
    bounds = [f"{word} {schema[name]}" for name, word in _BOUNDS.items() if name in schema]
    return Markup(", ").join([format_name, *bounds])
