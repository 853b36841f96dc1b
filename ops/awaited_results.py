"""Waiting for what becomes of many commands or turns at once: one query for all that wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from palimpsest.ops.errors import NotOpenError
from palimpsest.ops.requests import JsonObject
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.streams.runtime.runner import StageRunner

K = TypeVar("K")
EXECUTING_STAGES = frozenset({"apply-writes", "graph-persist", "audit"})
"""Stages after whose batches there may be a result; audit stores dead letters."""
LOOK_SECONDS = 0.25
"""After which it is looked anyhow: a result may have come before it was waited for."""


class AwaitedResults(Generic[K]):
    """One query for all that wait, after every batch that may have settled something: each
    asking for itself every few milliseconds keeps a whole core busy with sixteen clients.

    `find` returns the results that there are of what waits; it is set before anything does."""

    find: Callable[[Sequence[K]], Awaitable[Mapping[K, JsonObject]]]

    def __init__(self) -> None:
        self._awaited: dict[K, list[asyncio.Future[JsonObject]]] = {}
        self._batch_ended = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def note(self, runner: StageRunner) -> None:
        """Call after every batch, where the stages run in this process."""
        if runner.stage.name in EXECUTING_STAGES:
            self._batch_ended.set()

    async def of(self, key: K) -> JsonObject:
        """The result, once there is one. Raises NotOpenError when the stores are closed before, and
        what reading them raises."""
        future: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(key, []).append(future)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="results")
        try:
            return await future
        finally:
            self._awaited[key].remove(future)
            if not self._awaited[key]:
                del self._awaited[key]

    async def _look(self) -> None:
        try:
            while self._awaited:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._batch_ended.wait(), LOOK_SECONDS)
                self._batch_ended.clear()
                await self._tell([*self._awaited])
        finally:
            self._looking = None

    async def _tell(self, keys: Sequence[K]) -> None:
        found: Mapping[K, JsonObject] = {}
        failure: Exception | None = None
        try:
            found = await self.find(keys)
        except StoreClosed as error:
            failure = NotOpenError(str(error))
        except Exception as error:
            failure = error  # the waiting caller gets the error
        for key in keys:
            for future in self._awaited.get(key, ()):
                if future.done():
                    continue
                if failure is not None:
                    future.set_exception(failure)
                elif key in found:
                    future.set_result(found[key])
        # Those who waited let go of their places.
        await asyncio.sleep(0)
