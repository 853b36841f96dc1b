"""Work that is repeated: when a round begins, what a failure does, and how it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest

from palimpsest.ops.scheduling.periodic import PeriodicTask, in_thread, running
from palimpsest.streams.logs.base import LogError

PATIENCE_SECONDS = 30


class Timeline:
    """A clock that only rounds and pauses move. Ends a task at `until` seconds."""

    def __init__(self, until: float) -> None:
        self.now = 0.0
        self.until = until
        self.begun: list[float] = []
        self.over = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.until:
            self.over.set()
            await asyncio.Event().wait()

    def taking(
        self, lengths: Sequence[float], pauses: Sequence[float | None] = ()
    ) -> Callable[[], Awaitable[float | None]]:
        left, asked = [*lengths], [*pauses]

        async def one() -> float | None:
            self.begun.append(self.now)
            self.now += left.pop(0) if left else 0.0
            return asked.pop(0) if asked else None

        return one

    async def of(self, every: float, one: Callable[[], Awaitable[float | None]]) -> list[float]:
        task = PeriodicTask("it", every, one, monotonic=lambda: self.now, wait=self.wait)
        async with asyncio.timeout(PATIENCE_SECONDS), task.running():
            await self.over.wait()
        return self.begun


async def test_rounds_do_not_drift() -> None:
    line = Timeline(until=60)
    assert await line.of(10, line.taking([3, 4, 0, 9])) == [0, 10, 20, 30, 40, 50]


async def test_a_round_that_takes_longer_skips_those_that_were_due() -> None:
    line = Timeline(until=60)
    assert await line.of(10, line.taking([25, 3])) == [0, 30, 40, 50]


async def test_a_round_says_when_the_next_is_due() -> None:
    line = Timeline(until=40)
    assert await line.of(10, line.taking([1, 1, 1], [0.0, 4.0])) == [0, 1, 6, 16, 26, 36]


async def test_an_event_wakes_it() -> None:
    rounds = asyncio.Semaphore(0)

    async def one() -> None:
        rounds.release()

    task = PeriodicTask("it", 3_600, one)
    async with asyncio.timeout(PATIENCE_SECONDS), task.running():
        for _ in range(3):
            await rounds.acquire()
            task.wake()


async def test_the_first_round_may_come_later() -> None:
    line = Timeline(until=25)
    task = PeriodicTask(
        "it", 10, line.taking([]), first=10, monotonic=lambda: line.now, wait=line.wait
    )
    async with asyncio.timeout(PATIENCE_SECONDS), task.running():
        await line.over.wait()
    assert line.begun == [10, 20]


@pytest.mark.parametrize("kind", [LogError, OSError])
async def test_a_failure_is_reported_once_and_tried_again(
    caplog: pytest.LogCaptureFixture, kind: type[Exception]
) -> None:
    failures = [kind("full"), kind("full"), None, kind("full"), kind("gone"), None]
    line = Timeline(until=60)

    async def one() -> None:
        line.begun.append(line.now)
        if (failure := failures.pop(0)) is not None:
            raise failure

    assert len(await line.of(10, one)) == 6
    assert [record.getMessage().rpartition(" ")[2] for record in caplog.records] == [
        "full",
        "full",
        "gone",
    ]


async def test_an_error_in_the_program_stops_the_block_and_is_raised() -> None:
    stopped = asyncio.Event()

    async def one() -> None:
        raise KeyError("no such thing")

    async def other() -> None:
        pass

    tasks = [PeriodicTask("broken", 1, one, last=True), PeriodicTask("other", 1, other)]
    with pytest.raises(KeyError, match="no such thing"):
        async with asyncio.timeout(PATIENCE_SECONDS), running(tasks, stopped.set):
            await stopped.wait()


async def test_it_ends_with_its_block_and_does_the_rest_last() -> None:
    """Also if the round that the end interrupts is in a thread: the last one waits for it."""
    entered, leave, done = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        entered.set()
        assert leave.wait(PATIENCE_SECONDS)
        done.append("round")

    task = PeriodicTask("it", 3_600, in_thread(work), last=True)
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with task.running():
            await asyncio.to_thread(entered.wait)
            asyncio.get_running_loop().call_soon(leave.set)
        assert done == ["round", "round"]
    assert [each for each in asyncio.all_tasks() if each.get_name() == "it"] == []
