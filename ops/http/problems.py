"""Errors as problem details (RFC 9457): what is wrong, and what to do.

`KINDS` lists all errors, for the OpenAPI document and the tests.
"""

from __future__ import annotations

import difflib
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from palimpsest.ops.errors import (
    CommandError,
    NotFoundError,
    NotOpenError,
    RequestError,
    UnavailableError,
)
from palimpsest.ops.parts import SetupError
from palimpsest.ops.service.client import NotThereError
from palimpsest.schemas.failures import failures
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.streams.logs.base import LogError

logger = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = 1
"""`Retry-After` of an unavailable service."""
UNPROCESSABLE: Final = 422

CONFLICTS: Final = (
    *("version_conflict", "duplicate_content_hash", "deleted", "not_deleted", "retention_expired"),
    *("pinned", "confirmation_required", "confirm_mismatch", "idempotency_conflict"),
    *("remember_instead", "command_failed"),
)
"""Reasons for refusing a command that a changed request may avoid."""

KINDS: Final[dict[str, tuple[int, str]]] = {
    "malformed": (400, "The request cannot be read"),
    "unauthorized": (401, "A valid token is needed"),
    "forbidden": (403, "That is not allowed"),
    "private": (403, "A privacy level does not let that be remembered"),
    "sql_invalid": (400, "The query cannot be run"),
    "sql_refused": (403, "The query is none that only reads the views"),
    "not_found": (404, "There is no such thing"),
    "method_not_allowed": (405, "The route does not know this method"),
    "not_acceptable": (406, "The answer has no such form"),
    "conflict": (409, "The memory is not as the request takes it to be"),
    **dict.fromkeys(CONFLICTS, (409, "The memory is not as the request takes it to be")),
    "too_large": (413, "The request is too large"),
    "unsupported_media_type": (415, "The body is of a type that is not taken here"),
    "misdirected": (421, "The request was meant for another host"),
    "invalid": (UNPROCESSABLE, "The request says something that cannot be done"),
    "pii_rejected": (UNPROCESSABLE, "The text speaks of a secret that cannot be taken out"),
    "sql_too_slow": (UNPROCESSABLE, "The query takes longer than it may"),
    "sql_too_large": (UNPROCESSABLE, "The query needs more than it may"),
    "rate_limited": (429, "Too many requests"),
    "failed": (500, "The service failed"),
    "unavailable": (503, "Nobody can answer now"),
    "frozen": (503, "Memory may not be changed now"),
}
"""Status and title by code."""
_CODES: Final = {status: code for code, (status, _) in reversed(KINDS.items())}
"""The first code with each status."""
FROZEN_SECONDS: Final = 60


