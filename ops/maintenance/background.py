"""Work alongside the stages of a worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine


@contextlib.asynccontextmanager
async def background_task(
    work: Coroutine[object, object, None], stop: Callable[[], None]
) -> AsyncIterator[None]:
    """Runs `work` in the background until the block ends. When `work` ends, it calls `stop`, which
    ends the block; a failure is raised there."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: None if done.cancelled() else stop())
    try:
        yield
    finally:
        task.cancel()
        [failure] = await asyncio.gather(task, return_exceptions=True)
    if isinstance(failure, Exception):
        raise failure
