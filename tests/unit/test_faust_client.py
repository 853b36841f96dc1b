"""What the project's consumer does otherwise than Faust's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.structs import TopicPartition
from faust.types import TP

from palimpsest.streams.kafka.faust_client import FAUST_VERSION, App, _Consumer


class Thread:
    def __init__(self, committed: Mapping[TP, int | None]) -> None:
        self.committed = committed
        self.begun: list[TP] = []

    async def seek_to_committed(self) -> Mapping[TP, int | None]:
        return self.committed

    async def seek_to_beginning(self, *partitions: TP) -> None:
        self.begun += partitions


class Running(_Consumer):
    """A consumer that has partitions, without a broker."""

    should_stop = False

    def assignment(self) -> set[TP]:
        return {TP("t", 0)}


async def seek(committed: Mapping[TP, int | None]) -> Thread:
    consumer = Running.__new__(Running)
    consumer._thread = thread = Thread(committed)
    assert await consumer.seek_to_committed() == committed
    return thread


async def test_a_partition_without_a_commit_begins_anew() -> None:
    thread = await seek({TP("t", 0): 7, TP("t", 1): None, TP("t", 2): 0})
    assert thread.begun == [TP("t", 1), TP("t", 2)]


async def test_partitions_with_commits_are_left_to_them() -> None:
    assert (await seek({TP("t", 0): 7})).begun == []


@pytest.mark.parametrize(("accepted", "known"), [(True, 10), (False, None)])
async def test_offsets_that_the_group_refused_are_not_taken_for_committed(
    accepted: bool, known: int | None
) -> None:
    place = TP("t", 0)
    consumer: Any = _Consumer.__new__(_Consumer)
    consumer.app = MagicMock()
    consumer.app.producer.flush = AsyncMock()
    consumer.in_transaction = False
    consumer.log = MagicMock()
    consumer.assignment = lambda: {place}
    consumer._commit = AsyncMock(return_value=accepted)
    consumer._committed_offset = defaultdict(lambda: None, {place: 1})
    consumer._acked, consumer._acked_index = defaultdict(list), defaultdict(set)
    assert await consumer._commit_offsets({place: 10}) is accepted
    assert consumer._committed_offset[place] == known
    # What was not committed is acknowledged once more, so that it will be.
    assert consumer._acked[place] == ([] if accepted else [9])


def test_the_private_parts_of_faust_are_those_of_the_version_tried() -> None:
    installed = version("faust-streaming")
    if installed != FAUST_VERSION:
        pytest.fail(f"faust-streaming {installed}: try streams/kafka/faust_client.py on it first")


@pytest.mark.parametrize(
    "consumer",
    [
        None,
        SimpleNamespace(_thread=SimpleNamespace(_consumer=None)),
        SimpleNamespace(_thread=SimpleNamespace(_consumer=SimpleNamespace(_coordinator=None))),
    ],
)
def test_no_broker_is_known_before_the_first_connection(consumer: Any) -> None:
    assert not App.knows_broker(SimpleNamespace(_consumer=consumer))  # type: ignore[arg-type]


async def test_a_partition_without_a_position_ends_nothing() -> None:
    """Faust looks every second whether partitions go on, also in the middle of a rebalance."""
    consumer: Any = Running.__new__(Running)
    brought = Assignment([TopicPartition("t", 0)])
    consumer._thread = SimpleNamespace(
        verify_event_path=lambda now, tp: brought.state_value(TopicPartition(*tp)).position
    )
    consumer.sleep = AsyncMock()
    await consumer.verify_all_partitions_active()
