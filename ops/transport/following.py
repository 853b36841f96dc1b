"""Following what happens in a scope: server-sent events, without a gap when a connection ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import httpx

from palimpsest.ops.errors import RequestError, UnavailableError
from palimpsest.ops.operations.checking import typed
from palimpsest.ops.transport.problems import error_of
from palimpsest.ops.transport.sending import backoff, retry_after, unreachable
from palimpsest.ops.transport.service import Service

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

    def __init__(self, service: Service, scope: str, after: str | None) -> None:
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
                    return _event_of(fields)
                fields = {}
        return None

    async def _lost(self, error: RequestError | None) -> None:
        """Close the connection, and wait before the next."""
        await self.close()
        self._failures += 1
        if error is not None and self._failures >= self._service.retries.attempts:
            raise error
        await asyncio.sleep(backoff(self._failures))


def _event_of(fields: dict[str, str]) -> MemoryEvent:
    about = {"position": fields["id"], "kind": fields["event"]}
    event: MemoryEvent = typed(MemoryEvent, {**about, **json.loads(fields["data"])})
    return event
