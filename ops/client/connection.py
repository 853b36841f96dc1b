"""A memory that a service has: asked and told over HTTP."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

import httpx
from pydantic import JsonValue

from palimpsest.ops.client.calls import ID_CHARACTERS, Call, of_command, of_request
from palimpsest.ops.client.problems import ForbiddenError
from palimpsest.ops.client.sending import Patience, connected, send
from palimpsest.ops.command_kinds import kind_of
from palimpsest.ops.documents.settings import DocumentSettings
from palimpsest.ops.library.background import Background
from palimpsest.ops.library.results import NotDoneError, NotYetAppliedError
from palimpsest.ops.queries.errors import NotFoundError, RequestError, no_memory
from palimpsest.ops.queries.requests import (
    CommandRequest,
    GetRequest,
    JsonObject,
    Request,
    ScopeRequest,
    SessionMemoryRequest,
    SqlRequest,
    StatusRequest,
)
from palimpsest.schemas.commands import Command

if TYPE_CHECKING:
    import pyarrow as pa

    from palimpsest.ops.library.turns import Turn

POLL_SECONDS: Final = (0.02, 0.5)
"""Between two looks at something that is on its way: at first, and at most."""
LONGEST_WAIT_SECONDS: Final = 60.0
"""A service waits no longer with an answer."""
BODY_BYTES: Final = 512 * 1024
"""Of turns that are sent at once, unless one has more; half of what a service takes."""
LARGEST_TURN: Final = 2**40
"""The service knows what is too large for it."""
OUTCOMES: Final = frozenset(
    {"not_found", "deleted", "version_conflict", "pinned", "forbidden", "duplicate_content_hash"}
)
"""What became of one memory, where it was not what was wanted."""


class Connection(Background):
    """`machine`: commands are given as by a machine, which may not touch what is protected."""

    most_results = 1_000
    documents = DocumentSettings()  # how they are cut is for the service to say

    def __init__(
        self, url: httpx.URL, token: str | None, patience: Patience, machine: bool
    ) -> None:
        super().__init__()
        self.url = url
        self.patience = patience
        self._token = token
        self._actor = {"Actor-Type": "agent"} if machine else {}
        self._http: httpx.AsyncClient | None = None

    def _begun(self) -> None:
        self._http = None

    async def open(self) -> httpx.AsyncClient:
        """Connections are made as they are needed."""
        if self._http is None:
            self._http = connected(self.url, self._token, self.patience)
        return self._http

    async def _detach(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def _send(self, call: Call) -> httpx.Response:
        return await send(await self.open(), self.patience, call)

    async def answer(self, request: Request) -> JsonValue:
        if isinstance(request, CommandRequest):
            return await self._command_state(request)
        if isinstance(request, SessionMemoryRequest):
            return await self._session_memory(request)
        return _json(await self._send(of_request(request)))

    async def _session_memory(self, request: SessionMemoryRequest) -> JsonValue:
        try:
            return _json(await self._send(of_request(request)), "short_term")["short_term"]
        except NotFoundError:
            return None

    async def _command_state(self, request: CommandRequest) -> JsonValue:
        """None also for one that the service has not heard of, or has forgotten: it may have been
        started anew, and finds the result once there is one."""
        try:
            state = _json(await self._send(of_request(request)), "applied")
        except NotFoundError:
            return None
        return state if "error" in state else None

    async def table(self, request: SqlRequest) -> pa.Table:
        from palimpsest.ops.client.arrow import ARROW_TYPE, read

        body = {"query": request.query, "partition": request.partition}
        headers = {"Accept": ARROW_TYPE}
        call = Call("POST", "/api/sql", body=body, headers=headers, seconds=request.seconds)
        answer = await self._send(call)
        return await asyncio.to_thread(read, answer.content)

    async def known(self, memory_ids: Sequence[str], scope: str) -> Sequence[str]:
        """Of several the service says what became of each."""
        if len(memory_ids) == 1:
            said = cast("JsonObject", await self.answer(ScopeRequest(memory_ids[0])))
            if said["scope"] != scope:
                raise no_memory(memory_ids[0])
        for each in memory_ids:
            if len(each) != ID_CHARACTERS:
                raise NotFoundError(f"there is no memory {each}; a service takes whole ids")
        return memory_ids

    # --- changes ------------------------------------------------------------------------------

    async def carry_out(
        self, scope: str, command: Command, key: str | None, seconds: float
    ) -> JsonValue:
        deadline = time.monotonic() + seconds
        call = of_command(scope, command)
        wait = min(seconds, LONGEST_WAIT_SECONDS)
        # Under a key of its own the command may be sent again when an answer is lost.
        headers = {"Idempotency-Key": uuid.uuid4().hex if key is None else key, **self._actor}
        call = replace(call, params={**call.params, "wait": wait}, headers=headers, seconds=wait)
        try:
            answer = await self._send(call)
        except NotDoneError as error:
            if call.memory_id is None or error.kind not in OUTCOMES:
                raise
            return [{"id": call.memory_id, "status": error.kind, "why": str(error)}]
        said = _json(answer, "command_id", "applied")
        if said["applied"]:
            if said.get("erasure") == "pending":
                await self._erased_from_files(str(said["command_id"]), deadline)
            return _result(said)
        return await self._later(str(said["command_id"]), deadline, seconds)

    async def _erased_from_files(self, command_id: str, deadline: float) -> None:
        """Until then, or as long as may be waited: on Kafka it is done when a worker opens the
        partition next."""

        async def done() -> JsonValue:
            state = await self.answer(CommandRequest(command_id))
            return True if isinstance(state, dict) and state.get("erasure") == "done" else None

        await _polled(done, deadline)

    async def _later(self, command_id: str, deadline: float, seconds: float) -> JsonValue:
        request = CommandRequest(command_id)
        found = await _polled(lambda: self.answer(request), deadline)
        if found is None:
            text = f"command {command_id} is durable, and not carried out after {seconds:g} s"
            raise NotYetAppliedError(f"{text}; `command` tells when it is", command_id)
        state = cast("JsonObject", found)
        if state["error"] is not None:
            error = str(state["error"])
            raise NotDoneError(error, kind=kind_of(error))
        return state["result"]

    # --- turns --------------------------------------------------------------------------------

    async def publish(
        self,
        turns: Turn | Sequence[Turn],
        scope: str,
        defaults: Mapping[str, object],
        seconds: float | None,
    ) -> tuple[str, ...]:
        from palimpsest.ops.library.turns import turn_records
        from palimpsest.streams.sensitive.policy import Policy

        now = datetime.now(UTC)
        records, ids = turn_records(turns, scope, LARGEST_TURN, now, defaults, Policy(frozenset()))
        for lines in _bodies([record.value or b"" for record in records]):
            await self._published(lines)
        if ids and seconds is not None:
            await self._stored(ids[-1], seconds)
        return ids

    async def _published(self, lines: Sequence[bytes]) -> None:
        """A turn that is sent again is the same turn."""
        headers = {"Content-Type": "application/x-ndjson"}
        call = Call("POST", "/api/turns", content=b"\n".join(lines), headers=headers)
        refused = cast("list[JsonObject]", _json(await self._send(call), "refused")["refused"])
        if refused:
            why = "; ".join(f"{each['where']}: {each['why']}" for each in refused[:5])
            raise RequestError(f"the service did not take some of the turns: {why}")

    async def _stored(self, memory_id: str, seconds: float) -> None:
        """Turns of a scope are stored in their order: the last one is waited for."""

        async def found() -> JsonValue:
            try:
                return await self.answer(GetRequest(memory_id))
            except NotFoundError:
                return None
            except ForbiddenError:
                return True  # what this token may not read cannot be waited for

        if await _polled(found, time.monotonic() + seconds) is None:
            raise NotYetAppliedError(
                f"the turns are durable, and cannot be recalled yet after {seconds:g} s"
            )

    async def processed(self, seconds: float) -> None:
        """Asks for the state of the pipeline: for a token with the permission `admin`."""
        idle = 0

        async def quiet() -> JsonValue:
            nonlocal idle
            status = cast("JsonObject", await self.answer(StatusRequest()))
            stages = cast("list[JsonObject]", status["stages"])
            # Between the commit of a batch and the sending of what it made, no stage is behind.
            idle = 0 if any(cast("int", each["lag"]) > 0 for each in stages) else idle + 1
            return True if idle > 1 else None

        if await _polled(quiet, time.monotonic() + seconds) is None:
            raise NotYetAppliedError(
                f"what was published is durable, and still on the way after {seconds:g} s"
            )


async def _polled(ask: Callable[[], Coroutine[Any, Any, JsonValue]], deadline: float) -> JsonValue:
    """What `ask` gives once it is not None; None at the deadline."""
    pause, longest = POLL_SECONDS
    while True:
        found = await ask()
        if found is not None or time.monotonic() >= deadline:
            return found
        await asyncio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(longest, 2 * pause)


def _json(answer: httpx.Response, *names: str) -> JsonObject:
    """The answer with the fields of these names. Raises RequestError for another."""
    try:
        said: JsonValue = answer.json()
    except ValueError:
        raise RequestError("the answer is no JSON; check the base_url") from None
    if not isinstance(said, dict) or not said.keys() >= {*names}:
        raise RequestError("the answer is not one of this service; check the base_url")
    return said


def _result(said: JsonObject) -> JsonValue:
    """What the service says a command did: as it is, or of one memory beside the command."""
    if "result" in said:
        return said["result"]
    return {name: value for name, value in said.items() if name not in ("command_id", "applied")}


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
