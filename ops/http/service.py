"""The service behind the routes, and its access checks."""

from __future__ import annotations

import asyncio
import math
import threading
import time
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from fastapi import Depends, Header, Query, Request

from palimpsest.ops.http.problems import Problem, unavailable
from palimpsest.ops.http.tokens import Caller, CallerAccess, Tokens
from palimpsest.ops.ingest.records import in_batches
from palimpsest.ops.operations.awaited_results import AwaitedResults, TurnKey, awaited_turns
from palimpsest.ops.operations.operation import Json, Operation, Rate, Surface, Write
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.commanding import Commands
from palimpsest.ops.service.executing import Executor, NotYetAppliedError
from palimpsest.ops.service.queries import Queries
from palimpsest.ops.settings.sections import HttpSettings, Settings
from palimpsest.ops.telemetry.metrics import Metrics
from palimpsest.ops.threads import in_thread_of, threads_are_free
from palimpsest.schemas.envelope import ActorType
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogReader, Outgoing, Position

# Unprocessed bytes by token. A token that sends faster than the stages process is refused before
# other callers' changes queue behind it.

FIRST_STAGE: Final = "normalize"
LAST_STAGE: Final = "apply-writes"
"""After these two stages a turn can be found, and a change is applied."""

Append: TypeAlias = Callable[[Sequence[Outgoing]], Sequence[tuple[int, int]]]
"""Appends to the log; returns the partition and the offset of each record."""
PositionOf: TypeAlias = Callable[[str, str, int], int]


@dataclass(slots=True, eq=False)
class _Sent:
    """`size` bytes of one request. They are processed when the first stage and then the last have
    reached the offsets in `until`, by topic and partition."""

    size: int
    until: dict[tuple[str, int], int] = field(default_factory=dict)
    is_appended: bool = False
    is_normalized: bool = False

    def reached(self, stage: str, position: PositionOf) -> bool:
        return all(position(stage, *place) >= end for place, end in self.until.items())


class UnprocessedBytes:
    """Counts the unprocessed bytes of each caller, up to `limit` each. Thread-safe."""

    def __init__(self, log: LogReader, append: Append, limit: int) -> None:
        self._log = log
        self._append = append
        self._limit = limit
        self._lock = threading.Lock()
        self._sent: defaultdict[str, list[_Sent]] = defaultdict(list)

    def append(self, caller: str, records: Sequence[Outgoing], begun: bool = False) -> None:
        """Appends the records of a request. Raises Problem if the caller has reached the limit; a
        single request may exceed it, so that the largest body can be sent. `begun`: the request
        has already appended, or passed the check."""
        sent = _Sent(sum(len(record.value or b"") for record in records))
        with self._lock:
            if not begun:
                self._check(caller)
            self._sent[caller].append(sent)
        try:
            for batch in in_batches(records):
                for record, (partition, offset) in zip(batch, self._append(batch), strict=True):
                    sent.until[record.topic, partition] = offset + 1
        finally:
            sent.is_appended = True

    def check(self, caller: str) -> None:
        """Raises Problem if the caller has reached the limit, before the body is read."""
        with self._lock:
            self._check(caller)

    def _check(self, caller: str) -> None:
        # Each time, not only at the limit: records appended since the last check count, too.
        position = cache(self._log.position)
        self._sent[caller] = [
            sent for sent in self._sent[caller] if not self._is_processed(sent, position)
        ]
        waiting = sum(sent.size for sent in self._sent[caller])
        if waiting >= self._limit:
            raise Problem(
                "rate_limited",
                f"{waiting} bytes that this token sent are not processed yet, of"
                f" {self._limit} (setting http.unprocessed_bytes_per_token); send this again"
                " when they are",
                {"Retry-After": "1"},
            )

    def _is_processed(self, sent: _Sent, position: PositionOf) -> bool:
        if not sent.is_appended:
            return False
        if not sent.is_normalized:
            if not sent.reached(FIRST_STAGE, position):
                return False
            topic = MEMORY_WRITES.name
            places = {(topic, partition) for _, partition in sent.until}
            sent.until = {place: self._log.end_offset(*place) for place in places}
            sent.is_normalized = True
        return sent.reached(LAST_STAGE, position)


