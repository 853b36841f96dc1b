"""A memory in a folder: this process runs its stages, or uses those of another process."""

from __future__ import annotations

import asyncio
import contextlib
import time
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import pyarrow as pa

from palimpsest.ops.commanding import Commands
from palimpsest.ops.operations.executing import Executor, NotYetAppliedError, OneScope
from palimpsest.ops.operations.operation import Json, Operation, Read
from palimpsest.ops.operations.pipeline import Status
from palimpsest.ops.parts import utc_now
from palimpsest.ops.requests import ExportRequest, JsonObject, SqlRequest
from palimpsest.ops.service.client import NotThereError
from palimpsest.ops.service.queries import Queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.transport.attached import Attached, Check, attached
from palimpsest.ops.transport.base import BackgroundTransport, waited_for
from palimpsest.ops.transport.turns import Turn, turn_records
from palimpsest.streams.sensitive.policy import Policy

T = TypeVar("T")


class InProcess(BackgroundTransport):
    """Sends operations to the memory of a folder, whose stages run in this process or in others.
    `access.actor` is the author of commands."""

    def __init__(self, settings: Settings, access: OneScope) -> None:
        super().__init__()
        self.settings = settings
        self.documents = settings.documents
        self._access = access
        self._undo = contextlib.AsyncExitStack()
        self._attached: Attached | None = None
        self._attaching = asyncio.Lock()

    def _loop_started(self) -> None:
        self._attaching = asyncio.Lock()

    async def open(self) -> Attached:
        """Returns the memory, opening it if necessary. Raises what `attached` raises."""
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

    # --- operations -----------------------------------------------------------------------------

    async def execute(self, operation: Operation[Any], seconds: float) -> Json:
        reached = await self.open()
        asking = lambda: contextlib.nullcontext(cast("Queries", self))  # noqa: E731
        commands = Commands(self.settings, reached.append, asking, result_of=self._result)
        executor = Executor(self.settings, asking, commands, seconds, until_erased=True)
        return await executor.execute(operation, self._access)

    async def _result(self, command_id: str) -> JsonObject:
        """Waits for the stored result of a command."""
        while True:
            reached = await self.open()
            try:
                return await reached.result_of(command_id)
            except NotThereError:
                await self._lost(reached)

    # --- queries: those of the worker that has the folder ----------------------------------------

    async def _query(self, ask: Callable[[Queries], Awaitable[T]]) -> T:
        """Returns the answer of the owner of the folder; if that worker has gone, of the next
        owner, which may be this process."""
        reached = await self.open()
        try:
            return await ask(reached.queries)
        except NotThereError:
            await self._lost(reached)
            return await ask((await self.open()).queries)

    async def _lost(self, reached: Attached) -> None:
        """Handles a worker that has gone: the next `open` looks for another."""
        if self._attached is reached:
            await self._detach()

    async def answer(self, operation: Read[Any]) -> Json:
        return await self._query(lambda queries: queries.answer(operation))

    async def table(self, request: SqlRequest) -> pa.Table:
        return await self._query(lambda queries: queries.table(request))

    async def copy_shard(self, partition: int, path: Path) -> None:
        await self._query(lambda queries: queries.copy_shard(partition, path))

    async def export_scope(self, request: ExportRequest, path: Path) -> None:
        await self._query(lambda queries: queries.export_scope(request, path))

    # --- turns ------------------------------------------------------------------------------------

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
            positions = await asyncio.to_thread(reached.append, records)
            if seconds is not None:
                await self._until(lambda found: found.storing(positions), seconds, "the turns are")
        return ids

    async def processed(self, seconds: float) -> None:
        await self._until(lambda found: found.idle, seconds, "what was published is")

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
                reason = waited_for(await self.answer(Status()))
                raise NotYetAppliedError(
                    f"{what} durable, and still pending after {seconds:g} s: {reason}, and go on"
                )
            await now.moment(since)
