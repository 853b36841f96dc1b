"""The lock of a store: one at a time, and what others wait for first."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from palimpsest.stores.lock import StoreLock


async def test_what_is_ahead_comes_before_all_that_wait() -> None:
    lock = StoreLock()
    came: list[str] = []

    async def held(name: str, by: AbstractAsyncContextManager[None]) -> None:
        async with by:
            came.append(name)

    async with asyncio.TaskGroup() as group, lock:
        for name in ("first", "second"):
            group.create_task(held(name, lock))
        group.create_task(held("awaited", lock.ahead()))
        await asyncio.sleep(0)
    assert came == ["awaited", "first", "second"]


async def test_one_that_is_cancelled_leaves_the_lock_to_the_next() -> None:
    lock = StoreLock()
    came: list[str] = []

    async def held(name: str) -> None:
        async with lock:
            came.append(name)

    async with lock:
        tasks = [asyncio.create_task(held(name)) for name in ("waits", "is handed it", "next")]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
    tasks[1].cancel()  # it has the lock, and has not been woken yet
    await asyncio.gather(*tasks, return_exceptions=True)
    assert came == ["next"]
    async with lock:
        assert came == ["next"]
