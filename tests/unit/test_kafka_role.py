"""A role's partitions: what must not happen while a batch is being committed."""

from __future__ import annotations

import asyncio
from typing import Any

from streams.logs.kafka_base import KafkaOptions
from streams.logs.kafka_lane import Turns
from streams.logs.kafka_role import Role


class CommittingLane:
    """A lane whose batch ends when it is let."""

    name, partition = "apply-writes", 0

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.ending = asyncio.Event()

    def close(self) -> None:
        pass

    async def ended(self, grace_seconds: float, limit_seconds: float) -> None:
        self.ending.set()
        await self.may_end.wait()


class Closed:
    """Parts of a role: notes what is closed."""

    def __init__(self) -> None:
        self.partitions: list[int] = []

    def close(self, partition: int, store: object) -> None:
        self.partitions.append(partition)


async def test_no_store_is_closed_under_a_commit() -> None:
    parts, lane = Closed(), CommittingLane()
    nothing: Any = None
    role = Role("store", KafkaOptions(), (), parts, nothing, nothing, nothing, Turns())  # type: ignore[arg-type]
    role.lanes["apply-writes", 0] = lane  # type: ignore[assignment]
    role.stores[0] = nothing
    first = asyncio.create_task(role.quiesce())
    await lane.ending.wait()
    # A second rebalance begins meanwhile: it finds no lanes left to wait for.
    await asyncio.wait([asyncio.create_task(role.quiesce())], timeout=0.05)
    second = asyncio.create_task(role.release())
    await asyncio.wait([second], timeout=0.05)
    assert parts.partitions == []
    lane.may_end.set()
    await asyncio.gather(first, second)
    assert parts.partitions == [0]
