"""Attaches this process to the memory of a folder: it runs the stages, or uses those of another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

import pyarrow as pa

from palimpsest.ops.errors import RequestError
from palimpsest.ops.maintenance.embedded import Application
from palimpsest.ops.opening import publisher
from palimpsest.ops.operations.awaited_results import awaited_commands, key_of, results_of
from palimpsest.ops.operations.lifecycle.pipeline import Status
from palimpsest.ops.operations.operation import Json, Operation, Read
from palimpsest.ops.parts import utc_now
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.requests import FileRequest, JsonObject, SqlRequest
from palimpsest.ops.service.client import NotThereError
from palimpsest.ops.service.commanding import Commands
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.service.executing import Executor, NotYetAppliedError, Unrestricted
from palimpsest.ops.service.queries import Queries, queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.transport.base import BackgroundTransport, idle_at, waited_for
from palimpsest.ops.transport.turns import Turn, turn_records
from palimpsest.ops.worker.bootstrap import application
from palimpsest.ops.worker.local import serving_reads
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_WRITES
from palimpsest.streams.logs.base import LogInUse, Outgoing
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.sensitive.policy import Policy

Positions: TypeAlias = Sequence[tuple[int, int]]
"""Partition and offset of appended records."""
Check: TypeAlias = Callable[[], Awaitable[bool]]
logger = logging.getLogger(__name__)
POLL_SECONDS = 0.05
MOMENT_SECONDS = 0.5
"""Time after which to check again, even if no batch has ended."""


class Batches:
    """Counts the batches that have ended."""

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

    async def note(self, runner: StageRunner) -> None:
        self.ended()

    def ended(self) -> None:
        self.count += 1
        self._event.set()
        self._event = asyncio.Event()

    async def more(self, than: int, seconds: float) -> None:
        """Waits until there are more than that many, for a maximum of `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.count <= than:
                    await self._event.wait()


class Attached:
    """The memory of a folder, open. Its stages are those of other processes: the worker that has
    the folder, or those of a cluster."""

    warnings: Sequence[str] = ()
    result_of: Callable[[str], Awaitable[JsonObject]] | None = None
    """Waits for the stored result of a command, where it need not be polled. Raises RequestError
    when the stages have ended."""

    def __init__(self, queries: Queries, append: Callable[[Sequence[Outgoing]], Positions]) -> None:
        """`append` appends to the log, durably; it blocks."""
        self.queries = queries
        self.append = append
        self.batches = Batches()

    def storing(self, records: Sequence[Outgoing], positions: Positions) -> Check:
        """Whether the turns of these records, at these positions, are stored or refused."""
        keys = {key_of(record)[0] for record in records}

        async def stored() -> bool:
            keys.difference_update(await results_of(self.queries.answer, [*keys]))
            return not keys

        return stored

    async def idle(self) -> bool:
        """Whether nothing that was published is left to process."""
        found = idle_at(await self.queries.answer(Status()))
        return found is not None and found == idle_at(await self.queries.answer(Status()))

    async def moment(self, since: int) -> None:
        """Waits until something may have changed since `since` batches had ended. Raises
        RequestError when the stages have ended."""
        await asyncio.sleep(POLL_SECONDS)


class OwnStages(Attached):
    """Stages that run in this process; other processes may query them like a worker."""

    def __init__(self, app: Application, sources: Sources, batches: Batches) -> None:
        super().__init__(DirectQueries(sources), app.log.append)
        self._results = awaited_commands(sources)
        self.result_of = self._result_of
        self.warnings = app.warnings
        if app.gate.unusable is not None:
            waits = f"extraction waits, all else runs: {app.gate.unusable}"
            self.warnings = [*app.warnings, waits]
        self._app = app
        self.batches = batches
        self._working = asyncio.create_task(app.run(until_drained=False), name="stages")
        self._working.add_done_callback(lambda _: batches.ended())

    async def _result_of(self, command_id: str) -> JsonObject:
        result = asyncio.ensure_future(self._results.of(command_id))
        try:
            await asyncio.wait((result, self._working), return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                # The last batch may have been the command's.
                found = await self._results.find([command_id])
                return found[command_id] if command_id in found else self._raise_ended()
            return result.result()
        finally:
            result.cancel()

    def storing(self, records: Sequence[Outgoing], positions: Positions) -> Check:
        # By positions, as a query after every batch would cost more.
        app, topic = self._app, CONVERSATION_TURNS.name
        normalized = dict(sorted(positions))  # the last offset of each partition
        applied: dict[int, int] = {}

        async def stored() -> bool:
            for partition, offset in [*normalized.items()]:
                if app.log.position("normalize", topic, partition) > offset:
                    # normalize appends its output together with this position, so it comes before.
                    applied[partition] = app.log.end_offset(MEMORY_WRITES.name, partition)
                    del normalized[partition]
            return not normalized and all(
                app.shards[partition].cursor_of("apply-writes", MEMORY_WRITES.name) >= end
                for partition, end in applied.items()
            )

        return stored

    async def idle(self) -> bool:
        return self._app.worker.idle

    async def moment(self, since: int) -> None:
        if self._working.done():
            self._raise_ended()
        await self.batches.more(since, MOMENT_SECONDS)

    def _raise_ended(self) -> NoReturn:
        error = self._working.exception()
        raise RequestError(f"the stages of this memory have ended: {error}") from error

    async def finish(self) -> None:
        """Finishes the running batches. Raises what the stages raised."""
        self._app.stop()
        await self._working


@contextlib.asynccontextmanager
async def attached(settings: Settings) -> AsyncIterator[Attached]:
    """Opens the memory of the folder: with its own stages, unless a worker has the folder or the
    log is on Kafka. Raises SetupError, LogError, StoreError, FolderInUse or RequestError."""
    async with contextlib.AsyncExitStack() as undo:
        if settings.log.kind == "kafka":
            cluster = await _by_others(settings, undo)
            assert cluster is not None  # there is always a worker to look for
            yield cluster
            return
        found: Attached | None = None
        while found is None:
            try:
                batches = Batches()
                app = await undo.enter_async_context(application(settings, on_batch=batches.note))
                found = OwnStages(app, await undo.enter_async_context(serving_reads(app)), batches)
                undo.push_async_callback(found.finish)
            except LogInUse:
                found = await _by_others(settings, undo)
        yield found


@contextlib.asynccontextmanager
async def attached_queries(settings: Settings) -> AsyncIterator[Queries]:
    """Opens the memory as `attached` does, for queries that need running stages."""
    async with attached(settings) as memory:
        yield memory.queries


async def _by_others(settings: Settings, undo: contextlib.AsyncExitStack) -> Attached | None:
    """None when the worker that had the folder has just gone."""
    async with contextlib.AsyncExitStack() as asking:
        other = await asking.enter_async_context(queries(settings))
        if isinstance(other, DirectQueries):
            return None
        append = asking.enter_context(publisher(settings))
        undo.push_async_exit(asking.pop_all())
        return Attached(other, append)


T = TypeVar("T")


class InProcess(BackgroundTransport):
    """Sends operations to the memory of a folder, whose stages run in this process or in others.
    `access.actor` is the author of commands."""

    def __init__(self, settings: Settings, access: Unrestricted) -> None:
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
                    # A Python warning would show a line of this file, as a crash does.
                    logger.warning("%s", warning)
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
        commands = Commands(self.settings, reached.append, asking, result_of=reached.result_of)
        executor = Executor(self.settings, asking, commands, seconds, until_erased=True)
        return await executor.execute(operation, self._access)

    # --- queries: those of the worker that has the folder ----------------------------------------

    async def _query(self, ask: Callable[[Queries], Awaitable[T]]) -> T:
        """Returns the answer of the owner of the folder; if that worker has gone, of the next
        owner, which may be this process."""
        while True:
            reached = await self.open()
            try:
                return await ask(reached.queries)
            except NotThereError:
                await self._lost(reached)

    async def _lost(self, reached: Attached) -> None:
        """Handles a worker that has gone: the next `open` looks for another."""
        if self._attached is reached:
            await self._detach()

    async def answer(self, operation: Read[Any]) -> Json:
        return await self._query(lambda queries: queries.answer(operation))

    async def result(self, command_id: str, scope: str, seconds: float) -> JsonObject | None:
        return await self._query(lambda queries: queries.result(command_id, scope, seconds))

    async def table(self, request: SqlRequest) -> pa.Table:
        return await self._query(lambda queries: queries.table(request))

    async def write_file(self, request: FileRequest, path: Path) -> None:
        await self._query(lambda queries: queries.write_file(request, path))

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
                storing = lambda found: found.storing(records, positions)  # noqa: E731
                await self._until(storing, seconds, "the turns are")
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
            since = now.batches.count
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
