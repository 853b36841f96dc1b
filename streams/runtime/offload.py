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


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `call`, run in a thread while the event loop goes on.

    A thread cannot be stopped: a caller that is cancelled while waiting learns of it only when the
    call has ended, so that a lock around the call is never let go of while it still runs.
    """
    loop = asyncio.get_running_loop()
    running = loop.run_in_executor(_POOL, partial(call, *args, **kwargs))
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
