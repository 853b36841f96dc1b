"""A route that parses its body strictly, and its errors in the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from palimpsest.ops.http.problems import KINDS, MEDIA_TYPE, Problem

JSON_TYPE: Final = "application/json"
NDJSON_TYPE: Final = "application/x-ndjson"


class _StrictRequest(Request):
    """Refuses NaN and Infinity, which are not JSON."""

    async def json(self) -> Any:
        return json.loads(await self.body(), parse_constant=no_constant)


def no_constant(name: str) -> float:
    raise json.JSONDecodeError(f"{name} is no JSON", name, 0)


class StrictRoute(APIRoute):
    """Accepts only JSON bodies: a foreign page could send other types without a preflight
    request."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            if self.body_field is not None:
                media_type(request, JSON_TYPE)
            return await handle(_StrictRequest(request.scope, request.receive))

        return handler


def media_type(request: Request, *taken: str) -> str:
    """Returns the media type of the body, or the first of `taken` without a body. Raises Problem
    for any other type."""
    header = request.headers.get("content-type")
    has_body = request.headers.get("content-length", "0") != "0" or (
        "transfer-encoding" in request.headers
    )
    is_absent = header is None and not has_body
    found = taken[0] if is_absent else (header or "").partition(";")[0].strip()
    if found.lower() not in taken:
        raise Problem("unsupported_media_type", f"send the body as {' or '.join(taken)}")
    return found.lower()


def errors(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The responses of these problems in the OpenAPI document."""
    return {
        KINDS[code][0]: {
            "description": KINDS[code][1],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Failure"}}},
        }
        for code in codes
    }


ALWAYS: Final = (
    *("unauthorized", "forbidden", "misdirected", "invalid", "rate_limited", "failed"),
    "unavailable",
)
WITH_BODY: Final = ("malformed", "too_large", "unsupported_media_type")


def router(*tags: str) -> APIRouter:
    """A router for a group of routes below `/api`."""
    return APIRouter(
        prefix="/api", tags=[*tags], route_class=StrictRoute, responses=errors(*ALWAYS)
    )
