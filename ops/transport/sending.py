"""Sends HTTP requests, with retries when a response is lost or the service is unavailable."""

from __future__ import annotations

import asyncio
import email.utils
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import httpx

from palimpsest.ops.errors import ERRORS, KINDS, Kind, RequestError, UnavailableError
from palimpsest.ops.service.client import is_loopback
from palimpsest.ops.transport.base import NotDoneError

PROBLEM_TYPE: Final = "application/problem+json"
CONFLICT: Final = 409
AWAY: Final = (502, 503, 504)
"""Statuses of a temporarily unavailable service, or of a proxy in front of it."""


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
        outcome = {**found, "status": kind}
        return NotDoneError(cast("Kind", kind), text, found.get("command_id"), outcome)
    match code:
        case "rate_limited":
            return RateLimitedError(text, retry_after)
        case "failed":
            return RequestError(f"the service failed: {text}")
        case _:
            known = ERRORS.get(code) or ERRORS.get(str(found.get("kind"))) or RequestError
            return known(text)


def place(url: httpx.URL) -> str:
    """The address of a service, without parts that may contain secrets or queries."""
    port = "" if url.port is None else f":{url.port}"
    return f"{url.scheme}://{url.host}{port}{url.path}"


FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
RATE_LIMITED: Final = 429


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A response may take `timeout` seconds; a request is sent up to `attempts` times, within
    `retry_seconds` of the first attempt."""

    timeout: float
    attempts: int
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class Call:
    """An idempotent request: it only reads, or the service executes it once. Its response may take
    `seconds` longer than usual."""

    method: str
    path: str
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    seconds: float = 0.0


def service_url(base_url: str) -> httpx.URL:
    """Parses the URL of a service. Raises RequestError if it is invalid."""
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise RequestError(f"base_url: {error}") from None
    is_port = url.port is None or 0 < url.port < 65_536
    if url.scheme not in ("http", "https") or not url.host or not is_port:
        raise RequestError(
            f"base_url: {base_url!r} is not a valid URL, for example http://127.0.0.1:7245"
        )
    return url


def checked_token(token: str) -> str:
    """Returns the token. Raises RequestError, without the token in its text, if it is malformed."""
    if not token or not all("!" <= each <= "~" for each in token):
        raise RequestError("token: it is empty, or has characters that are not allowed in a token")
    return token


def connected(url: httpx.URL, token: str | None, retries: RetryPolicy) -> httpx.AsyncClient:
    """Creates a client, which belongs to the event loop of its first use."""
    return httpx.AsyncClient(
        base_url=url,
        headers={} if token is None else {"Authorization": f"Bearer {token}"},
        timeout=httpx.Timeout(retries.timeout, pool=None),
        verify=url.scheme == "https",  # plain HTTP need not load certificates
        # A proxy cannot reach this machine's loopback.
        trust_env=not is_loopback(url.host),
    )


async def send(http: httpx.AsyncClient, retries: RetryPolicy, call: Call) -> httpx.Response:
    """Returns the successful response. Raises the error of an unsuccessful one, and
    UnavailableError without a response."""
    began = time.monotonic()
    attempt = 0
    while True:
        attempt += 1
        requested = 0.0
        try:
            answer = await _sent(http, retries, call)
        except httpx.TransportError as error:
            refused = unreachable(http.base_url, error)
        else:
            if answer.is_success:
                return answer
            requested = retry_after(answer.headers)
            refused = error_of(answer, requested)
            if answer.status_code not in (RATE_LIMITED, *AWAY):
                raise refused
        pause = max(requested, backoff(attempt))
        passed = time.monotonic() - began
        if attempt >= retries.attempts or passed + pause > retries.retry_seconds:
            raise refused
        await asyncio.sleep(pause)


async def _sent(http: httpx.AsyncClient, retries: RetryPolicy, call: Call) -> httpx.Response:
    read = retries.timeout + call.seconds
    try:
        request = http.build_request(
            call.method,
            call.path,
            json=call.body,
            content=call.content,
            headers=dict(call.headers),
            timeout=httpx.Timeout(retries.timeout, read=read, pool=None),
        )
    except (ValueError, httpx.InvalidURL) as error:  # half a surrogate pair, NaN, another's header
        raise RequestError(f"the request cannot be sent: {error}") from None
    return await http.send(request)


def unreachable(url: httpx.URL, error: httpx.TransportError) -> RequestError:
    """The error for a missing response. The request may have been executed."""
    why = str(error) or type(error).__name__
    if isinstance(error, httpx.TimeoutException):
        why = f"no answer in time ({type(error).__name__})"
    return UnavailableError(
        f"{place(url)} cannot be reached: {why}; is `palimpsest serve` running?"
    )


def backoff(attempt: int) -> float:
    """Seconds to wait after `attempt` attempts: exponential, with jitter."""
    longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
    return random.uniform(longest / 2, longest)


def retry_after(headers: Mapping[str, str]) -> float:
    """The seconds of the Retry-After header; 0 without one."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdecimal():
        return float(value[:9])
    try:
        at = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    return max(0.0, at.timestamp() - time.time())