class Problem(Exception):
    """An error response. `more` are additional members of it."""

    def __init__(
        self, code: str, detail: str, headers: Mapping[str, str] | None = None, **more: object
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = more


def unavailable(detail: str) -> Problem:
    return Problem("unavailable", detail, {"Retry-After": str(RETRY_SECONDS)})


def answer(problem: Problem) -> JSONResponse:
    """The problem as an HTTP response."""
    status, title = KINDS[problem.code]
    body = {
        "type": f"urn:palimpsest:problem:{problem.code}",
        "title": title,
        "status": status,
        "detail": problem.detail,
        "code": problem.code,
        **problem.more,
    }
    return JSONResponse(body, status, problem.headers, MEDIA_TYPE)


Shown = Callable[[HTTPConnection, Problem], Response]
"""Makes the response to a request that ended in a problem."""


def as_json(_: HTTPConnection, problem: Problem) -> Response:
    """The problem details, for programs."""
    return answer(problem)


def install(app: FastAPI, shown: Shown = as_json) -> None:
    """Makes the application return all errors as problems, as `shown` shows them."""
    # The type checker expects handlers of any exception.
    problems: dict[Any, Any] = {
        Problem: lambda _, error: error,
        RequestError: lambda _, error: of_request(error),
        NotThereError: lambda _, error: unavailable(f"a worker is away: {error}"),
        StoreClosed: lambda _, error: unavailable(str(error)),
        LogError: lambda _, error: unavailable(str(error)),
        SetupError: lambda _, error: unavailable(str(error)),
        RequestValidationError: lambda _, error: _of_validation(error),
        HTTPException: _of_http,
        Exception: _failed,
    }
    for kind, problem_of in problems.items():
        app.add_exception_handler(kind, _handler(problem_of, shown))


def _handler(problem_of: Any, shown: Shown) -> Any:
    async def handle(request: Request, error: Exception) -> Response:
        problem = problem_of(request, error)
        if problem.code == "method_not_allowed" and request.method == "OPTIONS":
            return Response(status_code=204, headers=problem.headers)
        return shown(request, problem)

    return handle


def of_command(error: CommandError) -> Problem:
    """The problem of a refused command."""
    kind: str = error.kind
    code = {"invalid_request": "invalid", "failed": "command_failed"}.get(kind, kind)
    if code == "frozen":
        return Problem(code, str(error), {"Retry-After": str(FROZEN_SECONDS)})
    more: dict[str, object] = {"kind": kind}
    if error.command_id is not None:
        more["command_id"] = error.command_id
    if isinstance(error.answer, dict):
        kept = ("version", "current_version", "duplicate_of", "changes")
        more |= {name: error.answer[name] for name in kept if error.answer.get(name) is not None}
    return Problem(code, str(error), None, **more)


def of_request(error: RequestError) -> Problem:
    """The problem of a request that cannot be answered."""
    if isinstance(error, CommandError):
        return of_command(error)
    if isinstance(error, NotFoundError):
        return Problem("not_found", str(error))
    if isinstance(error, NotOpenError | UnavailableError):
        return unavailable(str(error))
    code = error.code if error.code in KINDS else "invalid"
    return Problem(code, str(error), kind=error.code)


def _of_validation(error: RequestValidationError) -> Problem:
    """What is wrong in which field, without the values."""
    errors = error.errors()
    if any(each["type"] == "json_invalid" for each in errors):
        why = str(errors[0].get("ctx", {}).get("error", "the body ends too early"))
        return Problem("malformed", why)
    found = failures(errors)
    detail = "; ".join(f"{where}: {why}" for where, why in found[:5])
    return Problem("invalid", detail, errors=[{"where": at, "why": why} for at, why in found])


def _of_http(request: Request, error: HTTPException) -> Problem:
    """A request refused by the framework itself."""
    code = _CODES.get(error.status_code, "malformed")
    detail = str(error.detail)
    if detail != HTTPStatus(error.status_code).phrase:
        return Problem(code, detail, error.headers)
    if code == "method_not_allowed":
        # The problem of a method that no route has at this address; `Allow` has those there are.
        path = request.url.path
        here = [route for route in _routes(request) if route.path_regex.match(path)]
        methods = {method for route in here for method in route.methods or ()}
        allowed = ", ".join(
            sorted(methods | {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set()))
        )
        same = [route.path for route in _routes(request) if request.method in (route.methods or ())]
        near = difflib.get_close_matches(path, same, 1)
        meant = f"; did you mean {request.method} {near[0]}?" if near else ""
        why = f"there is no {request.method[:20]} at {path[:200]}, but {allowed}{meant}"
        return Problem("method_not_allowed", why, {"Allow": allowed})
    return Problem(code, _no_route(request) if code == "not_found" else KINDS[code][1])


def _no_route(request: Request) -> str:
    """What is told of an address without a route: the nearest that has one."""
    path = request.url.path
    known = {route.path: sorted(route.methods or ()) for route in _routes(request)}
    near = difflib.get_close_matches(path.lower(), known, 1)
    meant = f"did you mean {known[near[0]][0]} {near[0]}?" if near else "/docs lists all routes"
    return f"there is no route {path[:200]}; {meant}"


def _routes(request: Request) -> list[Route]:
    return list(_flat(request.app.routes))


def _flat(routes: Iterable[BaseRoute]) -> Iterator[Route]:
    """Those of an application and of the routers that it includes."""
    for each in routes:
        if isinstance(each, Route):
            yield each
        elif (included := getattr(each, "original_router", None)) is not None:
            yield from _flat(included.routes)


def _failed(request: Request, error: Exception) -> Problem:
    # Omits path and message, which may contain memories.
    frames = "".join(traceback.format_tb(error.__traceback__))
    name = getattr(request.scope.get("route"), "path", "an unknown route")
    logger.error("%s %s: %s\n%s", request.method, name, type(error).__name__, frames)
    # The server closes the connection then: a client that does not know would be reset.
    return Problem("failed", "see the service's own output", {"Connection": "close"})
