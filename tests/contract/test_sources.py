"""Both sources keep every source's promises."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from palimpsest.streams.kafka.role import Delivery, DeliverySource
from palimpsest.streams.logs.base import LogSender, Outgoing, Record
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.runtime.pace import FairQueue, Gathering, Pace
from palimpsest.streams.runtime.partition_task import Owned, Source
from palimpsest.streams.runtime.worker import OffsetSource
from tests.contract.source_contract import COMMANDS, NOW, TURNS, SourceContract
from tests.unit.memory_ports import MemoryLog


class EmbeddedFeed:
    def __init__(self, log: EmbeddedLog) -> None:
        self.log = log
        self.sender: LogSender = log

    async def append(self, topic: str, *values: bytes) -> None:
        await self.log.commit([Outgoing(topic, "ana", b"ana", value) for value in values], [])

    def opened(self, consumer: str, pace: Pace, turns: int = 0, commands: int = 0) -> Source:
        source = OffsetSource(self.log, consumer, 0, pace, 1 << 20)
        source.open({TURNS: turns, COMMANDS: commands})
        return source


class TestEmbeddedSource(SourceContract):
    @pytest.fixture
    def feed(self, tmp_path: Path) -> Iterator[EmbeddedFeed]:
        with EmbeddedLog(tmp_path, 1, lambda: NOW) as log:
            yield EmbeddedFeed(log)


class BrokerFeed:
    """A broker of one member: it delivers from where the group has acknowledged, and everything
    again to who comes after."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.sender: LogSender = self.log
        self.acknowledged: dict[str, int] = {}
        self._sources: list[DeliverySource] = []

    async def append(self, topic: str, *values: bytes) -> None:
        for record in self.log.put(topic, *values):
            for source in self._sources:
                self._deliver(source, record)

    def opened(self, consumer: str, pace: Pace, turns: int = 0, commands: int = 0) -> Source:
        flow: Any = self
        gathering = Gathering(FairQueue(), consumer)
        source = DeliverySource(self.log, 0, (TURNS, COMMANDS), pace, Owned(), flow, gathering)
        self._sources.append(source)
        for topic in (TURNS, COMMANDS):
            for record in self.log.topics.get(topic, [])[self.acknowledged.get(topic, 0) :]:
                self._deliver(source, record)
        source.open({TURNS: turns, COMMANDS: commands}, dict(self.acknowledged))
        return source

    def _deliver(self, source: DeliverySource, record: Record) -> None:
        source.put(record.topic, Delivery(record, partial(self._acknowledge, record)))

    def _acknowledge(self, record: Record) -> None:
        # In order, as a group does that commits no further than the first hole.
        assert record.offset == self.acknowledged.get(record.topic, 0)
        self.acknowledged[record.topic] = record.offset + 1

    def hold(self, topic: str, partition: int) -> None:
        pass

    def let_go(self, topic: str, partition: int) -> None:
        pass


class TestDeliverySource(SourceContract):
    @pytest.fixture
    def feed(self) -> BrokerFeed:
        return BrokerFeed()


class TestDeliverySourceBehindItsGroup(SourceContract):
    """The group has acknowledged everything long ago: all of it is read from the log."""

    @pytest.fixture
    def feed(self) -> BrokerFeed:
        class Ahead(BrokerFeed):
            async def append(self, topic: str, *values: bytes) -> None:
                first = bool(self._sources)
                if first:
                    await super().append(topic, *values)
                else:
                    self.log.put(topic, *values)
                    self.acknowledged[topic] = len(self.log.topics[topic])

        return Ahead()
