"""The application: its routes, its gate, its errors and its OpenAPI document."""

from __future__ import annotations

import time
from http import HTTPMethod
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palimpsest.ops.distribution import program_version
from palimpsest.ops.http import (
    documentation,
    event_routes,
    operation_routes,
    problems,
    scope_routes,
    sql_routes,
    turn_routes,
)
from palimpsest.ops.http.answers import Failure
from palimpsest.ops.http.gate import PUBLIC_PATHS, Gate
from palimpsest.ops.http.metrics import Metrics
from palimpsest.ops.http.service import Service
from palimpsest.ops.surfaces.http import api_routes

DESCRIPTION = """Long-term memory for AI agents. Every answer that is an error has problem details
(RFC 9457). A token, where tokens are in use, is sent as `Authorization: Bearer …`; a scope or a
memory that is not the token's is answered like one that does not exist."""

LARGER: Final = ("/api/documents", "/api/rpc/add_document")
"""Routes whose body may be as large as a document."""


def create_app(service: Service) -> FastAPI:
    """Creates the ASGI application of a service."""
    app = _routed()
    app.state.service = service
    problems.install(app)
    app.add_middleware(
        Gate,
        settings=service.settings.http,
        tokens=service.tokens,
        larger=dict.fromkeys(LARGER, service.settings.documents.max_bytes),
    )
    app.add_middleware(Counting, metrics=service.metrics)
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
    app.include_router(api_routes())
    for group in (turn_routes, event_routes, scope_routes, sql_routes):
        app.include_router(group.routes)
    app.include_router(operation_routes.watched)
    app.include_router(operation_routes.lives)
    app.include_router(documentation.page)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    return _document(_routed())


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, generated once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
        )
        parts = document["components"]
        parts["schemas"]["Failure"] = Failure.model_json_schema(mode="serialization")
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for operation in operations.values():
                if path not in PUBLIC_PATHS:
                    operation["security"] = [{"token": []}]
                if not _may_be_invalid(operation):
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
            self._metrics.answered(method, route, status, time.perf_counter() - began)
