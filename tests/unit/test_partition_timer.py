"""Timers of partitions: one that takes long does not hold up the others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import cast

import pytest

from palimpsest.ops.scheduling.periodic import PartitionTimer
from palimpsest.ops.settings.sections import Settings
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogError
from palimpsest.streams.logs.embedded import EmbeddedLog


class Timer(PartitionTimer[list[str]]):
    """Counts its looks at each partition; one in `free` ends once its event is set."""

    what = "work"
    seconds = 0.01

    def __init__(self, *partitions: int) -> None:
        self.opened: dict[int, Shard] = {}
        self.open(*partitions)
        log = cast(EmbeddedLog, None)
        super().__init__(
            lambda: {**self.opened},
            log,
            lambda records: None,
            Settings(),
            lambda: datetime.now(UTC),
        )
        self.looks: Counter[int] = Counter()
        self.free: dict[int, asyncio.Event] = {}
        self.errors: dict[int, Exception] = {}
        self.looked = asyncio.Event()
        self.cancelled: list[int] = []

    def open(self, *partitions: int) -> None:
        self.opened |= {each: cast(Shard, object()) for each in partitions}

    def due(self, shard: Shard) -> list[str]:
        return ["work"]

    async def act(self, partition: int, shard: Shard, due: list[str]) -> None:
        raise AssertionError

    async def until(self, true: Callable[[], object]) -> None:
        """Waits for looks until it is true."""
        async with asyncio.timeout(60):
            while not true():
                self.looked.clear()
                await self.looked.wait()

    async def look(self, partition: int, shard: Shard) -> None:
        self.looks[partition] += 1
        self.looked.set()
        try:
            if partition in self.free:
                await self.free[partition].wait()
        except asyncio.CancelledError:
            self.cancelled.append(partition)
            raise
        if partition in self.errors:
            raise self.errors[partition]


async def test_a_slow_partition_holds_up_no_other() -> None:
    timer = Timer(0, 1)
    timer.free[0] = asyncio.Event()
    checking = asyncio.create_task(timer.once())
    await timer.until(lambda: timer.looks[1] >= 3)
    timer.open(2)  # assigned meanwhile
    await timer.until(lambda: timer.looks[2] >= 2)
    assert timer.looks[0] == 1
    timer.free[0].set()
    assert await checking is None


async def test_an_error_that_passes_ends_no_check_and_another_ends_all() -> None:
    timer = Timer(0, 1, 2)
    timer.free[0] = asyncio.Event()
    timer.errors[1] = LogError("full")
    checking = asyncio.create_task(timer.once())
    await timer.until(lambda: timer.looks[1] >= 2)
    timer.errors[2] = AssertionError("a bug")
    with pytest.raises(AssertionError, match="a bug"):
        await checking
    assert timer.cancelled == [0]


async def test_nothing_goes_on_after_a_stop() -> None:
    timer = Timer(0)
    timer.free[0] = asyncio.Event()
    async with timer.task().running():
        await timer.until(lambda: timer.looks[0])
    assert timer.cancelled == [0]


async def test_nothing_open() -> None:
    assert await Timer().once() is None