Part = TypeVar("Part")
MOST_STREAMS = 100
THREAD_SECONDS = 2.0
"""Maximum wait of a request for a thread while the service is ready."""
MOST_PENDING: Final = 10_000
"""Maximum number of pending commands whose scopes are kept."""


class Streams:
    """Limits the number of open-ended streams of each caller."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._open: Counter[str] = Counter()

    def counted(self, caller: str, stream: AsyncIterator[Part]) -> AsyncIterator[Part]:
        """Returns the stream, counted until it ends. Raises Problem beyond the limit."""
        self.check(caller)
        self._open[caller] += 1

        async def counted() -> AsyncIterator[Part]:
            try:
                async for part in stream:
                    yield part
            finally:
                ended()

        parts = counted()
        # Also for streams never read, because the client had already disconnected.
        ended = weakref.finalize(parts, self._end, caller)
        return parts

    def check(self, caller: str) -> None:
        """Raises Problem if the caller has reached the limit."""
        if self._open[caller] >= self._each:
            raise unavailable(
                f"{self._each} streams of this token are open already (setting"
                " http.streams_per_token)"
            )
        if self._open.total() >= MOST_STREAMS:
            raise unavailable(f"{MOST_STREAMS} streams are open already")

    def _end(self, caller: str) -> None:
        self._open[caller] -= 1
        if not self._open[caller]:
            del self._open[caller]


@dataclass(slots=True)
class Service:
    """`append` adds records to the log; `lacks` returns what is missing for an answer, or None;
    `wait` returns whether a record can be read at a position within a number of seconds;
    `result_of` waits for the result of a command if the stages run in this process, whose `shards`
    they write; `turns` waits for the outcomes of turns. `streams` counts open-ended responses by
    caller; `pending` has the scopes of commands without a result in time. `started` is set when the
    stages run, `stopping` when the service ends."""

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
    shards: Iterable[Shard] = ()
    turns: AwaitedResults[TurnKey, JsonObject] = field(init=False)
    commands: Commands = field(init=False)
    streams: Streams = field(init=False)
    unprocessed: UnprocessedBytes = field(init=False)
    pending: dict[str, str] = field(default_factory=dict)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.turns = awaited_turns(self.queries.answer, self.shards)
        limits = self.settings.http
        self.streams = Streams(limits.streams_per_token)
        limit = limits.unprocessed_bytes_per_token
        self.unprocessed = UnprocessedBytes(self.log, self.append, limit)
        self.commands = self.commands_of(self.append)

    def commands_of(self, append: Callable[[Sequence[Outgoing]], object]) -> Commands:
        """Commands that are appended with `append`."""
        return Commands(self.settings, append, self._asking, result_of=self.result_of)

    def executor_of(self, caller: Caller) -> Executor:
        """An executor for a caller; its commands count as the caller's unprocessed bytes."""
        commands = self.commands_of(partial(self.append_of, caller))
        return Executor(self.settings, self._asking, commands, self.settings.http.wait_seconds)

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[Queries]:
        yield self.queries

    async def check_room(self, caller: Caller) -> None:
        """Like `append_of`, before a body is read."""
        if self.settings.log.kind == "embedded":
            await in_thread_of("append", self.unprocessed.check, caller.id)

    def append_of(self, caller: Caller, records: Sequence[Outgoing], begun: bool = False) -> None:
        """Appends a caller's records. Raises Problem if the caller has too many unprocessed bytes,
        unless the request has `begun`; Kafka accepts everything, and has its own quotas."""
        if self.settings.log.kind == "embedded":
            self.unprocessed.append(caller.id, records, begun)
        else:
            for batch in in_batches(records):
                self.append(batch)

    async def unready(self) -> str | None:
        """Why some requests cannot be answered now; None if all can."""
        if not self.started.is_set():
            return "the stages do not run yet"
        try:
            async with asyncio.timeout(THREAD_SECONDS):
                await threads_are_free()
        except TimeoutError:
            return f"requests wait for others: no thread was free for {THREAD_SECONDS:g} s"
        return await self.lacks()

    async def execute(self, operation: Operation[Any], access: CallerAccess) -> Json:
        """Executes and measures an operation. Raises what `Executor.execute` raises."""
        instead = operation.instead() if isinstance(operation, Write) else None
        if not isinstance(operation, Write) or instead is not None:
            meant = instead or operation
            with self.metrics.query(meant.slug):
                return await self.executor_of(access.caller).execute(meant, access)
        with self.metrics.command() as ended:
            try:
                await self.check_room(access.caller)
                answer = await self.executor_of(access.caller).execute(operation, access)
            except NotYetAppliedError as error:
                ended("pending")
                if error.command_id is not None:
                    self.pending[error.command_id] = error.scope
                    while len(self.pending) > MOST_PENDING:
                        del self.pending[next(iter(self.pending))]
                raise
            ended("applied")
        return answer

    async def perform(
        self, caller: Caller, operation: Operation[Any], actor_type: ActorType | None = None
    ) -> Json:
        """Executes a caller's own request, which counts against the caller's rates."""
        rate = operation.counts_against() if isinstance(operation, Write) else None
        if rate is not None:
            self.rates.count(caller.id, rate)
        return await self.execute(operation, CallerAccess(caller, actor_type))


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def check_permission(caller: Caller, surface: Surface) -> None:
    """Raises Problem if the caller lacks the permission for the operation."""
    for needed in (surface.permission, surface.also):
        if needed is not None and needed not in caller.permissions:
            raise Problem("forbidden", f"this token lacks the permission {needed}")
    if surface.sees_all and not caller.sees_all:
        raise Problem("forbidden", "this is about all scopes, and this token is for some")


