"""How an operation reaches a memory and its answer comes back: `Transport`, and the event loop in a
thread that transports of the library run in."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from palimpsest.ops.command_kinds import CommandError
from palimpsest.ops.documents.settings import DocumentSettings
from palimpsest.ops.errors import RequestError
from palimpsest.ops.operations.answers import MemoryChange
from palimpsest.ops.operations.checking import typed
from palimpsest.ops.operations.executing import refusal
from palimpsest.ops.operations.operation import Json, Operation, Write, answer_type
from palimpsest.ops.requests import SqlRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from palimpsest.ops.transport.turns import Turn

R = TypeVar("R")
T = TypeVar("T")
CLOSED: Final = "the memory was closed in the meantime; what was published is durable"

_OPEN: weakref.WeakSet[BackgroundTransport] = weakref.WeakSet()


class NotDoneError(RequestError):
    """A command was refused, or part of it. `kind` is why (see
    `palimpsest.ops.command_kinds.Kind`), for the first memory where `changes` has what became of
    each."""

    code = "not_done"

    def __init__(
        self,
        text: str,
        kind: str = "failed",
        changes: tuple[MemoryChange, ...] = (),
        command_id: str | None = None,
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.changes = changes
        self.command_id = command_id

    @classmethod
    def of(cls, error: CommandError) -> NotDoneError:
        answer: Any = error.answer or {}
        # What came of a command about one memory is in the answer itself.
        rows = answer.get("changes", [answer] if "id" in answer else [])
        changes = typed(tuple[MemoryChange, ...], rows)
        return cls(str(error), error.kind, changes, error.command_id)


class Transport(ABC):
    """Where operations are sent. An operation must be executed within `seconds`; a transport with
    an event loop of its own brings the work there."""

    @abstractmethod
    async def execute(self, operation: Operation[Any], seconds: float) -> Json:
        """The answer as JSON. Raises RequestError; CommandError or NotDoneError for a refused
        command; NotYetAppliedError for one without a result in time."""

    async def send(self, operation: Operation[R], seconds: float) -> R:
        """The answer with its type. Raises RequestError, NotDoneError where any part of a command
        was refused, and NotYetAppliedError for a command without a result in time."""
        try:
            answer = await self.execute(operation, seconds)
            refused = refusal(answer, operation)
            if refused is not None:
                raise refused
        except CommandError as error:
            raise NotDoneError.of(error) from error
        instead = operation.instead() if isinstance(operation, Write) else None
        result: R = typed(answer_type(type(instead or operation)), answer)
        return result

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` where the transport works."""
        return await work


class BackgroundTransport(Transport):
    """A transport with an event loop in a thread of its own, opened by its first use. `run` and
    `blocking` bring work there."""

    documents = DocumentSettings()
    """How files are read before they are added."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._opening = threading.Lock()

    # --- from any thread and any event loop ---------------------------------------------------

    async def send(self, operation: Operation[R], seconds: float) -> R:
        return await self.run(super().send(operation, seconds))

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, for the caller's event loop. Raises RequestError if the transport
        is closed in the meantime."""
        future = self._submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise RequestError(CLOSED) from None

    def blocking(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, for a caller without an event loop. Raises RequestError if the
        transport is closed in the meantime."""
        future = self._submit(work)
        try:
            return future.result()
        except CancelledError:
            raise RequestError(CLOSED) from None
        except BaseException:
            future.cancel()  # no one waits for it any more, as after Ctrl-C
            raise

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._opening:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._loop_started()
                _OPEN.add(self)
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="palimpsest", daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Finish the work in progress and release everything. A later use opens it again."""
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
    def _loop_started(self) -> None:
        """There is a new event loop, in which nothing runs yet."""

    @abstractmethod
    async def open(self) -> object:
        """Make sure that the memory can be reached. Raises what prevents that."""

    @abstractmethod
    async def _detach(self) -> None:
        """Release what was opened."""

    @abstractmethod
    async def table(self, request: SqlRequest) -> pa.Table:
        """The result of a query in SQL. Raises RequestError."""

    @abstractmethod
    async def publish(
        self,
        turns: Turn | Sequence[Turn],
        scope: str,
        defaults: Mapping[str, object],
        seconds: float | None,
    ) -> tuple[str, ...]:
        """Publish turns, and return the ids of the memories that they become. They are durable
        then; with `seconds`, they can also be recalled. Raises RequestError and
        NotYetAppliedError."""

    @abstractmethod
    async def processed(self, seconds: float) -> None:
        """Wait until nothing that was published is left to process. Raises NotYetAppliedError."""


def _close_all() -> None:
    for each in [*_OPEN]:
        with contextlib.suppress(Exception):  # its users have been told what is wrong
            each.close()


# A program may forget to close. `atexit` would be too late: the threads of pools end before it.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]


async def _cancel_others() -> None:
    """Cancel what other threads wait for."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
