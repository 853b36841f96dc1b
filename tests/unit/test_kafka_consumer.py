"""What the project's consumer does otherwise than Faust's."""

from __future__ import annotations

from collections.abc import Mapping

from faust.types import TP

from streams.logs.kafka import _Consumer


class Thread:
    def __init__(self, committed: Mapping[TP, int | None]) -> None:
        self.committed = committed
        self.begun: list[TP] = []

    async def seek_to_committed(self) -> Mapping[TP, int | None]:
        return self.committed

    async def seek_to_beginning(self, *partitions: TP) -> None:
        self.begun += partitions


async def seek(committed: Mapping[TP, int | None]) -> Thread:
    consumer = _Consumer.__new__(_Consumer)
    consumer._thread = thread = Thread(committed)
    assert await consumer.seek_to_committed() == committed
    return thread


async def test_a_partition_without_a_commit_begins_anew() -> None:
    thread = await seek({TP("t", 0): 7, TP("t", 1): None, TP("t", 2): 0})
    assert thread.begun == [TP("t", 1), TP("t", 2)]


async def test_partitions_with_commits_are_left_to_them() -> None:
    assert (await seek({TP("t", 0): 7})).begun == []
