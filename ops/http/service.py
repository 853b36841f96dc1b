"""What the routes work with, and who asks them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request

from palimpsest.ops.http.callers import Caller, Permission
from palimpsest.ops.http.metrics import Metrics
from palimpsest.ops.http.problems import Problem, unavailable
from palimpsest.ops.http.rates import Rates
from palimpsest.ops.http.tokens import Tokens
from palimpsest.ops.http.unprocessed import Append, UnprocessedBytes
from palimpsest.ops.ingest.records import in_batches
from palimpsest.ops.queries.dispatch import Queries
from palimpsest.ops.queries.errors import no_memory
from palimpsest.ops.queries.requests import NAMES, JsonObject, ScopeRequest
from palimpsest.ops.queries.requests import Request as Query
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.threads import in_thread_of
from palimpsest.streams.logs.base import LogReader, Outgoing, Position

Part = TypeVar("Part")
MOST_STREAMS = 100
THREAD_SECONDS = 2.0
"""How long a request that reads may have to wait for a thread, where the service is ready."""
ID_CHARACTERS = 36
"""Of a whole id. Shorter ones are for people, and could tell that others have such a memory."""


class Streams:
    """Answers that take as long as the caller likes, of which each may have so many."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._open: Counter[str] = Counter()

    def counted(self, caller: str, given: AsyncIterator[Part]) -> AsyncIterator[Part]:
        """The same stream, counted until it ends. Raises Problem for one too many."""
        self.check(caller)
        return self._stream(caller, given)

    def check(self, caller: str) -> None:
        """Raises Problem where the caller may have no more."""
        if self._open[caller] >= self._each:
            raise unavailable(
                f"{self._each} streams of this token are open already (setting"
                " http.streams_per_token)"
            )
        if self._open.total() >= MOST_STREAMS:
            raise unavailable(f"{MOST_STREAMS} streams are open already")

    async def _stream(self, caller: str, given: AsyncIterator[Part]) -> AsyncIterator[Part]:
        self._open[caller] += 1
        try:
            async for part in given:
                yield part
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]


@dataclass(slots=True)
class Service:
    """`append` adds records to the log; `lacks` tells what is missing for an answer, or None;
    `wait` returns whether a record can be read at a position within so many seconds; `result_of`
    waits for the result of a command where the stages run in this process. `streams` counts
    the answers that take long, by caller, `pending` the scopes of commands that had no result in
    time. `started` is set when the stages run, `stopping` when the service ends."""

    settings: Settings
    queries: Queries
    append: Append
    log: LogReader
    tokens: Tokens
    rates: Rates
    lacks: Callable[[], Awaitable[str | None]]
    wait: Callable[[Position, float], Awaitable[bool]]
    metrics: Metrics
    result_of: Callable[[str], Awaitable[JsonObject]] | None = None
    streams: Streams = field(init=False)
    unprocessed: UnprocessedBytes = field(init=False)
    pending: dict[str, str] = field(default_factory=dict)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        limits = self.settings.http
        self.streams = Streams(limits.streams_per_token)
        limit = limits.unprocessed_bytes_per_token
        self.unprocessed = UnprocessedBytes(self.log, self.append, limit)

    async def check_room(self, caller: Caller) -> None:
        """As `append_of`, before a body is read."""
        if self.settings.log.kind == "embedded":
            await in_thread_of("append", self.unprocessed.check, caller.id)

    def append_of(self, caller: Caller, records: Sequence[Outgoing]) -> None:
        """Append what a caller sent. Raises Problem where too much of theirs is not processed yet;
        Kafka takes it all, and has quotas of its own."""
        if self.settings.log.kind == "embedded":
            self.unprocessed.append(caller.id, records)
        else:
            for batch in in_batches(records):
                self.append(batch)

    async def unready(self) -> str | None:
        """Why requests cannot all be answered now."""
        if not self.started.is_set():
            return "the stages do not run yet"
        try:
            async with asyncio.timeout(THREAD_SECONDS):
                await asyncio.to_thread(lambda: None)
        except TimeoutError:
            return f"requests wait for others: no thread was free for {THREAD_SECONDS:g} s"
        return await self.lacks()

    async def ask(self, request: Query) -> JsonObject:
        with self.metrics.query(NAMES[type(request)]):
            return cast("JsonObject", await self.queries.answer(request))

    async def scope_of(self, memory_id: str, caller: Caller) -> str:
        """Where a memory of the caller lies. Raises NotFoundError, also for another's."""
        if len(memory_id) != ID_CHARACTERS:
            raise no_memory(memory_id)
        scope = str((await self.ask(ScopeRequest(memory_id)))["scope"])
        if not caller.sees(scope):
            raise no_memory(memory_id)
        return scope


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def permitted(permission: Permission) -> Callable[[Request], Awaitable[Caller]]:
    """Who asks, when they have the permission."""

    async def caller(request: Request) -> Caller:
        found: Caller = request.state.caller
        if permission not in found.permissions:
            raise Problem("forbidden", f"this token has not the permission {permission}")
        return found

    return caller


async def administrator(request: Request) -> Caller:
    """Who asks, when they may see all there is."""
    found = await permitted("admin")(request)
    if not found.sees_all:
        raise Problem("forbidden", "this tells of all scopes, and this token is for some")
    return found


ServiceOf = Annotated[Service, Depends(_service)]
Recaller = Annotated[Caller, Depends(permitted("recall"))]
Administrator = Annotated[Caller, Depends(administrator)]
