"""What is in the log and is not handed over is fetched again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, IllegalGenerationError
from faust.events import Event

from palimpsest.ops.bench.throughput import Load, records
from palimpsest.ops.kafka.application import kafka_application
from palimpsest.ops.kafka.broker import Broker
from palimpsest.streams.kafka.faust_agents import Crashed, Member
from tests.soak.lab import Lab


async def test_records_that_were_dropped_come_again(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = Member._deliver
    dropped: set[tuple[str, int, int]] = set()

    def drop_once(member: Member, stage: str, event: Event) -> None:
        place = stage, event.message.partition, event.message.offset
        if stage == "normalize" and place not in dropped:
            dropped.add(place)
        else:
            deliver(member, stage, event)

    monkeypatch.setattr(Member, "_deliver", drop_once)
    turns = list(records(Load(12, 3)))
    with Lab(tmp_path, broker, "gaps", partitions=2) as lab:
        lab.publish(turns)
        async with kafka_application(lab.settings) as app:
            async with asyncio.timeout(120):
                await app.run(until_drained=True)
        assert len(dropped) == len(turns)
        assert lab.log.end_offset("turns-normalized", 0) + lab.log.end_offset(
            "turns-normalized", 1
        ) == len(turns)


async def test_a_client_that_ends_joins_again(broker: Broker, tmp_path: Path) -> None:
    """As it does when the broker is away for longer than a session, or forgets the member."""
    turns = list(records(Load(12, 3)))
    with Lab(tmp_path, broker, "again", partitions=2) as lab:
        lab.publish(turns[:12])
        async with kafka_application(lab.settings) as app, asyncio.timeout(120):
            running = asyncio.create_task(app.run(until_drained=False))
            for role in app.roles:
                await reached(lambda role=role: role.works() and bool(role.tasks))  # type: ignore[misc]
                await role.flow.member._app.crash(IllegalGenerationError())  # type: ignore[attr-defined]
            await reached(lambda: any("waiting" in s for r in app.roles for s in r.states.values()))
            lab.publish(turns[12:])
            await reached(lambda: all(role.works() and role.tasks for role in app.roles))
            while not await asyncio.to_thread(app.log.drained):
                assert not running.done()
            app.stop()
            await running
        assert sum(lab.log.end_offset("turns-normalized", each) for each in (0, 1)) == len(turns)


async def test_a_client_that_is_not_let_in_ends_the_worker(broker: Broker, tmp_path: Path) -> None:
    with Lab(tmp_path, broker, "refused", partitions=1) as lab:
        async with kafka_application(lab.settings) as app, asyncio.timeout(120):
            running = asyncio.create_task(app.run(until_drained=False))
            [first, *_] = app.roles
            await reached(lambda: first.works() and bool(first.tasks))
            await first.flow.member._app.crash(GroupAuthorizationFailedError())  # type: ignore[attr-defined]
            with pytest.raises(Crashed, match="GroupAuthorizationFailed"):
                await running


async def reached(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
