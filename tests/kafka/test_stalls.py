"""What is in the log and is not handed over is fetched again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from faust.events import Event
from faust.types import Message

from palimpsest.ops.bench.throughput import Load, records
from palimpsest.ops.kafka.application import kafka_application
from palimpsest.ops.kafka.broker import Broker
from palimpsest.streams.kafka import faust_agents, faust_client
from palimpsest.streams.kafka.faust_agents import Member
from palimpsest.streams.logs.base import Outgoing
from tests.soak.lab import Lab


@asynccontextmanager
async def processed(
    folder: Path, broker: Broker, name: str, turns: Sequence[Outgoing]
) -> AsyncIterator[Lab]:
    """Two partitions in which these turns were published and processed."""
    with Lab(folder, broker, name, partitions=2) as lab:
        lab.publish(turns)
        async with kafka_application(lab.settings) as app:
            async with asyncio.timeout(120):
                await app.run(until_drained=True)
        yield lab


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
    async with processed(tmp_path, broker, "gaps", turns) as lab:
        assert len(dropped) == len(turns)
        assert lab.log.end_offset("turns-normalized", 0) + lab.log.end_offset(
            "turns-normalized", 1
        ) == len(turns)


async def test_what_was_processed_and_not_acknowledged_is_committed(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a record is read from the log, and not delivered."""
    monkeypatch.setattr(faust_agents, "LOOK_SECONDS", 0.5)
    lost = 0

    def lose(consumer: object, message: Message) -> bool:
        nonlocal lost
        lost += 1
        return False

    monkeypatch.setattr(faust_client._Consumer, "ack", lose)
    turns = list(records(Load(12, 3)))
    async with processed(tmp_path, broker, "unacknowledged", turns) as lab:
        assert lost > len(turns)
        assert lab.log.drained()
