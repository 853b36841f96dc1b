"""Blocking work in a thread that a stage can await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Asked = TypeVar("Asked")

_POOL: Final = ThreadPoolExecutor(8, "stage")
"""Separate from the loop's own threads, which readers may occupy completely."""
_COMPUTING: Final = ThreadPoolExecutor(2, "computing")
"""For pure computation: more threads would only compete with the event loop."""


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns the result of `call`, run in a thread while the event loop continues.

    A thread cannot be stopped: a caller that is cancelled while waiting is resumed only when the
    call has ended, so a lock around the call is never released while it runs."""
    return await _in_pool(_POOL, partial(call, *args, **kwargs))


async def computed(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for pure computation."""
    return await _in_pool(_COMPUTING, partial(call, *args, **kwargs))


async def _in_pool(pool: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    running = asyncio.get_running_loop().run_in_executor(pool, call)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()  # retrieved, so that asyncio does not report it as never retrieved
        raise cancelled
    return running.result()


def timed(now: Callable[[], float], call: Callable[[], T]) -> tuple[T, float]:
    """Returns the result of `call` and the seconds it took."""
    began = now()
    return call(), now() - began


class Together(Generic[Asked, T]):
    """Answers requests of one event loop in a thread, those that arrive during a call in the next
    one: handing over a small request costs more than answering it. `call` returns the answers in
    the order of the requests; what it raises, all of them raise."""

    def __init__(self, call: Callable[[Sequence[Asked]], Sequence[T]]) -> None:
        self._call = call
        self._waiting: list[tuple[Asked, asyncio.Future[T]]] = []
        self._task: asyncio.Task[None] | None = None

    async def ask(self, request: Asked) -> T:
        answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answered))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._answer())
        return await answered

    async def _answer(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                answers = await in_thread(self._call, [request for request, _ in batch])
            except Exception as error:
                for _, answered in batch:
                    if not answered.cancelled():
                        answered.set_exception(error)
                continue
            for (_, answered), answer in zip(batch, answers, strict=True):
                if not answered.cancelled():
                    answered.set_result(answer)
