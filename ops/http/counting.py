"""Counts every request that is answered, also those that are refused before their route."""

from __future__ import annotations

import time
from http import HTTPMethod
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palimpsest.ops.http.metrics import Metrics

METHODS: Final = frozenset(HTTPMethod)
UNKNOWN: Final = "other"
"""In place of a method or a route that there is not: a label has few values."""


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

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, told)
        finally:
            route = getattr(scope.get("route"), "path_format", UNKNOWN)
            method = scope["method"] if scope["method"] in METHODS else UNKNOWN
            self._metrics.answered(method, route, status, time.perf_counter() - began)
