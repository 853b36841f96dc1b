"""Maintenance alongside the stages: on every open shard LanceDB follows DuckDB, and memories that
arrived while the embedding provider was unavailable get their vectors; records of the embedded log
expire after the retention time of their topic (on Kafka the broker does that).

`autonomous_frozen` stops everything that changes data: late vectors (for a scope or for all) and
expiry of the log. LanceDB still follows: it is a copy.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol

import duckdb

from palimpsest.ops.maintenance.periodic import PeriodicTask, in_thread, passing
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.shard import Shard
from palimpsest.streams.memory_rows import effective
from palimpsest.streams.models.base import EmbeddingModel
from palimpsest.streams.settings import Flags

if TYPE_CHECKING:
    from palimpsest.stores.index.lance import VectorTable
from contextlib import AbstractContextManager

from palimpsest.schemas.memory_texts import embedding_key, embedding_text, linked_text
from palimpsest.stores.database.cursors import Readable
from palimpsest.stores.database.membership import KnownKeys
from palimpsest.stores.database.tables import Tables
from palimpsest.stores.index.cache import IndexCache
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.writing.embedding_columns import embedding_columns
from palimpsest.streams.models.base import (
    Embedding,
    ModelError,
    TransientModelError,
    embeddings,
)
from palimpsest.streams.runtime.model_port import LONG_CHARACTERS
from palimpsest.streams.store_port import KeepVector, PriorityLock

# --- embedding tracker ----------------------------------------------------------------------------
# Embeds memories that have no vector of the model in use.
#
# An outage of the provider and a change of the model leave such memories. They are embedded in
# batches; each batch is written in one transaction and is visible to recall immediately.

BATCH = 64
BATCH_SECONDS = 1.0
GROWTH = 4

_MISSING = (
    "SELECT m.memory_id, m.scope, m.embedding_key, m.type, m.who, m.content,"
    " m.occurred_at FROM memory_rows m"
    " WHERE NOT m.is_deleted AND m.memory_id > $after AND NOT EXISTS (SELECT 1 FROM embeddings e"
    "  WHERE e.embedding_key = m.embedding_key AND e.model = $model)"
    " ORDER BY m.memory_id LIMIT $count"
)


class TrackedShard(Readable, Protocol):
    @property
    def indexes(self) -> IndexCache: ...
    @property
    def known(self) -> KnownKeys: ...
    @property
    def lock(self) -> PriorityLock: ...
    @property
    def tables(self) -> Tables: ...

    def writing(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]: ...


@dataclass(slots=True)
class CatchUp:
    """How many memories one run embedded and failed to embed, and why the last failure
    happened."""

    embedded: int = 0
    failed: int = 0
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class _Missing:
    memory_id: str
    scope: str
    embedding_key: str
    type: str
    who: str
    content: str
    occurred_at: datetime

    @property
    def text(self) -> str:
        """The text whose hash is the row's key: a turn's outline if no person wrote the turn; the
        keys of older turns leave out the day."""
        row = (self.type, self.who, self.content, self.occurred_at)
        texts = [linked_text(*row[:3]), embedding_text(*row, role="assistant")]
        known = (text for text in texts if embedding_key(text) == self.embedding_key)
        return next(known, embedding_text(*row))


def missing_count(shard: TrackedShard, model: str) -> int:
    """Returns the number of memories without a vector of `model`."""
    with shard.reading() as reader:
        found = reader.execute(
            "SELECT count(*) FROM memory_rows m WHERE NOT m.is_deleted AND NOT EXISTS"
            " (SELECT 1 FROM embeddings e WHERE e.embedding_key = m.embedding_key AND e.model = ?)",
            [model],
        ).fetchall()
    return int(found[0][0])


async def catch_up(
    shard: TrackedShard,
    model: EmbeddingModel,
    vectors: VectorTable | None = None,
    batch: int = BATCH,
    skip: Callable[[str], bool] = lambda scope: False,
) -> CatchUp:
    """Embeds memories without a vector, except in scopes to `skip`. It counts and skips texts that
    the provider cannot embed, and ends early while the provider is unavailable. Never raises
    ModelError.

    A batch takes about a second, regardless of the model's speed, and holds up to `batch` memories:
    a stop loses no more than one batch."""
    done = CatchUp()
    after = ""
    size = 1
    began = time.monotonic()
    while rows := await asyncio.to_thread(_read, shard, model.model, after, size):
        read = len(rows)
        after = rows[-1].memory_id
        rows = [row for row in rows if not skip(row.scope)]
        try:
            if rows:
                await _embed(shard, model, vectors, rows, done)
        except TransientModelError as error:
            done.failed += len(rows)
            done.failure = str(error)
            break
        size = min(_fitting(read, time.monotonic() - began), batch)
        began = time.monotonic()
    return done


def _fitting(count: int, seconds: float) -> int:
    """Returns how many memories take about BATCH_SECONDS, if `count` of them took `seconds`."""
    return max(1, min(GROWTH * count, int(count * BATCH_SECONDS / max(seconds, 1e-6))))


async def _embed(
    shard: TrackedShard,
    model: EmbeddingModel,
    vectors: VectorTable | None,
    rows: Sequence[_Missing],
    done: CatchUp,
) -> None:
    texts = [row.text for row in rows]
    try:
        # Long texts go one by one: concurrent writes wait for at most one of them.
        is_divided = len(rows) > 1 and any(len(text) > LONG_CHARACTERS for text in texts)
        made = [] if is_divided else await embeddings(model, texts)
    except TransientModelError:
        raise
    except ModelError as error:
        if len(rows) == 1:
            done.failed += 1
            done.failure = str(error)
            return
        # One text that the provider refuses must not keep the others from their vectors.
        is_divided = True
    if is_divided:
        half = len(rows) // 2
        await _embed(shard, model, vectors, rows[:half], done)
        await _embed(shard, model, vectors, rows[half:], done)
        return
    async with shard.lock:
        with shard.writing():
            _write(shard, model.model, rows, made)
        shard.known.add("embedding_key", [row.embedding_key for row in rows])
    for row, embedding in zip(rows, made, strict=True):
        change = partial(ScopeIndex.set_vector, memory_id=row.memory_id, vector=embedding.vector)
        shard.indexes.change(row.scope, change)
    if vectors is not None:
        vectors.note(row.memory_id for row in rows)
    done.embedded += len(rows)


def _read(shard: TrackedShard, model: str, after: str, count: int) -> list[_Missing]:
    with shard.reading() as reader:
        found = reader.execute(_MISSING, {"model": model, "after": after, "count": count})
        return [_Missing(*row) for row in found.fetchall()]


def _write(
    shard: TrackedShard, model: str, rows: Sequence[_Missing], made: Sequence[Embedding]
) -> None:
    by_key = {
        row.embedding_key: KeepVector(row.embedding_key, each.vector, each.tokens)
        for row, each in zip(rows, made, strict=True)
    }
    shard.tables.insert_columns(
        "embeddings", embedding_columns(model, list(by_key.values())), "ON CONFLICT DO NOTHING"
    )


# --- upkeep ---------------------------------------------------------------------------------------

logger = logging.getLogger(__name__)

NO_FLAGS = Flags()
LOOK_SECONDS = 0.5
"""Minimum pause before shards are checked for changes again."""
SHARE = 0.05
"""Share of the time that syncs may take. A sync takes 10 to 50 ms however little it writes, and
nothing waits for it: recall finds new memories in the resident index."""
MOST_SECONDS = 10.0
"""Maximum pause: the first sync of a process compares everything."""
TRACK_SECONDS = 5.0
"""Interval between searches for memories without a vector, if there may be some."""


@dataclass(slots=True)
class _Kept:
    shard: Shard
    table: VectorTable
    synced: int = -1
    is_failing: bool = False
    tracked_at: float = -TRACK_SECONDS


class Upkeep:
    """Maintains the open shards, which `shards` returns and which may change at any time. `flags`
    apply to scopes without flags of their own."""

    def __init__(
        self,
        shards: Callable[[], Mapping[int, Shard]],
        embedding: EmbeddingModel,
        flags: Flags = NO_FLAGS,
    ) -> None:
        # The import takes more than a second: do it before stages and readers are at work.
        import palimpsest.stores.index.lance  # noqa: F401

        self._shards = shards
        self._embedding = embedding
        self._flags = flags
        self._kept: dict[int, _Kept] = {}

    def task(self) -> PeriodicTask:
        return PeriodicTask("upkeep", LOOK_SECONDS, self._once)

    async def finish(self, stopped: asyncio.Event | None = None) -> bool:
        """Maintains every shard once more, regardless of its last check, until done or until
        `stopped` is set; returns whether it finished."""
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

    async def _once(self) -> float:
        syncing = 0.0
        shards = self._shards()
        # A closed shard must not keep its resident indexes alive.
        self._kept = {number: kept for number, kept in self._kept.items() if number in shards}
        for partition, shard in shards.items():
            with passing("upkeep", partition):
                syncing += await self._keep(self._of(partition, shard))
        return pause_after(syncing)

    def _of(self, partition: int, shard: Shard) -> _Kept:
        kept = self._kept.get(partition)
        if kept is None or kept.shard is not shard:
            kept = self._kept[partition] = _Kept(shard, shard.vector_table())
        return kept

    async def _keep(self, kept: _Kept) -> float:
        """Returns the seconds that the sync took."""
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
        """Syncs LanceDB. An error is logged once and is not raised: recall does not need LanceDB's
        copy, and the next sync repairs damage."""
        try:
            syncing = asyncio.get_running_loop().run_in_executor(None, kept.table.sync)
        except RuntimeError:
            return  # the interpreter is shutting down and starts no more threads
        try:
            await syncing
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
        shard.may_lack_vectors = False  # before the count: later memories set it again
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
    """Anything with a retention time."""

    def expire(self, now: datetime) -> int:
        """Removes what is too old; returns how many were removed. Raises LogError."""
        ...


def expiring(
    kept: Sequence[Expiring | None], clock: Callable[[], datetime], seconds: float
) -> PeriodicTask:
    """Removes records of the embedded log and recorded replies past their retention time, every
    `seconds`. Call it `once` before something may read what is too old."""

    def expire() -> None:
        for each in filter(None, kept):
            each.expire(clock())

    return PeriodicTask("what is too old", seconds, in_thread(expire), first=seconds)


def pause_after(syncing: float) -> float:
    """Returns the pause, in seconds, after syncs that took `syncing` seconds."""
    return min(max(LOOK_SECONDS, syncing / SHARE), MOST_SECONDS)
