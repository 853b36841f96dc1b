"""Blocking work in a thread: its result, its error, and that nobody leaves before it has ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from palimpsest.streams.runtime.offload import Together, in_thread


async def test_gives_the_result_and_raises_the_error() -> None:
    assert await in_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 7, 0)


async def test_the_loop_goes_on_meanwhile() -> None:
    go_on = threading.Event()
    waiting = asyncio.create_task(in_thread(go_on.wait, 30))
    await asyncio.sleep(0)
    go_on.set()
    assert await waiting


async def test_who_is_cancelled_waits_for_the_end() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(30)
        ended.set()

    lock = asyncio.Lock()

    async def hold() -> None:
        async with lock:
            await in_thread(work)

    task = asyncio.create_task(hold())
    await asyncio.to_thread(begun.wait, 30)
    for _ in range(2):
        task.cancel()
        await asyncio.wait([task], timeout=0.05)
        assert lock.locked()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert not lock.locked()


async def test_requests_during_a_call_are_answered_together() -> None:
    calls: list[list[int]] = []
    begun, may_end = asyncio.Event(), threading.Event()
    begin = asyncio.get_running_loop().call_soon_threadsafe

    def halves(numbers: Sequence[int]) -> list[int]:
        calls.append([*numbers])
        begin(begun.set)
        may_end.wait(30)
        return [12 // number for number in numbers]

    together = Together(halves)
    first = asyncio.create_task(together.ask(6))
    await begun.wait()
    later = [asyncio.create_task(together.ask(number)) for number in (1, 2, 3)]
    await asyncio.sleep(0)
    later[1].cancel()
    may_end.set()
    assert await first == 2
    assert [await later[0], await later[2]] == [12, 4]
    assert calls == [[6], [1, 2, 3]]
    with pytest.raises(ZeroDivisionError):
        await together.ask(0)
    assert await together.ask(4) == 3