def permitted(surface: Surface) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency that returns the caller, after checking the permission."""

    async def caller(request: Request) -> Caller:
        found: Caller = request.state.caller
        check_permission(found, surface)
        return found

    return caller


ServiceOf = Annotated[Service, Depends(_service)]
Recaller = Annotated[Caller, Depends(permitted(Surface()))]
Rememberer = Annotated[Caller, Depends(permitted(Surface(permission="remember")))]
Analyst = Annotated[Caller, Depends(permitted(Surface(permission="sql", sees_all=True)))]
Administrator = Annotated[Caller, Depends(permitted(Surface(permission="admin", sees_all=True)))]
WaitSeconds = Annotated[
    float | None, Query(ge=0, le=60, description="seconds to wait for the result; else as set")
]
ActorHeader = Annotated[
    Literal["human", "agent"] | None,
    Header(
        alias="Actor-Type",
        description="agent: as a machine, which may not change what is protected",
    ),
]


# ---- rate limits ----
WINDOW_SECONDS: Final = 60.0


class Rates:
    """Counts the requests of the last minute. For one event loop."""

    def __init__(
        self, settings: HttpSettings, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._seconds = seconds
        self._times: dict[tuple[str, Rate], deque[float]] = {}

    def count(self, caller: str, kind: Rate) -> None:
        """Counts a request. Raises Problem, with the time to retry, beyond the limit."""
        now, limit = self._seconds(), int(getattr(self._settings, f"{kind}_per_minute"))
        times = self._times.setdefault((caller, kind), deque())
        while times and now - times[0] >= WINDOW_SECONDS:
            times.popleft()
        if len(times) >= limit:
            wait = max(1, math.ceil(WINDOW_SECONDS - (now - times[0])))
            raise Problem(
                "rate_limited",
                f"more than {limit} requests of this kind in a minute (setting"
                f" http.{kind}_per_minute); again in {wait} s",
                {"Retry-After": str(wait)},
            )
        times.append(now)
