"""A role's partitions: what must not happen while a batch is being committed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError, KafkaError, TopicAuthorizationFailedError

from palimpsest.streams.kafka import role as kafka_role
from palimpsest.streams.kafka.cluster import Cluster
from palimpsest.streams.kafka.log import Identity
from palimpsest.streams.kafka.role import Role
from palimpsest.streams.kafka.sender import unreachable
from palimpsest.streams.logs.base import LogUnavailable
from palimpsest.streams.runtime.pace import FairQueue


class CommittingTask:
    """A task whose batch ends when it is let."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.ending = asyncio.Event()

    def close(self) -> None:
        pass

    async def join(self, grace_seconds: float, limit_seconds: float) -> None:
        self.ending.set()
        await self.may_end.wait()


class Closed:
    """Parts of a role: notes what is closed."""

    def __init__(self) -> None:
        self.partitions: list[int] = []

    def open(self, partition: int) -> None:
        return None

    def runners(self, partition: int, store: object) -> list[Any]:
        return []

    def close(self, partition: int, store: object) -> None:
        self.partitions.append(partition)


async def test_no_store_is_closed_under_a_commit() -> None:
    parts, task = Closed(), CommittingTask()
    nothing: Any = None
    role = Role("store", Cluster(), (), parts, nothing, nothing, FairQueue())  # type: ignore[arg-type]
    role.tasks["apply-writes", 0] = task  # type: ignore[assignment]
    role.stores[0] = nothing
    first = asyncio.create_task(role.quiesce())
    await task.ending.wait()
    # A second rebalance begins meanwhile: it finds no tasks left to wait for.
    await asyncio.wait([asyncio.create_task(role.quiesce())], timeout=0.05)
    second = asyncio.create_task(role.release())
    await asyncio.wait([second], timeout=0.05)
    assert parts.partitions == []
    task.may_end.set()
    await asyncio.gather(first, second)
    assert parts.partitions == [0]


class Absent:
    """A log that does not answer the first times."""

    def __init__(self, outages: int) -> None:
        self.outages = outages

    def identity(self) -> Identity:
        if self.outages:
            self.outages -= 1
            raise LogUnavailable("the broker is away")
        return Identity("cluster", {})

    def committed(self, role: str) -> dict[tuple[str, int], int]:
        return {}

    def watermarks(self, places: object) -> dict[tuple[str, int], Any]:
        return {}


async def test_an_assignment_while_the_broker_is_away_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_role, "UNAVAILABLE_SECONDS", 0.0)
    nothing: Any = None
    log: Any = Absent(outages=3)
    role = Role("store", Cluster(), (), Closed(), log, nothing, FairQueue())  # type: ignore[arg-type]
    assert not role.works()
    role.flow = nothing  # type: ignore[assignment]
    role.assign([0, 1], lambda partition: nothing)
    assert not role.works()
    await asyncio.gather(*role._opening)
    assert role.states == {0: "working", 1: "working"}
    assert role.works()
    assert log.outages == 0
    assert not role.failed.done()
    await role.release()
    assert not role.works()
    role.assign([], lambda partition: nothing)  # others have them all
    assert role.works()


@pytest.mark.parametrize(
    ("error", "passes"),
    [(KafkaConnectionError("refused"), True), (TopicAuthorizationFailedError("no"), False)],
)
def test_only_what_may_pass_is_waited_for(error: KafkaError, passes: bool) -> None:
    assert isinstance(unreachable(Cluster(), error), LogUnavailable) is passes
