"""What goes on beside the stages on every open shard: LanceDB follows DuckDB, and memories that
came while the embedding provider was away get their vectors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import duckdb

from stores.embedding_tracker import catch_up, missing_count
from stores.readers import StoreClosed
from stores.shard import Shard
from stores.vector_sync import VectorSync
from streams.models.base import EmbeddingModel

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""How long to wait at least before it is looked again whether a shard has changed."""
SHARE = 0.05
"""Part of the time that may be spent on syncs. One takes 10 to 50 ms however little there is to
write, and nobody waits for it: recall finds what is new in the resident index."""
MOST_SECONDS = 10.0
"""How long to wait at most: the first sync of a process compares everything."""
TRACK_SECONDS = 5.0
"""How often memories without a vector are looked for, where there may be some."""


@dataclass(slots=True)
class _Kept:
    shard: Shard
    sync: VectorSync
    synced: int = -1
    tracked_at: float = -TRACK_SECONDS


class Upkeep:
    """Keeps up all shards that `shards` tells as open, which may change at any time."""

    def __init__(
        self, shards: Callable[[], Mapping[int, Shard]], embedding: EmbeddingModel
    ) -> None:
        # It takes more than a second: here, and not when stages and readers are at work.
        import stores.vectors  # noqa: F401

        self._shards = shards
        self._embedding = embedding
        self._kept: dict[int, _Kept] = {}

    @contextlib.asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """In the background, until the block ends."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def finish(self) -> None:
        """Once more for every shard, whatever was looked at last."""
        for partition, shard in self._shards().items():
            kept = self._of(partition, shard)
            kept.tracked_at = -TRACK_SECONDS
            await self._keep(kept)

    async def _run(self) -> None:
        while True:
            syncing = 0.0
            shards = self._shards()
            # What is not open any more must not keep its resident indexes.
            self._kept = {number: kept for number, kept in self._kept.items() if number in shards}
            for partition, shard in shards.items():
                try:
                    syncing += await self._keep(self._of(partition, shard))
                except StoreClosed:
                    continue  # the partition has moved on meanwhile
                except duckdb.Error as error:
                    logger.warning(
                        "upkeep of partition %d, to be tried again: %s", partition, error
                    )
            await asyncio.sleep(pause_after(syncing))

    def _of(self, partition: int, shard: Shard) -> _Kept:
        kept = self._kept.get(partition)
        if kept is None or kept.shard is not shard:
            kept = self._kept[partition] = _Kept(shard, VectorSync(shard.vector_table()))
        return kept

    async def _keep(self, kept: _Kept) -> float:
        """The seconds that the sync took."""
        if time.monotonic() - kept.tracked_at >= TRACK_SECONDS:
            kept.tracked_at = time.monotonic()
            await self._track(kept)
        newest = kept.shard.write_seq
        if newest == kept.synced:
            return 0.0
        began = time.monotonic()
        if await kept.sync.once() is not None:
            kept.synced = newest
        return time.monotonic() - began

    async def _track(self, kept: _Kept) -> None:
        shard, model = kept.shard, self._embedding.model
        if not shard.may_lack_vectors:
            return
        shard.may_lack_vectors = False  # before the count: what comes after it sets it again
        missing = None
        try:
            missing = await asyncio.to_thread(missing_count, shard, model)
        finally:
            shard.may_lack_vectors |= missing != 0
        if not missing:
            return
        done = await catch_up(kept.shard, self._embedding, kept.sync.table)
        if done.embedded:
            kept.synced = -1


def pause_after(syncing: float) -> float:
    """Seconds to wait after syncs that took so many."""
    return min(max(LOOK_SECONDS, syncing / SHARE), MOST_SECONDS)
