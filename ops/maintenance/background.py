"""Work alongside the stages of a worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine


@contextlib.asynccontextmanager
async def background_task(
    work: Coroutine[object, object, None], stop: Callable[[], None]
) -> AsyncIterator[None]:
    """Do `work` in the background, until the block ends. What it fails for is raised at the end of
    the block, which `stop` brings about."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: None if done.cancelled() else stop())
    try:
        yield
    finally:
        task.cancel()
        [failure] = await asyncio.gather(task, return_exceptions=True)
    if isinstance(failure, Exception):
        raise failure
