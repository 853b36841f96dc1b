"""A memory that is open, in a thread of its own: whoever uses it is never held up by its stages."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import warnings
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pydantic import JsonValue

from palimpsest.ops.commanding import Commands, Given, Order
from palimpsest.ops.library.attached import Attached, Check, Places, attached
from palimpsest.ops.library.results import NotYetAppliedError
from palimpsest.ops.queries.dispatch import Queries
from palimpsest.ops.queries.requests import CommandRequest, JsonObject, Request, SqlRequest
from palimpsest.ops.service.client import NotThereError
from palimpsest.ops.settings.sections import Settings
from palimpsest.streams.logs.base import Outgoing

T = TypeVar("T")

_OPEN: weakref.WeakSet[Background] = weakref.WeakSet()


def _close_all() -> None:
    for each in [*_OPEN]:
        with contextlib.suppress(Exception):  # what is wrong was told to whoever used it
            each.close()


# A program may forget to close. Before the threads of pools end, which `atexit` comes after.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]


class Background:
    """Opened by its first use. All coroutines of it run in its own event loop; `run` and
    `blocking` bring them there."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._opening = threading.Lock()
        self._undo = contextlib.AsyncExitStack()
        self._attached: Attached | None = None
        self._attaching = asyncio.Lock()

    # --- from any thread and any event loop ---------------------------------------------------

    async def run(self, work: Coroutine[object, object, T]) -> T:
        """The result of `work`, for an event loop of the caller's."""
        return await asyncio.wrap_future(self._submit(work))

    def blocking(self, work: Coroutine[object, object, T]) -> T:
        """The result of `work`, for a caller without an event loop."""
        future = self._submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # nobody waits for it any more, as after Ctrl-C
            raise

    def _submit(self, work: Coroutine[object, object, T]) -> Future[T]:
        with self._opening:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._attaching = asyncio.Lock()
                _OPEN.add(self)
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="palimpsest", daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Finish the batches under way, and let go of the folder. A later use opens it anew."""
        with self._opening:
            if self._loop is None or self._thread is None:
                return
            loop, thread = self._loop, self._thread
            try:
                asyncio.run_coroutine_threadsafe(self._detach(), loop).result()
            finally:
                asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result()
                loop.call_soon_threadsafe(loop.stop)
                thread.join()
                loop.close()
                self._loop = self._thread = None
                _OPEN.discard(self)

    # --- in its own event loop ----------------------------------------------------------------

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

    async def publish(self, records: Sequence[Outgoing]) -> Places:
        reached = await self.open()
        return await asyncio.to_thread(reached.append, records)

    async def carry_out(self, order: Order, seconds: float) -> JsonValue:
        """What a command did. Raises NotYetAppliedError when that is not known in time, and
        CommandError for one that is refused."""
        reached = await self.open()
        commands = Commands(self.settings, reached.append, lambda: contextlib.nullcontext(self))
        command_id = (await commands.submit(order)).command_id
        said: list[JsonObject] = []

        async def answered() -> bool:
            answer = await self.answer(CommandRequest(command_id))
            if isinstance(answer, dict):
                said.append(answer)
            # On Kafka what lies in files is erased when the partition is opened next.
            waits = self.settings.log.kind == "embedded"
            erasing = isinstance(answer, dict) and answer.get("erasure") == "pending"
            return answer is not None and not (waits and erasing)

        await self._until(lambda _: answered, seconds, f"command {command_id} is")
        return Given(command_id, said[-1]).result()

    async def stored(self, turns: Places, seconds: float) -> None:
        """Until the turns at these places can be recalled. Raises NotYetAppliedError."""
        await self._until(lambda reached: reached.storing(turns), seconds, "the turns are")

    async def processed(self, seconds: float) -> None:
        """Until nothing that was published is left to process. Raises NotYetAppliedError."""
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
