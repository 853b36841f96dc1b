"""Waits for the results of many commands or turns with one query for all waiting callers."""

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
"""Stages whose batches may produce a result; audit stores dead letters."""
LOOK_SECONDS = 0.25
"""Polling interval without batches: a result may have arrived before the wait began."""


class AwaitedResults(Generic[K]):
    """Runs one query for all waiting callers, after every batch that may have produced results:
    with sixteen clients, individual polling every few milliseconds would keep a whole core busy.

    `find` returns the available results of the given keys; set it before the first wait."""

    find: Callable[[Sequence[K]], Awaitable[Mapping[K, JsonObject]]]

    def __init__(self) -> None:
        self._awaited: dict[K, list[asyncio.Future[JsonObject]]] = {}
        self._batch_ended = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def note(self, runner: StageRunner) -> None:
        """Call this after every batch if the stages run in this process."""
        if runner.stage.name in EXECUTING_STAGES:
            self._batch_ended.set()

    async def of(self, key: K) -> JsonObject:
        """Waits for the result. Raises NotOpenError if the stores are closed first, and the errors
        of reading them."""
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
                await self._deliver([*self._awaited])
        finally:
            self._looking = None

    async def _deliver(self, keys: Sequence[K]) -> None:
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
        # Let the waiting callers remove their futures.
        await asyncio.sleep(0)
