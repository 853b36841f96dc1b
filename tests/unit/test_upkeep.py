"""Upkeep: how long it rests between two syncs, and that neither an error nor a shard which is
closed meanwhile ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ops import upkeep
from ops.upkeep import LOOK_SECONDS, MOST_SECONDS, SHARE, Upkeep, pause_after
from stores.embedding_tracker import missing_count
from stores.shard import Shard
from streams.models.base import Vector
from streams.models.hashing import HashingEmbeddingModel
from tests.memory_rows import DIMENSIONS, memory, open_shard, write


def test_syncs_take_their_share_of_the_time_and_no_more() -> None:
    assert pause_after(0.0) == LOOK_SECONDS
    assert 0.1 / (0.1 + pause_after(0.1)) <= SHARE
    assert pause_after(30.0) == MOST_SECONDS


class Revoking(HashingEmbeddingModel):
    """While it makes the first vectors, partition 0 is given up."""

    def __init__(self, shards: dict[int, Shard]) -> None:
        super().__init__(DIMENSIONS)
        self._shards = shards
        self.went_on = asyncio.Event()

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        if 0 in self._shards:
            await asyncio.to_thread(self._shards.pop(0).close)
        else:
            self.went_on.set()
        return await super().embed_passages(texts)


async def test_what_failed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = open_shard(tmp_path)
    write(shard, [memory("m", "Ana likes tea", 1)], vectors=False)
    model = Revoking({})
    tried = []

    def failing_once(*given: Any) -> int:
        tried.append(given)
        if len(tried) == 1:
            raise duckdb.IOException("no space left")
        return missing_count(*given)

    monkeypatch.setattr(upkeep, "missing_count", failing_once)
    monkeypatch.setattr(upkeep, "TRACK_SECONDS", 0.0)
    async with Upkeep(lambda: {0: shard}, model).going_on(), asyncio.timeout(30):
        await model.went_on.wait()
    shard.close()


async def test_a_shard_that_is_closed_meanwhile_does_not_end_it(tmp_path: Path) -> None:
    shards = {number: open_shard(tmp_path / str(number)) for number in range(2)}
    for shard in shards.values():
        write(shard, [memory("m", "Ana likes tea", 1)], vectors=False)
    model = Revoking(shards)
    async with Upkeep(shards.copy, model).going_on(), asyncio.timeout(30):
        await model.went_on.wait()
    shards[1].close()
