"""A memory as the methods of the library work with it, wherever it lies: asked and told in an event
loop of its own, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from pydantic import JsonValue

from palimpsest.ops.documents.settings import DocumentSettings
from palimpsest.ops.library.arguments import MOST
from palimpsest.ops.queries.errors import RequestError
from palimpsest.ops.queries.requests import Request, SqlRequest
from palimpsest.schemas.commands import Command

if TYPE_CHECKING:
    import pyarrow as pa

    from palimpsest.ops.library.turns import Turn

T = TypeVar("T")
CLOSED: Final = "the memory was closed while this was under way; what was published is durable"

_OPEN: weakref.WeakSet[Background] = weakref.WeakSet()


def _close_all() -> None:
    for each in [*_OPEN]:
        with contextlib.suppress(Exception):  # what is wrong was told to whoever used it
            each.close()


# A program may forget to close. Before the threads of pools end, which `atexit` comes after.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]


class Background(ABC):
    """Opened by its first use. All coroutines of it run in its own event loop; `run` and
    `blocking` bring them there."""

    most_results: ClassVar[int] = MOST
    """That may be asked for at once."""
    documents: DocumentSettings
    """How documents are read before they are given."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._opening = threading.Lock()

    # --- from any thread and any event loop ---------------------------------------------------

    async def run(self, work: Coroutine[object, object, T]) -> T:
        """The result of `work`, for an event loop of the caller's. Raises RequestError where this
        is closed meanwhile."""
        future = self._submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise RequestError(CLOSED) from None

    def blocking(self, work: Coroutine[object, object, T]) -> T:
        """The result of `work`, for a caller without an event loop. Raises RequestError where this
        is closed meanwhile."""
        future = self._submit(work)
        try:
            return future.result()
        except CancelledError:
            raise RequestError(CLOSED) from None
        except BaseException:
            future.cancel()  # nobody waits for it any more, as after Ctrl-C
            raise

    def _submit(self, work: Coroutine[object, object, T]) -> Future[T]:
        with self._opening:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._begun()
                _OPEN.add(self)
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="palimpsest", daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Finish what is under way, and let go. A later use opens it anew."""
        with self._opening:
            if self._loop is None or self._thread is None:
                return
            loop, thread = self._loop, self._thread
            try:
                asyncio.run_coroutine_threadsafe(self._detach(), loop).result()
            finally:
                asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result()
                asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result()
                loop.call_soon_threadsafe(loop.stop)
                thread.join()
                loop.close()
                self._loop = self._thread = None
                _OPEN.discard(self)

    # --- in its own event loop ----------------------------------------------------------------

    @abstractmethod
    def _begun(self) -> None:
        """There is a new event loop; nothing runs in it yet."""

    @abstractmethod
    async def open(self) -> object:
        """Make sure that the memory can be reached. Raises what keeps it from that."""

    @abstractmethod
    async def _detach(self) -> None:
        """Let go of what was opened."""

    @abstractmethod
    async def answer(self, request: Request) -> JsonValue:
        """Raises RequestError."""

    @abstractmethod
    async def table(self, request: SqlRequest) -> pa.Table:
        """Raises RequestError."""

    @abstractmethod
    async def known(self, memory_ids: Sequence[str], scope: str) -> Sequence[str]:
        """The full ids of memories that a command will name. One of another scope is as unknown as
        one that never was. Raises NotFoundError."""

    @abstractmethod
    async def carry_out(
        self, scope: str, command: Command, key: str | None, seconds: float
    ) -> JsonValue:
        """What a command did; under the same `key` it is done once. Raises NotYetAppliedError when
        that is not known after so many seconds, and NotDoneError for one that is refused."""

    @abstractmethod
    async def publish(
        self,
        turns: Turn | Sequence[Turn],
        scope: str,
        defaults: Mapping[str, object],
        seconds: float | None,
    ) -> tuple[str, ...]:
        """The ids of the memories that turns become, which are durable then. With `seconds`, when
        they can be recalled. Raises RequestError and NotYetAppliedError."""

    @abstractmethod
    async def processed(self, seconds: float) -> None:
        """Until nothing that was published is left to process. Raises NotYetAppliedError."""


async def _cancel_others() -> None:
    """What other threads wait for."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
