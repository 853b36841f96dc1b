"""What goes on alongside the stages: on every open shard LanceDB follows DuckDB, and memories that
came while the embedding provider was away get their vectors; records of the embedded log leave it
when they are older than their topic keeps them (on Kafka the broker sees to that).

`autonomous_frozen` stops what changes anything: vectors that come later (for a scope or for all)
and what leaves the log. LanceDB follows all the same: it is a copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol

import duckdb

from palimpsest.ops.maintenance.embedding_tracker import catch_up, missing_count
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.database.damage import StoreDamaged
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogError
from palimpsest.streams.memory_rows import effective
from palimpsest.streams.models.base import EmbeddingModel
from palimpsest.streams.settings import Flags

if TYPE_CHECKING:
    from palimpsest.stores.index.lance import VectorTable

logger = logging.getLogger(__name__)

NO_FLAGS = Flags()
LOOK_SECONDS = 0.5
"""How long to wait at least before it is looked again whether a shard has changed."""
SHARE = 0.05
"""Part of the time that may be spent on syncs. One takes 10 to 50 ms however little there is to
write, and no one waits for it: recall finds what is new in the resident index."""
MOST_SECONDS = 10.0
"""How long to wait at most: the first sync of a process compares everything."""
TRACK_SECONDS = 5.0
"""How often memories without a vector are looked for, where there may be some."""


@dataclass(slots=True)
class _Kept:
    shard: Shard
    table: VectorTable
    synced: int = -1
    is_failing: bool = False
    tracked_at: float = -TRACK_SECONDS


class Upkeep:
    """Keeps up all shards that `shards` tells as open, which may change at any time. `flags` are
    those of scopes that have none of their own."""

    def __init__(
        self,
        shards: Callable[[], Mapping[int, Shard]],
        embedding: EmbeddingModel,
        flags: Flags = NO_FLAGS,
    ) -> None:
        # It takes more than a second: here, and not when stages and readers are at work.
        import palimpsest.stores.index.lance  # noqa: F401

        self._shards = shards
        self._embedding = embedding
        self._flags = flags
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

    async def finish(self, stopped: asyncio.Event | None = None) -> bool:
        """Once more for every shard, whatever was looked at last, or as much of it as is done when
        `stopped` is set; whether it was all."""
        doing = asyncio.create_task(self._finish())
        stopping = asyncio.create_task((stopped or asyncio.Event()).wait())
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (doing, stopping):
            task.cancel()
        [failure, _] = await asyncio.gather(doing, stopping, return_exceptions=True)
        if isinstance(failure, asyncio.CancelledError):
            return False
        if failure is not None:
            raise failure
        return True

    async def _finish(self) -> None:
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
                except (duckdb.Error, StoreDamaged) as error:
                    logger.warning(
                        "upkeep of partition %d, to be tried again: %s", partition, error
                    )
            await asyncio.sleep(pause_after(syncing))

    def _of(self, partition: int, shard: Shard) -> _Kept:
        kept = self._kept.get(partition)
        if kept is None or kept.shard is not shard:
            kept = self._kept[partition] = _Kept(shard, shard.vector_table())
        return kept

    async def _keep(self, kept: _Kept) -> float:
        """The seconds that the sync took."""
        if time.monotonic() - kept.tracked_at >= TRACK_SECONDS:
            kept.tracked_at = time.monotonic()
            await self._track(kept)
        newest = kept.shard.write_seq
        if newest == kept.synced and kept.table.is_open:
            return 0.0
        began = time.monotonic()
        await self._sync(kept, newest)
        return time.monotonic() - began

    async def _sync(self, kept: _Kept, newest: int) -> None:
        """Recall does not need LanceDB's copy, and the next sync makes again what is damaged: an
        error ends nothing. It is reported once."""
        try:
            await asyncio.to_thread(kept.table.sync)
        except StoreClosed:
            raise
        except Exception as error:
            if not kept.is_failing:
                logger.warning("vectors of %s, to be tried again: %s", kept.shard.folder, error)
            kept.is_failing = True
        else:
            kept.synced, kept.is_failing = newest, False

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
        done = await catch_up(shard, self._embedding, kept.table, skip=partial(self._frozen, shard))
        if done.embedded:
            kept.synced = -1

    def _frozen(self, shard: Shard, scope: str) -> bool:
        return effective(self._flags, shard.flags.get(scope)).autonomous_frozen


class Expiring(Protocol):
    """What keeps things for a time."""

    def expire(self, now: datetime) -> int:
        """Remove what is too old; how many went. Raises LogError."""
        ...


class Expiry:
    """Removes what is too old: from the embedded log what is older than its topic keeps it, and of
    replies those that were kept long enough. Once, and then every `seconds`. `wait` passes them."""

    def __init__(
        self,
        kept: Expiring,
        clock: Callable[[], datetime],
        seconds: float,
        wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._kept = kept
        self._clock = clock
        self._seconds = seconds
        self._wait = wait

    async def once(self) -> int:
        """How many went. A file that cannot be written now is reported; whoever writes to it finds
        out, too."""
        try:
            return await asyncio.to_thread(self._kept.expire, self._clock())
        except LogError as error:
            logger.warning("what is too old stays for now: %s", error)
            return 0

    @contextlib.asynccontextmanager
    async def going_on(self, unless: bool = False) -> AsyncIterator[None]:
        """At once, then in the background until the block ends; not at all `unless`."""
        if unless:
            yield
            return
        await self.once()
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._wait(self._seconds)
            await self.once()


@contextlib.asynccontextmanager
async def expiring(
    kept: Sequence[Expiring | None],
    clock: Callable[[], datetime],
    seconds: float,
    unless: bool = False,
) -> AsyncIterator[None]:
    """Expiry of all of these that there are, until the block ends; none of it `unless`."""
    async with contextlib.AsyncExitStack() as going_on:
        for each in filter(None, kept):
            await going_on.enter_async_context(Expiry(each, clock, seconds).going_on(unless))
        yield


def pause_after(syncing: float) -> float:
    """Seconds to wait after syncs that took so many."""
    return min(max(LOOK_SECONDS, syncing / SHARE), MOST_SECONDS)
