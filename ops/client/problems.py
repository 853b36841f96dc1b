"""What the service refuses, as the errors that the library raises."""

from __future__ import annotations

from typing import Any, Final

import httpx

from palimpsest.ops.command_kinds import KINDS
from palimpsest.ops.library.results import NotDoneError
from palimpsest.ops.queries.errors import ERRORS, NotFoundError, RequestError, UnavailableError

PROBLEM_TYPE: Final = "application/problem+json"
AWAY: Final = (502, 503, 504)
"""Statuses of a service, or of what stands before it, that may answer later."""


class UnauthorizedError(RequestError):
    """The service wants a token, and this is none that it knows."""

    code = "unauthorized"


class ForbiddenError(RequestError):
    """The token has not the permission for that."""

    code = "forbidden"


class RateLimitedError(RequestError):
    """Too many requests of the kind; after `retry_after` seconds there may be more."""

    code = "rate_limited"

    def __init__(self, text: str, retry_after: float) -> None:
        super().__init__(text)
        self.retry_after = retry_after


def problem_of(answer: httpx.Response) -> dict[str, Any] | None:
    """The problem details; None for an answer that has none, as that of a proxy."""
    if answer.headers.get("content-type", "").partition(";")[0] != PROBLEM_TYPE:
        return None
    try:
        said = answer.json()
    except ValueError:
        return None
    return said if isinstance(said, dict) and isinstance(said.get("code"), str) else None


def error_of(answer: httpx.Response, retry_after: float) -> RequestError:
    """What an answer that is no success means."""
    said = problem_of(answer)
    if said is None:
        told = f"{place(answer.url)} answered {answer.status_code} {answer.reason_phrase}"
        if answer.status_code in AWAY:
            return UnavailableError(told)
        return RequestError(f"{told}, which is not how the service answers; check the base_url")
    code, text = str(said["code"]), str(said.get("detail", ""))
    kind = {"invalid": "invalid_request", "command_failed": "failed"}.get(code, code)
    if kind in KINDS | {"deleted"} and ("command_id" in said or answer.status_code == 409):
        return NotDoneError(text, kind=kind)
    match code:
        case "frozen":
            return NotDoneError(text, kind=code)
        case "not_found":
            return NotFoundError(text)
        case "unauthorized":
            return UnauthorizedError(text)
        case "forbidden":
            return ForbiddenError(text)
        case "rate_limited":
            return RateLimitedError(text, retry_after)
        case "unavailable":
            return UnavailableError(text)
        case "failed":
            return RequestError(f"the service failed: {text}")
        case _:
            return ERRORS.get(str(said.get("kind")), RequestError)(text)


def place(url: httpx.URL) -> str:
    """Where a service is, without what the address may hold of secrets and questions."""
    port = "" if url.port is None else f":{url.port}"
    return f"{url.scheme}://{url.host}{port}{url.path}"
