"""Converts the problem details of a service to the library's errors."""

from __future__ import annotations

from typing import Any, Final

import httpx

from palimpsest.ops.command_kinds import KINDS
from palimpsest.ops.errors import ERRORS, RequestError, UnavailableError
from palimpsest.ops.operations.answers import MemoryChange
from palimpsest.ops.operations.checking import typed
from palimpsest.ops.transport.base import NotDoneError

PROBLEM_TYPE: Final = "application/problem+json"
CONFLICT: Final = 409
AWAY: Final = (502, 503, 504)
"""Statuses of a temporarily unavailable service, or of a proxy in front of it."""


class UnauthorizedError(RequestError):
    """The service needs a token, and does not know this one."""

    code = "unauthorized"


class ForbiddenError(RequestError):
    """The token lacks the permission."""

    code = "forbidden"


class RateLimitedError(RequestError):
    """Too many requests of the kind; more are allowed after `retry_after` seconds."""

    code = "rate_limited"

    def __init__(self, text: str, retry_after: float) -> None:
        super().__init__(text)
        self.retry_after = retry_after


def problem_of(answer: httpx.Response) -> dict[str, Any] | None:
    """The problem details; None for a response without, for example from a proxy."""
    if answer.headers.get("content-type", "").partition(";")[0] != PROBLEM_TYPE:
        return None
    try:
        found = answer.json()
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("code"), str) else None


def error_of(answer: httpx.Response, retry_after: float) -> RequestError:
    """The error of an unsuccessful response."""
    found = problem_of(answer)
    if found is None:
        text = f"{place(answer.url)} answered {answer.status_code} {answer.reason_phrase}"
        if answer.status_code in AWAY:
            return UnavailableError(text)
        return RequestError(f"{text}, which is not how the service answers; check the base_url")
    code, text = str(found["code"]), str(found.get("detail", ""))
    kind = {"invalid": "invalid_request", "command_failed": "failed"}.get(code, code)
    of_command = "command_id" in found or answer.status_code == CONFLICT or code == "frozen"
    if kind in KINDS | {"deleted"} and of_command:
        rows = found.get("changes", [{**found, "status": kind}] if "id" in found else [])
        changes = typed(tuple[MemoryChange, ...], rows)
        return NotDoneError(text, kind, changes, found.get("command_id"))
    match code:
        case "rate_limited":
            return RateLimitedError(text, retry_after)
        case "failed":
            return RequestError(f"the service failed: {text}")
        case _:
            known = _ERRORS.get(code) or ERRORS.get(str(found.get("kind"))) or RequestError
            return known(text)


_ERRORS: Final[dict[str, type[RequestError]]] = {
    **ERRORS,
    **{each.code: each for each in (UnauthorizedError, ForbiddenError)},
}


def place(url: httpx.URL) -> str:
    """The address of a service, without parts that may contain secrets or queries."""
    port = "" if url.port is None else f":{url.port}"
    return f"{url.scheme}://{url.host}{port}{url.path}"
