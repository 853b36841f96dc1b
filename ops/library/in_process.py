"""A memory in a folder that this process has open, or that it asks the process for which has."""

from __future__ import annotations

import asyncio
import contextlib
import time
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

import pyarrow as pa
from pydantic import JsonValue

from palimpsest.ops.command_kinds import CommandError
from palimpsest.ops.commanding import Commands, Given, Order
from palimpsest.ops.library.attached import Attached, Check, attached
from palimpsest.ops.library.background import Background
from palimpsest.ops.library.results import NotDoneError, NotYetAppliedError
from palimpsest.ops.library.turns import Turn, turn_records
from palimpsest.ops.parts import utc_now
from palimpsest.ops.queries.dispatch import Queries
from palimpsest.ops.queries.errors import no_memory
from palimpsest.ops.queries.requests import (
    CommandRequest,
    ExportRequest,
    JsonObject,
    Request,
    ScopeRequest,
    SqlRequest,
)
from palimpsest.ops.service.client import NotThereError
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import Actor, Command
from palimpsest.streams.sensitive.policy import Policy

T = TypeVar("T")


class InProcess(Background):
    """A memory in a folder, with stages in this process or in another. `actor` gives commands."""

    def __init__(self, settings: Settings, actor: Actor) -> None:
        super().__init__()
        self.settings = settings
        self.documents = settings.documents
        self._actor = actor
        self._undo = contextlib.AsyncExitStack()
        self._attached: Attached | None = None
        self._attaching = asyncio.Lock()

    def _begun(self) -> None:
        self._attaching = asyncio.Lock()

    async def open(self) -> Attached:
        """The memory, opened unless it is. Raises what `attached` raises."""
        async with self._attaching:
            if self._attached is None:
                self._attached = await self._undo.enter_async_context(attached(self.settings))
                for warning in self._attached.warnings:
                    warnings.warn(warning, stacklevel=2)
            return self._attached

    async def _detach(self) -> None:
        async with self._attaching:
            self._attached = None
            undo, self._undo = self._undo, contextlib.AsyncExitStack()
            await undo.aclose()

    async def _asked(self, ask: Callable[[Queries], Awaitable[T]]) -> T:
        """Of another when the worker that was asked has gone since: this process may then run the
        stages itself."""
        reached = await self.open()
        try:
            return await ask(reached.queries)
        except NotThereError:
            await self._lost(reached)
            return await ask((await self.open()).queries)

    async def _lost(self, reached: Attached) -> None:
        """The worker that was asked has gone: whoever opens next looks for another."""
        if self._attached is reached:
            await self._detach()

    async def answer(self, request: Request) -> JsonValue:
        return await self._asked(lambda asked: asked.answer(request))

    async def table(self, request: SqlRequest) -> pa.Table:
        return await self._asked(lambda asked: asked.table(request))

    async def copy_shard(self, partition: int, path: Path) -> None:
        await self._asked(lambda asked: asked.copy_shard(partition, path))

    async def export_scope(self, request: ExportRequest, path: Path) -> None:
        await self._asked(lambda asked: asked.export_scope(request, path))

    async def known(self, memory_ids: Sequence[str], scope: str) -> Sequence[str]:
        found = [cast("JsonObject", await self.answer(ScopeRequest(each))) for each in memory_ids]
        for said, memory_id in zip(found, memory_ids, strict=True):
            if said["scope"] != scope:
                raise no_memory(memory_id)
        return [str(said["id"]) for said in found]

    async def publish(
        self,
        turns: Turn | Sequence[Turn],
        scope: str,
        defaults: Mapping[str, object],
        seconds: float | None,
    ) -> tuple[str, ...]:
        most = self.settings.log.max_record_bytes
        policy = Policy.of(self.settings.pii)
        records, ids = turn_records(turns, scope, most, utc_now(), defaults, policy)
        if records:
            reached = await self.open()
            places = await asyncio.to_thread(reached.append, records)
            if seconds is not None:
                await self._until(lambda reached: reached.storing(places), seconds, "the turns are")
        return ids

    async def carry_out(
        self, scope: str, command: Command, key: str | None, seconds: float
    ) -> JsonValue:
        reached = await self.open()
        commands = Commands(self.settings, reached.append, lambda: contextlib.nullcontext(self))
        try:
            order = Order(scope, command, self._actor, key)
            command_id = (await commands.submit(order)).command_id
            return await self._result(command_id, seconds)
        except CommandError as error:
            raise NotDoneError(str(error), kind=error.kind) from error

    async def _result(self, command_id: str, seconds: float) -> JsonValue:
        said: list[JsonObject] = []

        async def answered() -> bool:
            answer = await self.answer(CommandRequest(command_id))
            if isinstance(answer, dict):
                said.append(answer)
            # On Kafka what lies in files is erased when the partition is opened next.
            waits = self.settings.log.kind == "embedded"
            erasing = isinstance(answer, dict) and answer.get("erasure") == "pending"
            return answer is not None and not (waits and erasing)

        try:
            await self._until(lambda _: answered, seconds, f"command {command_id} is")
        except NotYetAppliedError as error:
            error.command_id = command_id
            raise
        return Given(command_id, said[-1]).result()

    async def processed(self, seconds: float) -> None:
        await self._until(lambda reached: reached.idle, seconds, "what was published is")

    async def _until(
        self, checking: Callable[[Attached], Check], seconds: float, what: str
    ) -> None:
        deadline = time.monotonic() + seconds
        reached, check = None, None
        while True:
            now = await self.open()
            if check is None or now is not reached:
                reached, check = now, checking(now)
            since = now.batches
            try:
                if await check():
                    return
            except NotThereError:
                await self._lost(now)
                continue
            if time.monotonic() >= deadline:
                raise NotYetAppliedError(
                    f"{what} durable, and still on the way after {seconds:g} s: the stages are"
                    " busy or wait for a model (`palimpsest status`), and go on"
                )
            await now.moment(since)
