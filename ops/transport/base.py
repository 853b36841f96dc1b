"""`Transport`, which sends operations to a memory and returns their answers, and the event loop in
a thread in which the library's transports run."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from palimpsest.ops.documents.settings import DocumentSettings
from palimpsest.ops.errors import CommandError, RequestError
from palimpsest.ops.operations.answers import MemoryChange
from palimpsest.ops.operations.checking import typed
from palimpsest.ops.operations.operation import Json, Operation, answer_type
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.service.executing import refusal

if TYPE_CHECKING:
    import pyarrow as pa

    from palimpsest.ops.transport.turns import Turn

R = TypeVar("R")
T = TypeVar("T")
CLOSED: Final = "the memory was closed in the meantime; what was published is durable"

_OPEN: weakref.WeakSet[BackgroundTransport] = weakref.WeakSet()


class NotDoneError(CommandError):
    """A command, or part of it, was refused. `kind` is the reason (see
    `palimpsest.ops.errors.Kind`), of the first refused memory if `changes` has the outcome
    of each."""

    code = "not_done"

    @property
    def changes(self) -> tuple[MemoryChange, ...]:
        """The outcome of each memory, where the command was executed."""
        answer: Any = self.answer or {}
        # The answer itself is the outcome of a command on one memory.
        rows = answer.get("changes", [answer] if "id" in answer else [])
        return typed(tuple[MemoryChange, ...], rows)  # type: ignore[no-any-return]


def waited_for(status: Json) -> str:
    """Why the stages are not finished, according to the status."""
    reasons = [each["reason"] for each in status["providers"].values() if each["reason"]]
    return f"waiting for a model: {'; '.join(reasons)}" if reasons else "the stages are busy"


def idle_at(status: Json) -> dict[tuple[str, int], int] | None:
    """The cursors of the stages if none has a lag, else None.

    The partitions of one process have no lag at one moment; those of several are asked one after
    the other, so only two equal answers in a row show that nothing is left."""
    if any(each["lag"] > 0 for each in status["stages"]):
        return None
    return {(each["stage"], each["partition"]): each["cursor"] for each in status["stages"]}


class Transport(ABC):
    """Sends operations. An operation must be executed within `seconds`; a transport with its own
    event loop runs the work there."""

    @abstractmethod
    async def execute(self, operation: Operation[Any], seconds: float) -> Json:
        """Returns the answer as JSON. Raises RequestError; CommandError or NotDoneError for a
        refused command; NotYetAppliedError for one without a result in time."""

    async def send(self, operation: Operation[R], seconds: float) -> R:
        """Returns the typed answer. Raises RequestError, NotDoneError if any part of a command was
        refused, and NotYetAppliedError for a command without a result in time."""
        try:
            answer = await self.execute(operation, seconds)
            refused = refusal(answer)
            if refused is not None:
                raise refused
        except NotDoneError:
            raise
        except CommandError as error:
            known = (error.kind, str(error), error.command_id, error.answer)
            raise NotDoneError(*known) from error
        result: R = typed(answer_type(type(operation)), answer)
        return result

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` in the transport's event loop."""
        return await work


class BackgroundTransport(Transport):
    """A transport with an event loop in its own thread, started on first use. `run` and `blocking`
    submit work to it."""

    documents = DocumentSettings()
    """Settings for reading files before they are added."""

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
            future.cancel()  # nothing waits for it any more, for example after Ctrl-C
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
        """Called when a new event loop has started, before anything runs in it."""

    @abstractmethod
    async def open(self) -> object:
        """Connects to the memory. Raises the error that prevents it."""

    @abstractmethod
    async def _detach(self) -> None:
        """Releases what `open` acquired."""

    @abstractmethod
    async def table(self, request: SqlRequest) -> pa.Table:
        """Returns the result of an SQL query. Raises RequestError."""

    @abstractmethod
    async def publish(
        self,
        turns: Turn | Sequence[Turn],
        scope: str,
        defaults: Mapping[str, object],
        seconds: float | None,
    ) -> tuple[str, ...]:
        """Publishes turns and returns the ids of their future memories. They are then durable; with
        `seconds`, they can also be recalled. Raises RequestError and NotYetAppliedError."""

    @abstractmethod
    async def processed(self, seconds: float) -> None:
        """Waits until everything published is processed. Raises NotYetAppliedError."""


def _close_all() -> None:
    for each in [*_OPEN]:
        with contextlib.suppress(Exception):  # callers have already received the error
            each.close()


# A program may forget to close. `atexit` would be too late: the threads of pools end before it.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]


async def _cancel_others() -> None:
    """Cancels the work that other threads wait for."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
