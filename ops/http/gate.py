"""Checks every request before its route: it is for this host, not from a foreign page, from an
authorized caller, and its body is not too large."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palimpsest.ops.http.problems import Problem, Shown, as_json
from palimpsest.ops.http.tokens import LOCAL, Caller, Tokens
from palimpsest.ops.parts import SetupError
from palimpsest.ops.service.client import is_loopback
from palimpsest.ops.service.server import GUARDED
from palimpsest.ops.settings.sections import HttpSettings

PUBLIC_PATHS: Final = frozenset({"/health", "/ready", "/openapi.json", "/docs"})
"""Paths open to everyone who can reach the service."""

SIGN_IN: Final = "/sign-in"
STATIC: Final = "/static/"
INGEST: Final = "/api/ingest"
COOKIE: Final = "palimpsest_token"
"""Carries the token of a browser that signed in."""
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

LOOK_SECONDS: Final = 1.0
"""Interval between checks that a token is still valid while its request is answered."""
BYTES_PER_SECOND: Final = 16 * 1024


class Gate:
    """An ASGI middleware. Without tokens, a service on loopback is open to all its callers; once a
    token was created, it requires one, even after the last is revoked."""

    def __init__(
        self,
        app: ASGIApp,
        settings: HttpSettings,
        tokens: Tokens,
        larger: Mapping[str, int],
        shown: Shown = as_json,
    ) -> None:
        """`larger`: maximum bytes of a body for paths with a larger limit. `shown` answers what is
        refused."""
        self._shown = shown
        self._larger = larger
        self._app = app
        self._settings = settings
        self._tokens = tokens
        self._open = is_loopback(settings.host)
        self._is_local = self._open
        self._hosts = frozenset(settings.allowed_hosts)
        self._under_way: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        send = _guarded(send)
        caller: Caller | None = None
        try:
            self._check_host(headers)
            # a page of another site may have had its reader's browser send the request
            origin = headers.get("origin")
            if origin is not None and urlsplit(origin).netloc != headers.get("host"):
                raise Problem("forbidden", "requests of pages of other sites are not answered")
            if not is_public(scope["path"]):
                caller = scope.setdefault("state", {})["caller"] = self._caller(scope, headers)
                if self._under_way[caller.id] >= self._settings.requests_per_token:
                    raise Problem(
                        "rate_limited",
                        f"{self._settings.requests_per_token} requests of this token are answered"
                        " already (setting http.requests_per_token); again when one of them is"
                        " done",
                        {"Retry-After": "1"},
                    )
            limit = self._limit(scope["path"])
            length = headers.get("content-length", "")
            if length.isdecimal() and int(length[:19]) > limit.size:
                raise Problem("too_large", str(limit))
        except Problem as problem:
            await self._shown(HTTPConnection(scope), problem)(scope, receive, send)
            return
        limited_receive = limited(receive, limit, self._settings.body_seconds)
        if caller is None:
            await self._app(scope, limited_receive, send)
            return
        self._under_way[caller.id] += 1
        try:
            await self._app(scope, limited_receive, self._while_valid(caller, send))
        except RevokedError:
            pass  # the response is cut off and its connection closed
        finally:
            self._under_way[caller.id] -= 1
            if not self._under_way[caller.id]:
                del self._under_way[caller.id]

    def _while_valid(self, caller: Caller, send: Send) -> Send:
        """Wraps `send` to stop when the token is revoked or expires, even during a long
        response."""
        looked = time.monotonic()

        async def checked(message: Message) -> None:
            nonlocal looked
            goes_on = message.get("more_body", False)
            if goes_on and time.monotonic() - looked >= LOOK_SECONDS:
                looked = time.monotonic()
                if not self._tokens.still(caller):
                    raise RevokedError
            await send(message)

        return checked

    def _check_host(self, headers: Headers) -> None:
        """Refuses a host name that a foreign page had its browser resolve to this machine."""
        if not (self._is_local or self._hosts):
            return
        host = headers.get("host", "")
        is_ipv6 = host.startswith("[")
        name = host[1:].partition("]")[0] if is_ipv6 else host.partition(":")[0].lower()
        if name not in self._hosts and not (self._is_local and is_loopback(name)):
            raise Problem(
                "misdirected",
                "the Host header names none of this service's hosts; ask for localhost, or name"
                " the host in the setting http.allowed_hosts",
            )

    def _caller(self, scope: Scope, headers: Headers) -> Caller:
        try:
            if self._tokens.are_used:
                self._open = False
            scheme, _, secret = headers.get("authorization", "").partition(" ")
            cookie = HTTPConnection(scope).cookies.get(COOKIE)
            if cookie is not None and "authorization" not in headers:
                check_own_page(scope["method"], headers)
                scheme, secret = "bearer", cookie
            caller = self._tokens.caller(secret.strip() if scheme.lower() == "bearer" else "")
        except SetupError as error:
            raise Problem("unavailable", str(error), {"Retry-After": "60"}) from None
        if caller is not None:
            return caller
        if self._open:
            return LOCAL
        raise Problem(
            "unauthorized",
            "send a token as `Authorization: Bearer …`; `palimpsest tokens create` makes one",
            {"WWW-Authenticate": "Bearer"},
        )

    def _limit(self, path: str) -> BodyLimit:
        if path.startswith("/api/scopes/") and path.endswith("/import"):
            return BodyLimit("http.max_import_bytes", self._settings.max_import_bytes)
        if path == INGEST:
            return BodyLimit("http.max_ingest_bytes", self._settings.max_ingest_bytes)
        if path in self._larger:
            return BodyLimit("documents.max_bytes", self._larger[path])
        return BodyLimit("http.max_body_bytes", self._settings.max_body_bytes)


def _guarded(send: Send) -> Send:
    """Adds headers against content sniffing and caching to every response, as it may contain
    memories."""

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in GUARDED.items():
                headers.setdefault(name, value)
        await send(message)

    return guarded


class RevokedError(Exception):
    """The token of a request was revoked while the request was answered."""


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """The maximum size of a body, and the setting that defines it."""

    setting: str
    size: int

    def __str__(self) -> str:
        return f"a body may have {self.size} bytes ({self.setting})"


def limited(receive: Receive, limit: BodyLimit, seconds: float) -> Receive:
    """Limits a body of unannounced length as it arrives; it may take `seconds`, and one more for
    every `BYTES_PER_SECOND`."""
    taken = 0
    whole = False
    began = asyncio.get_running_loop().time()

    async def counted() -> Message:
        nonlocal taken, whole
        if whole:
            return await receive()
        try:
            async with asyncio.timeout_at(began + seconds + taken / BYTES_PER_SECOND):
                message = await receive()
        except TimeoutError:
            raise HTTPException(400, "the body did not come in time") from None
        whole = not message.get("more_body", False)
        taken += len(message.get("body", b""))
        if taken > limit.size:
            raise HTTPException(413, str(limit))
        return message

    return counted


def check_own_page(method: str, headers: Headers) -> None:
    """Refuses a change that a browser sends unless it comes from a page of this service: a cookie
    is sent, and a form accepted, whatever page they come from. Raises Problem."""
    is_own = headers.get("origin") is not None or headers.get("sec-fetch-site") == "same-origin"
    if method not in SAFE_METHODS and not is_own:
        raise Problem("forbidden", "changes are taken from pages of this service only")


def is_public(path: str) -> bool:
    """Whether everyone who can reach the service may ask for it."""
    return path in PUBLIC_PATHS or path == SIGN_IN or path.startswith(STATIC)
