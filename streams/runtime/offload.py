"""Blocking work in a thread, as something that a stage can await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_POOL: Final = ThreadPoolExecutor(8, "stage")
"""Apart from the loop's own threads, which readers may all be using."""
_COMPUTING: Final = ThreadPoolExecutor(2, "computing")
"""For what only computes: more of them would take turns with the event loop, and do no more."""


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `call`, run in a thread while the event loop goes on.

    A thread cannot be stopped: a caller that is cancelled while waiting learns of it only when the
    call has ended, so that a lock around the call is never let go of while it still runs.
    """
    return await _in_pool(_POOL, partial(call, *args, **kwargs))


async def computed(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for work that only computes."""
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
        running.exception()  # looked at, so that it is not told as forgotten
        raise cancelled
    return running.result()


def timed(now: Callable[[], float], call: Callable[[], T]) -> tuple[T, float]:
    """The result of `call`, and the seconds that it took."""
    began = now()
    return call(), now() - began
