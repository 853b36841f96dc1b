"""Threads by kind of work: what takes long of one kind never keeps another waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Final, Literal, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Kind = Literal["overview", "export", "append", "body"]

_POOLS: Final[dict[Kind, ThreadPoolExecutor]] = {
    "overview": ThreadPoolExecutor(2, "overview"),  # that read all there is
    "export": ThreadPoolExecutor(2, "export"),
    "append": ThreadPoolExecutor(4, "append"),
    "body": ThreadPoolExecutor(2, "body"),  # that read what was sent
}
"""Beside the event loop's own threads, in which single things are read."""


async def threads_are_free() -> None:
    """Return once each kind of thread that every caller needs has had a turn."""
    appending, reading = (in_thread_of(kind, lambda: None) for kind in ("append", "body"))
    await asyncio.gather(asyncio.to_thread(lambda: None), appending, reading)


async def in_thread_of(kind: Kind, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `call`, run in a thread of this kind with the caller's context variables."""
    loop = asyncio.get_running_loop()
    work = partial(copy_context().run, call, *args, **kwargs)
    return await loop.run_in_executor(_POOLS[kind], work)
