"""Waiting for the results of many commands at once, where the stages run in the same process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from palimpsest.ops.errors import NotOpenError
from palimpsest.ops.operations.results import command_results
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.sources import Sources
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.streams.runtime.runner import StageRunner

EXECUTING_STAGES = frozenset({"apply-writes", "graph-persist", "audit"})
"""Stages after whose batches a command may have a result; audit stores dead letters."""
LOOK_SECONDS = 0.25
"""After which it is looked anyhow: a result may have come before it was waited for."""


class AwaitedResults:
    """One query for all that wait, after every batch that may have carried a command out: each
    asking for itself every few milliseconds keeps a whole core busy with sixteen clients."""

    def __init__(self) -> None:
        self._awaited: dict[str, list[asyncio.Future[JsonObject]]] = {}
        self._batch_ended = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self.sources: Sources | None = None
        """Where results are; to be set before one is waited for."""

    async def note(self, runner: StageRunner) -> None:
        """Call after every batch."""
        if runner.stage.name in EXECUTING_STAGES:
            self._batch_ended.set()

    async def of(self, command_id: str) -> JsonObject:
        """The result of a command, as `command_result` tells it, once there is one. Raises
        NotOpenError when the stores are closed before, and what reading them raises."""
        future: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(command_id, []).append(future)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="command results")
        try:
            return await future
        finally:
            self._awaited[command_id].remove(future)
            if not self._awaited[command_id]:
                del self._awaited[command_id]

    async def _look(self) -> None:
        try:
            while self._awaited:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._batch_ended.wait(), LOOK_SECONDS)
                self._batch_ended.clear()
                await self._tell([*self._awaited])
        finally:
            self._looking = None

    async def _tell(self, command_ids: Sequence[str]) -> None:
        assert self.sources is not None
        found: Mapping[str, JsonObject] = {}
        failure: Exception | None = None
        try:
            found = await asyncio.to_thread(command_results, self.sources, command_ids)
        except StoreClosed as error:
            failure = NotOpenError(str(error))
        except Exception as error:
            failure = error  # the waiting caller gets the error
        for command_id in command_ids:
            for future in self._awaited.get(command_id, ()):
                if future.done():
                    continue
                if failure is not None:
                    future.set_exception(failure)
                elif command_id in found:
                    future.set_result(found[command_id])
        # Those who waited let go of their places.
        await asyncio.sleep(0)
