"""Attaches this process to the memory of a folder: it runs the stages, or uses those of another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NoReturn, Protocol, TypeAlias, cast

from palimpsest.ops.awaited_results import AwaitedResults
from palimpsest.ops.bootstrap import application
from palimpsest.ops.commanding import POLL_SECONDS
from palimpsest.ops.embedded import Application
from palimpsest.ops.errors import RequestError
from palimpsest.ops.opening import publisher
from palimpsest.ops.operations.pipeline import CommandResult, Status, command_results
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.queries import DirectQueries, Queries, queries
from palimpsest.ops.service.running import serving_reads
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_WRITES
from palimpsest.streams.logs.base import LogInUse, Outgoing
from palimpsest.streams.runtime.runner import StageRunner

Positions: TypeAlias = Sequence[tuple[int, int]]
"""Partition and offset of appended records."""
Check: TypeAlias = Callable[[], Awaitable[bool]]
MOMENT_SECONDS = 0.5
"""Time after which to check again, even if no batch has ended."""


class Attached(Protocol):
    """The memory of a folder, open."""

    queries: Queries
    warnings: Sequence[str]

    @property
    def batches(self) -> int:
        """How many batches have ended here."""
        ...

    def append(self, records: Sequence[Outgoing]) -> Positions:
        """Append to the log, durably. Blocks."""
        ...

    async def result_of(self, command_id: str) -> JsonObject:
        """Waits for the stored result of a command. Raises RequestError when the stages have ended,
        and NotThereError when the worker has gone."""
        ...

    def storing(self, turns: Positions) -> Check:
        """Whether apply-writes has settled the turns at these positions, by storing or refusing."""
        ...

    async def idle(self) -> bool:
        """Whether nothing that was published is left to process."""
        ...

    async def moment(self, since: int) -> None:
        """Wait until something may have changed since `since` batches had ended. Raises
        RequestError when the stages have ended."""
        ...


class OwnStages:
    """Stages that run in this process; other processes may query them like a worker."""

    def __init__(
        self, app: Application, own: Queries, batches: Batches, results: AwaitedResults[str]
    ) -> None:
        self.queries = own
        self._results = results
        self.warnings: Sequence[str] = app.warnings
        if app.gate.unusable is not None:
            waits = f"extraction waits, all else runs: {app.gate.unusable}"
            self.warnings = [*app.warnings, waits]
        self._app = app
        self._batches = batches
        self._working = asyncio.create_task(app.run(until_drained=False), name="stages")
        self._working.add_done_callback(lambda _: batches.ended())

    def append(self, records: Sequence[Outgoing]) -> Positions:
        return self._app.log.append(records)

    async def result_of(self, command_id: str) -> JsonObject:
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

    def storing(self, turns: Positions) -> Check:
        app, topic = self._app, CONVERSATION_TURNS.name
        normalized = dict(sorted(turns))  # the last offset of each partition
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

    @property
    def batches(self) -> int:
        return self._batches.count

    async def moment(self, since: int) -> None:
        if self._working.done():
            self._raise_ended()
        await self._batches.more(since, MOMENT_SECONDS)

    def _raise_ended(self) -> NoReturn:
        error = self._working.exception()
        raise RequestError(f"the stages of this memory have ended: {error}") from error

    async def finish(self) -> None:
        """Finishes the running batches. Raises what the stages raised."""
        self._app.stop()
        await self._working


class Batches:
    """Counts the batches that have ended."""

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

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


class OtherStages:
    """Stages of other processes: the worker that has the folder, or those of a cluster."""

    warnings: Sequence[str] = ()
    batches = 0

    def __init__(self, other: Queries, append: Callable[[Sequence[Outgoing]], Positions]) -> None:
        self.queries = other
        self.append = append

    async def result_of(self, command_id: str) -> JsonObject:
        while True:
            found = await self.queries.answer(CommandResult(command_id))
            if found is not None:
                return cast("JsonObject", found)
            await asyncio.sleep(POLL_SECONDS)

    def storing(self, turns: Positions) -> Check:
        partitions = {partition for partition, _ in turns}

        async def stored() -> bool:
            return not await self._waiting(("normalize", "apply-writes"), partitions)

        return stored

    async def idle(self) -> bool:
        # Between the commit of a batch and the sending of its output, no stage has a lag.
        if await self._waiting():
            return False
        await asyncio.sleep(POLL_SECONDS)
        return not await self._waiting()

    async def _waiting(
        self, only: Sequence[str] = (), partitions: set[int] | None = None
    ) -> list[str]:
        status = cast("JsonObject", await self.queries.answer(Status()))
        return [
            str(stage["stage"])
            for stage in cast("list[JsonObject]", status["stages"])
            if (not only or stage["stage"] in only)
            and (partitions is None or stage["partition"] in partitions)
            and cast("int", stage["lag"]) > 0
        ]

    async def moment(self, since: int) -> None:
        await asyncio.sleep(POLL_SECONDS)


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
                found = await _by_itself(settings, undo)
            except LogInUse:
                found = await _by_others(settings, undo)
        yield found


async def _by_itself(settings: Settings, undo: contextlib.AsyncExitStack) -> OwnStages:
    batches, results = Batches(), AwaitedResults[str]()

    async def note(runner: StageRunner) -> None:
        batches.ended()
        await results.note(runner)

    app = await undo.enter_async_context(application(settings, on_batch=note))
    sources = await undo.enter_async_context(serving_reads(app))
    results.find = lambda ids: asyncio.to_thread(command_results, sources, ids)
    own = OwnStages(app, DirectQueries(sources), batches, results)
    undo.push_async_callback(own.finish)
    return own


async def _by_others(settings: Settings, undo: contextlib.AsyncExitStack) -> OtherStages | None:
    """None when the worker that had the folder has just gone."""
    async with contextlib.AsyncExitStack() as asking:
        other = await asking.enter_async_context(queries(settings))
        if isinstance(other, DirectQueries):
            return None
        append = asking.enter_context(publisher(settings))
        undo.push_async_exit(asking.pop_all())
        return OtherStages(other, append)
