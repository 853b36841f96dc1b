"""`Client` and `AsyncClient`: the library's methods, for the memory of a service."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, cast

from palimpsest.ops.library.memory_methods import AsyncMethods, BlockingMethods
from palimpsest.ops.library.methods import arguments_of
from palimpsest.ops.transport.following import Following, MemoryEvent
from palimpsest.ops.transport.sending import RetryPolicy, checked_token, service_url
from palimpsest.ops.transport.service import Service

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

        async with AsyncClient("http://127.0.0.1:3850", scope="ana") as memory:
            await memory.add("I moved to Lisbon.", speaker="Ana")
            found = await memory.recall("where does Ana live?")
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:3850",
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
        self._service = Service(
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
