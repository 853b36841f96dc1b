"""Catching up on vectors: memories without one of the model in use get it.

There are such memories after an outage of the provider and after a change of the model. They are
embedded in batches; each batch is written in one transaction and seen by recall at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol

import duckdb

from palimpsest.schemas.rows import embedding_key, embedding_text, linked_text
from palimpsest.stores.database.cursors import Readable
from palimpsest.stores.database.membership import KnownKeys
from palimpsest.stores.database.tables import Tables
from palimpsest.stores.index.cache import IndexCache
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.writing.embedding_columns import embedding_columns
from palimpsest.streams.models.base import (
    Embedding,
    EmbeddingModel,
    ModelError,
    TransientModelError,
    embeddings,
)
from palimpsest.streams.store_port import KeepVector, StoreLock

if TYPE_CHECKING:
    from palimpsest.stores.index.lance import VectorTable

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
    def lock(self) -> StoreLock: ...
    @property
    def tables(self) -> Tables: ...

    def writing(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]: ...


@dataclass(slots=True)
class CatchUp:
    """Memories `embedded` and `failed` in one run, and why the last of these failed."""

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
        """The text whose hash is the row's key: a turn's outline where no person wrote it; the key
        of older turns leaves out their day."""
        row = (self.type, self.who, self.content, self.occurred_at)
        texts = [linked_text(*row[:3]), embedding_text(*row, role="assistant")]
        known = (text for text in texts if embedding_key(text) == self.embedding_key)
        return next(known, embedding_text(*row))


def missing_count(shard: TrackedShard, model: str) -> int:
    """Memories without a vector of `model`."""
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
    """Embed what has no vector, but in scopes to `skip`. What the provider cannot embed is counted
    and passed over; while the provider is away the run ends early. Never raises ModelError.

    What is kept together took about a second, whatever the model costs, and is `batch` memories at
    most: a stop throws away no more."""
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
    """How many take about BATCH_SECONDS, where so many took so long."""
    return max(1, min(GROWTH * count, int(count * BATCH_SECONDS / max(seconds, 1e-6))))


async def _embed(
    shard: TrackedShard,
    model: EmbeddingModel,
    vectors: VectorTable | None,
    rows: Sequence[_Missing],
    done: CatchUp,
) -> None:
    try:
        made = await embeddings(model, [row.text for row in rows])
    except TransientModelError:
        raise
    except ModelError as error:
        if len(rows) == 1:
            done.failed += 1
            done.failure = str(error)
            return
        # One text that the provider refuses must not keep the others from their vectors.
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
