"""Sending requests: again where an answer was lost or the service is away, at most so often."""

from __future__ import annotations

import asyncio
import email.utils
import ipaddress
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpx

from palimpsest.ops.client.calls import Call, given
from palimpsest.ops.client.problems import AWAY, error_of, place
from palimpsest.ops.queries.errors import RequestError, UnavailableError

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
RATE_LIMITED: Final = 429


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited for an answer, and how often a request is sent, at most while not more
    than `retry_seconds` have passed since it was sent first."""

    timeout: float
    attempts: int
    retry_seconds: float


def service_url(base_url: str) -> httpx.URL:
    """Raises RequestError for what is no address of a service."""
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise RequestError(f"base_url: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise RequestError(f"base_url: {base_url!r} is no address like http://127.0.0.1:3850")
    return url


def checked_token(token: str) -> str:
    """Raises RequestError, without the token, for what cannot be sent as one."""
    if not token or not all("!" <= each <= "~" for each in token):
        raise RequestError("token: it is empty, or has characters that no token has")
    return token


def connected(url: httpx.URL, token: str | None, patience: Patience) -> httpx.AsyncClient:
    """For the event loop in which it is used first."""
    return httpx.AsyncClient(
        base_url=url,
        headers={} if token is None else {"Authorization": f"Bearer {token}"},
        timeout=httpx.Timeout(patience.timeout, pool=None),
        verify=url.scheme == "https",  # else no certificates are read
        # No proxy leads to this machine.
        trust_env=not _is_this_machine(url.host),
    )


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def send(http: httpx.AsyncClient, patience: Patience, call: Call) -> httpx.Response:
    """The answer, when it is a success. Raises the error that it means, and UnavailableError where
    there is none."""
    began = time.monotonic()
    attempt = 0
    while True:
        attempt += 1
        asked = 0.0
        try:
            answer = await _sent(http, patience, call)
        except httpx.TransportError as error:
            refused = unreachable(http.base_url, error)
        else:
            if answer.is_success:
                return answer
            asked = retry_after(answer.headers)
            refused = error_of(answer, asked)
            if answer.status_code not in (RATE_LIMITED, *AWAY):
                raise refused
        pause = max(asked, backoff(attempt))
        passed = time.monotonic() - began
        if attempt >= patience.attempts or passed + pause > patience.retry_seconds:
            raise refused
        await asyncio.sleep(pause)


async def _sent(http: httpx.AsyncClient, patience: Patience, call: Call) -> httpx.Response:
    read = patience.timeout + call.seconds
    try:
        request = http.build_request(
            call.method,
            call.path,
            params=given(call.params),
            json=call.body,
            content=call.content,
            headers=dict(call.headers),
            timeout=httpx.Timeout(patience.timeout, read=read, pool=None),
        )
    except (ValueError, httpx.InvalidURL) as error:  # half a surrogate pair, NaN, another's header
        raise RequestError(f"the request cannot be sent: {error}") from None
    return await http.send(request)


def unreachable(url: httpx.URL, error: httpx.TransportError) -> RequestError:
    """Why there is no answer. What was sent may have been done."""
    why = str(error) or type(error).__name__
    if isinstance(error, httpx.TimeoutException):
        why = f"no answer in time ({type(error).__name__})"
    return UnavailableError(
        f"{place(url)} cannot be reached: {why}; is `palimpsest serve` running?"
    )


def backoff(attempt: int) -> float:
    """Seconds to wait after that many attempts: each time twice as long, and not as others do."""
    longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
    return random.uniform(longest / 2, longest)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that an answer asks to wait, 0 where it asks for none."""
    told = headers.get("retry-after", "").strip()
    if told.isascii() and told.isdecimal():
        return float(told[:9])
    try:
        at = email.utils.parsedate_to_datetime(told)
    except ValueError:
        return 0.0
    return max(0.0, at.timestamp() - time.time())
