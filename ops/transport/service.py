"""The memory of a service (`palimpsest serve`), over HTTP."""

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
from palimpsest.ops.operations.answers import CommandResult
from palimpsest.ops.operations.lifecycle.pipeline import Status
from palimpsest.ops.operations.operation import Json, Operation, Write
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.service.executing import NotYetAppliedError, outcome
from palimpsest.ops.transport.base import BackgroundTransport, idle_at, waited_for
from palimpsest.ops.transport.sending import Call, RetryPolicy, connected, send

if TYPE_CHECKING:
    import pyarrow as pa

    from palimpsest.ops.transport.turns import Turn

T = TypeVar("T")
POLL_SECONDS: Final = (0.02, 0.5)
"""The first and the maximum pause between two checks of pending work."""
LONGEST_WAIT_SECONDS: Final = 60.0
"""Maximum time that a service keeps a request open."""
BODY_BYTES: Final = 512 * 1024
"""Maximum size of a request with turns, unless one turn is larger; half of the service's limit."""
NOT_OURS: Final = "the answer is not one of this service; check the base_url"
SETTLED: Final = 200
"""The status if all turns of a request are settled."""
LARGEST_TURN: Final = 2**40
"""No limit here: the service refuses turns that are too large."""


class ServiceTransport(BackgroundTransport):
    """Sends operations to a service. `machine`: commands are sent as a machine, which may not
    change protected memories."""

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
        """Returns the client, which opens connections on demand."""
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
                return None  # a restarted service may not know the command yet
            raise

    async def _write(self, operation: Write[Any], seconds: float) -> Json:
        seconds = seconds if operation.wait is None else operation.wait
        deadline = time.monotonic() + seconds
        wait = min(seconds, LONGEST_WAIT_SECONDS)
        # With a key, the command can be sent again if a response is lost.
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
        """Returns the result of the command; with `erased`, once no file has what it erased. None
        at the deadline."""

        async def stored() -> Json:
            state = await self.execute(CommandResult(command_id, scope), 0.0)
            pending = state is None or "error" not in state
            return None if pending or (erased and state.get("erasure") != "done") else state

        state = await _polled(stored, deadline)
        return None if state is None else outcome(kind, command_id, state)

    async def table(self, request: SqlRequest) -> pa.Table:
        from pyarrow import ArrowInvalid, ipc

        from palimpsest.ops.sql.output import ARROW_TYPE

        body = {"query": request.query, "partition": request.partition}
        headers = {"Accept": ARROW_TYPE}
        call = Call("POST", "/api/sql", body=body, headers=headers, seconds=request.seconds)
        content = (await self._send(call)).content
        try:
            table: pa.Table = await asyncio.to_thread(lambda: ipc.open_stream(content).read_all())
        except (ArrowInvalid, OSError):
            raise RequestError("the answer is no Arrow stream; check the base_url") from None
        return table

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
        bodies = [*_bodies([record.value or b"" for record in records])]
        for lines in bodies[:-1]:
            await self._publish_lines(lines)
        if bodies:
            # Turns of a scope are settled in order, so waiting for the last ones is enough.
            await self._settled(bodies[-1], seconds or 0.0)
        return ids

    async def _publish_lines(self, lines: Sequence[bytes], wait: float = 0.0) -> bool:
        """Returns whether all are settled. Sending a turn again has no effect."""
        headers = {"Content-Type": "application/x-ndjson"}
        path, content = f"/api/turns?wait={wait:g}", b"\n".join(lines)
        call = Call("POST", path, content=content, headers=headers, seconds=wait)
        answer = await self._send(call)
        refused = _json(answer, "refused")["refused"]
        if refused:
            why = "; ".join(f"{each['where']}: {each['why']}" for each in refused[:5])
            raise RequestError(f"the service refused some of the turns: {why}")
        return answer.status_code == SETTLED

    async def _settled(self, lines: Sequence[bytes], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        left = seconds
        while not await self._publish_lines(lines, min(left, LONGEST_WAIT_SECONDS)) and seconds:
            left = deadline - time.monotonic()
            if left <= 0:
                raise NotYetAppliedError(
                    f"the turns are durable, and cannot be recalled yet after {seconds:g} s"
                )

    async def processed(self, seconds: float) -> None:
        """Needs a token with the permission `admin`: it reads the state of the pipeline."""
        before: dict[tuple[str, int], int] | None = None

        async def quiet() -> bool | None:
            nonlocal before
            last, before = before, idle_at(await self.execute(Status(), 0.0))
            return True if before is not None and before == last else None

        if await _polled(quiet, time.monotonic() + seconds) is None:
            reason = waited_for(await self.execute(Status(), 0.0))
            raise NotYetAppliedError(
                f"what was published is durable, and still pending after {seconds:g} s: {reason},"
                " and go on"
            )


def _call(operation: Operation[Any], headers: Mapping[str, str], wait: float = 0.0) -> Call:
    """The HTTP request for an operation, without fields at their defaults."""
    body = operation.set_fields()
    return Call("POST", f"/api/rpc/{operation.slug}", body=body, headers=headers, seconds=wait)


async def _polled(ask: Callable[[], Awaitable[T | None]], deadline: float) -> T | None:
    """Polls `ask` until its result is not None; returns None at the deadline."""
    pause, longest = POLL_SECONDS
    while True:
        found = await ask()
        if found is not None or time.monotonic() >= deadline:
            return found
        await asyncio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(longest, 2 * pause)


def _json(answer: httpx.Response, *names: str) -> Json:
    """Parses a response that must have the fields of these names. Raises RequestError for
    others."""
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
