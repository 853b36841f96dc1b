"""`Client` and `AsyncClient`: the library's methods, for the memory of a service."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

import httpx

from palimpsest.ops.errors import RequestError, UnavailableError
from palimpsest.ops.library.memory_methods import AsyncMethods, BlockingMethods
from palimpsest.ops.library.methods import arguments_of
from palimpsest.ops.operations.checking import typed
from palimpsest.ops.transport.sending import (
    RetryPolicy,
    backoff,
    checked_token,
    error_of,
    retry_after,
    service_url,
    unreachable,
)
from palimpsest.ops.transport.service import ServiceTransport

SILENT_SECONDS: Final = 45.0
"""A connection is dead after this time without even a comment; the service sends one every 15 s."""


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """A change of what a recall finds: `kind` is `created`, `changed` or `forgotten`,
    `event` the name in the memory's history. `events` continues `after` a `position`."""

    position: str
    kind: str
    event: str
    memory_id: str
    content: str | None
    changed_by: str
    actor_type: str
    reason: str
    session_id: str
    at: datetime


class Following:
    """The events of a scope, one after the other. Used in the transport's event loop."""

    def __init__(self, service: ServiceTransport, scope: str, after: str | None) -> None:
        self._service = service
        self._scope = scope
        self._after = after
        self._failures = 0
        self._answer: httpx.Response | None = None
        self._lines: AsyncIterator[str] | None = None

    async def next(self) -> MemoryEvent:
        """Wait for the next event, and reconnect where needed. Raises RequestError when the service
        refuses, or cannot be reached after as many attempts as the retry policy has."""
        while True:
            try:
                if self._lines is None:
                    await self._connect()
                event = await self._read()
            except httpx.TransportError as error:
                await self._lost(unreachable(self._service.url, error))
                continue
            except UnavailableError as error:
                await self._lost(error)
                continue
            if event is not None:
                return event
            await self._lost(None)

    async def close(self) -> None:
        if self._answer is not None:
            await self._answer.aclose()
        self._answer = self._lines = None

    async def _connect(self) -> None:
        http, timeout = await self._service.open(), self._service.retries.timeout
        request = http.build_request(
            "GET",
            "/api/events",
            params={"scope": self._scope},
            headers={} if self._after is None else {"Last-Event-ID": self._after},
            timeout=httpx.Timeout(timeout, read=SILENT_SECONDS, pool=None),
        )
        self._answer = await http.send(request, stream=True)
        if not self._answer.is_success:
            await self._answer.aread()
            raise error_of(self._answer, retry_after(self._answer.headers))
        self._lines = self._answer.aiter_lines()

    async def _read(self) -> MemoryEvent | None:
        """The next event; None at the end of the stream, as when the service stops."""
        assert self._lines is not None
        fields: dict[str, str] = {}
        async for line in self._lines:
            self._failures = 0
            name, _, value = line.partition(":")
            if line and name:
                fields[name] = value.removeprefix(" ")
            elif not line:
                self._after = fields.get("id", self._after)
                if "data" in fields:
                    about = {"position": fields["id"], "kind": fields["event"]}
                    event: MemoryEvent = typed(MemoryEvent, {**about, **json.loads(fields["data"])})
                    return event
                fields = {}
        return None

    async def _lost(self, error: RequestError | None) -> None:
        """Close the connection, and wait before the next."""
        await self.close()
        self._failures += 1
        if error is not None and self._failures >= self._service.retries.attempts:
            raise error
        await asyncio.sleep(backoff(self._failures))


TOKEN_VARIABLE: Final = "PALIMPSEST_TOKEN"  # noqa: S105


class AsyncClient(AsyncMethods):
    """A memory of `palimpsest serve`, for programs with an event loop: the methods, arguments and
    results of AsyncMemory, and `events`.

    `token` is the token of the service, by default from the environment variable PALIMPSEST_TOKEN.
    `scope` is the default memory space of every method. `machine`: commands are sent as a machine,
    which may not change what a person protects. A command, and a turn that is waited for, must be
    applied within `wait_seconds`.

    A response must arrive within `timeout` seconds. If it is lost, or if the service is unavailable
    or asks for a retry, the request is sent again, up to `attempts` times within `retry_seconds`;
    every change has an idempotency key, so that it is executed once.

    Raises the RequestErrors of the library, and UnavailableError, UnauthorizedError, ForbiddenError
    and RateLimitedError. A service requires whole ids.

        async with AsyncClient("http://127.0.0.1:7245", scope="ana") as memory:
            await memory.add("I moved to Lisbon.", speaker="Ana")
            found = await memory.recall("where does Ana live?")
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:7245",
        *,
        token: str | None = None,
        scope: str = "default",
        machine: bool = False,
        wait_seconds: float = 30.0,
        timeout: float = 30.0,
        attempts: int = 5,
        retry_seconds: float = 30.0,
    ) -> None:
        found = os.environ.get(TOKEN_VARIABLE) or None if token is None else token
        retries = RetryPolicy(timeout, attempts, retry_seconds)
        self._service = ServiceTransport(
            service_url(base_url), None if found is None else checked_token(found), retries, machine
        )
        super().__init__(self._service, scope, wait_seconds)

    async def events(
        self, *, after: str | None = None, scope: str = ""
    ) -> AsyncIterator[MemoryEvent]:
        """Follow the changes of the scope, from now on, or after the `position` of an event,
        without a gap. Never ends by itself; reconnects when the connection ends.

            async for event in memory.events():
                print(event.kind, event.content)
        """
        following = Following(self._service, scope or self.scope, after)
        try:
            while True:
                yield await self.background.run(following.next())
        finally:
            await self.background.run(following.close())


class Client(BlockingMethods):
    """A memory of `palimpsest serve`. `AsyncClient` describes the arguments, and has the same
    methods for programs with an event loop; `aio` is the same memory as one. Usable from any
    thread.

    >>> from palimpsest import Client
    >>> with Client(base_url, scope="trip") as memory:
    ...     added = memory.add("I moved to Lisbon in March 2025.", speaker="Ana")
    ...     memory.recall("who moved to Lisbon?", types=["episodic"]).results[0].content
    'I moved to Lisbon in March 2025.'
    """

    @arguments_of(AsyncClient)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(AsyncClient(*args, **kwargs))

    def events(self, *, after: str | None = None, scope: str = "") -> Iterator[MemoryEvent]:
        """Follow the changes of the scope, from now on, or after the `position` of an event,
        without a gap. Never ends by itself; reconnects when the connection ends.

            for event in memory.events():
                print(event.kind, event.content)
        """
        aio = cast("AsyncClient", self.aio)
        following = Following(aio._service, scope or aio.scope, after)
        try:
            while True:
                yield aio.background.blocking(following.next())
        finally:
            aio.background.blocking(following.close())
