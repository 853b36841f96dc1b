"""A memory of a service (`palimpsest serve`), reached over HTTP."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx
from pydantic import ValidationError

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.operations.executing import NotYetAppliedError, outcome
from palimpsest.ops.operations.memories import Get
from palimpsest.ops.operations.operation import Json, Operation, Write
from palimpsest.ops.operations.pipeline import Status
from palimpsest.ops.operations.results import CommandResult
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.transport.base import BackgroundTransport
from palimpsest.ops.transport.problems import ForbiddenError
from palimpsest.ops.transport.sending import Call, RetryPolicy, connected, send

if TYPE_CHECKING:
    import pyarrow as pa

    from palimpsest.ops.transport.turns import Turn

T = TypeVar("T")
POLL_SECONDS: Final = (0.02, 0.5)
"""The first and the longest pause between two checks of something that is pending."""
LONGEST_WAIT_SECONDS: Final = 60.0
"""A service keeps a request open for no longer."""
BODY_BYTES: Final = 512 * 1024
"""Of turns that are sent at once, unless one is larger; half of what a service accepts."""
NOT_OURS: Final = "the answer is not one of this service; check the base_url"
LARGEST_TURN: Final = 2**40
"""The service knows what is too large for it."""


class Service(BackgroundTransport):
    """Sends operations to a service. `machine`: commands are given as by a machine, which may not
    touch what is protected."""

    def __init__(
        self, url: httpx.URL, token: str | None, retries: RetryPolicy, machine: bool
    ) -> None:
        super().__init__()
        self.url = url
        self.retries = retries
        self._token = token
        self._actor = {"Actor-Type": "agent"} if machine else {}
        self._http: httpx.AsyncClient | None = None

    def _loop_started(self) -> None:
        self._http = None

    async def open(self) -> httpx.AsyncClient:
        """Connections are made when they are needed."""
        if self._http is None:
            self._http = connected(self.url, self._token, self.retries)
        return self._http

    async def _detach(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def _send(self, call: Call) -> httpx.Response:
        return await send(await self.open(), self.retries, call)

    # --- operations -----------------------------------------------------------------------------

    async def send(self, operation: Operation[T], seconds: float) -> T:
        try:
            return await super().send(operation, seconds)
        except ValidationError:
            raise RequestError(NOT_OURS) from None

    async def execute(self, operation: Operation[Any], seconds: float) -> Json:
        if isinstance(operation, Write):
            return await self._write(operation, seconds)
        try:
            return _json(await self._send(_call(operation, self._actor)))
        except NotFoundError:
            if isinstance(operation, CommandResult):
                return None  # a service that was restarted may not know the command yet
            raise

    async def _write(self, operation: Write[Any], seconds: float) -> Json:
        seconds = seconds if operation.wait is None else operation.wait
        deadline = time.monotonic() + seconds
        wait = min(seconds, LONGEST_WAIT_SECONDS)
        # With a key the command can be sent again when an answer is lost.
        sent = replace(operation, key=operation.key or uuid.uuid4().hex, wait=wait)
        answer = _json(await self._send(_call(sent, self._actor, wait)))
        if operation.instead() is not None:
            return answer
        if not isinstance(answer, dict) or not answer.keys() >= {"command_id", "applied"}:
            raise RequestError(NOT_OURS)
        command_id, scope = str(answer["command_id"]), answer.get("scope")
        if not answer["applied"]:
            answer = await self._stored(type(operation), command_id, scope, deadline)
            if answer is None:
                raise NotYetAppliedError(
                    f"command {command_id} is durable, and still pending after {seconds:g} s;"
                    " `command_result` returns its result later",
                    command_id,
                    scope or getattr(operation, "scope", None) or "",
                )
        if answer.get("erasure") == "pending":
            # On Kafka files are rewritten when a worker opens the partition next.
            erased = await self._stored(type(operation), command_id, scope, deadline, erased=True)
            return answer if erased is None else erased
        return answer

    async def _stored(
        self,
        kind: type[Write[Any]],
        command_id: str,
        scope: str | None,
        deadline: float,
        *,
        erased: bool = False,
    ) -> Json:
        """What the command did; with `erased`, once no file has what it erased. None at the
        deadline."""

        async def stored() -> Json:
            state = await self.execute(CommandResult(command_id, scope), 0.0)
            pending = state is None or "error" not in state
            return None if pending or (erased and state.get("erasure") != "done") else state

        state = await _polled(stored, deadline)
        return None if state is None else outcome(kind, command_id, state)

    async def table(self, request: SqlRequest) -> pa.Table:
        from palimpsest.ops.transport.arrow import ARROW_TYPE, read

        body = {"query": request.query, "partition": request.partition}
        headers = {"Accept": ARROW_TYPE}
        call = Call("POST", "/api/sql", body=body, headers=headers, seconds=request.seconds)
        answer = await self._send(call)
        return await asyncio.to_thread(read, answer.content)

    # --- turns ----------------------------------------------------------------------------------

    async def publish(
        self,
        turns: Turn | Sequence[Turn],
        scope: str,
        defaults: Mapping[str, object],
        seconds: float | None,
    ) -> tuple[str, ...]:
        from palimpsest.ops.transport.turns import turn_records
        from palimpsest.streams.sensitive.policy import Policy

        now = datetime.now(UTC)
        records, ids = turn_records(turns, scope, LARGEST_TURN, now, defaults, Policy(frozenset()))
        for lines in _bodies([record.value or b"" for record in records]):
            await self._publish_lines(lines)
        if ids and seconds is not None:
            await self._recallable(ids[-1], scope, seconds)
        return ids

    async def _publish_lines(self, lines: Sequence[bytes]) -> None:
        """A turn that is sent again is the same turn."""
        headers = {"Content-Type": "application/x-ndjson"}
        call = Call("POST", "/api/turns", content=b"\n".join(lines), headers=headers)
        refused = _json(await self._send(call), "refused")["refused"]
        if refused:
            why = "; ".join(f"{each['where']}: {each['why']}" for each in refused[:5])
            raise RequestError(f"the service refused some of the turns: {why}")

    async def _recallable(self, memory_id: str, scope: str, seconds: float) -> None:
        """Turns of a scope are stored in their order: the last one is waited for."""

        async def found() -> Json:
            try:
                return await self.execute(Get(memory_id, scope), 0.0)
            except NotFoundError:
                return None
            except ForbiddenError:
                return True  # what this token may not read cannot be waited for

        if await _polled(found, time.monotonic() + seconds) is None:
            raise NotYetAppliedError(
                f"the turns are durable, and cannot be recalled yet after {seconds:g} s"
            )

    async def processed(self, seconds: float) -> None:
        """Needs a token with the permission `admin`: it reads the state of the pipeline."""
        idle = 0

        async def quiet() -> bool | None:
            nonlocal idle
            status = await self.execute(Status(), 0.0)
            # Between the commit of a batch and the sending of what it made, no stage is behind.
            idle = 0 if any(each["lag"] > 0 for each in status["stages"]) else idle + 1
            return True if idle > 1 else None

        if await _polled(quiet, time.monotonic() + seconds) is None:
            raise NotYetAppliedError(
                f"what was published is durable, and still pending after {seconds:g} s"
            )


def _call(operation: Operation[Any], headers: Mapping[str, str], wait: float = 0.0) -> Call:
    """The request for an operation, without the fields that have their defaults."""
    body = operation.given()
    return Call("POST", f"/api/rpc/{operation.slug}", body=body, headers=headers, seconds=wait)


async def _polled(ask: Callable[[], Awaitable[T | None]], deadline: float) -> T | None:
    """What `ask` returns once it is not None; None at the deadline."""
    pause, longest = POLL_SECONDS
    while True:
        found = await ask()
        if found is not None or time.monotonic() >= deadline:
            return found
        await asyncio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(longest, 2 * pause)


def _json(answer: httpx.Response, *names: str) -> Json:
    """The answer, with the fields of these names. Raises RequestError for any other."""
    try:
        found: Json = answer.json()
    except ValueError:
        raise RequestError("the answer is no JSON; check the base_url") from None
    if names and (not isinstance(found, dict) or not found.keys() >= {*names}):
        raise RequestError(NOT_OURS)
    return found


def _bodies(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    body: list[bytes] = []
    size = 0
    for line in lines:
        if body and size + len(line) > BODY_BYTES:
            yield body
            body, size = [], 0
        body.append(line)
        size += len(line) + 1
    if body:
        yield body
