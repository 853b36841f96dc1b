"""Embeds all that long turns of assistants, tools and the system say, of which only an outline is
embedded at first.

It takes ten times as long as the outline, so it is done in the background, one turn after the
other: until then a turn is found by its words and its outline. What was done is what is stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from palimpsest.schemas.envelope import local_time
from palimpsest.schemas.memory_texts import embedding_text
from palimpsest.stores.index.passages import HAS_PASSAGES, IS_CURRENT, turn_passages
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.token_vectors import keeps_tokens
from palimpsest.stores.shard import Shard
from palimpsest.streams.models.base import (
    EmbeddingModel,
    ModelError,
    TransientModelError,
    embeddings,
)

READ_TURNS: Final = 64
"""Turns read at a time."""
_OUTLINED: Final = (
    f" FROM memory_rows m WHERE {HAS_PASSAGES} AND NOT EXISTS (SELECT 1 FROM turn_passages p"
    f" WHERE p.memory_id = m.memory_id AND p.model = $model AND {IS_CURRENT})"
)
_MISSING: Final = (
    "SELECT m.memory_id, m.scope, m.embedding_key, m.content_hash, m.who, m.content,"
    f" m.occurred_at, coalesce(m.utc_offset_minutes, 0){_OUTLINED} AND m.memory_id > $after"
    " ORDER BY m.memory_id LIMIT $count"
)


class EmbeddedTurn(NamedTuple):
    """The packed token vectors of all that a turn says, and of which text of it."""

    memory_id: str
    embedding_key: str
    content_hash: str
    tokens: bytes


@dataclass(frozen=True, slots=True)
class _Turn:
    memory_id: str
    scope: str
    embedding_key: str
    content_hash: str
    who: str
    content: str
    occurred_at: datetime
    utc_offset_minutes: int

    @property
    def text(self) -> str:
        said_at = local_time(self.occurred_at, self.utc_offset_minutes)
        return embedding_text("episodic", self.who, self.content, said_at)


async def embed_turns(
    shard: Shard,
    model: EmbeddingModel,
    skip: Callable[[str], bool] = lambda scope: False,
    pause: Callable[[float], Awaitable[bool]] | None = None,
) -> bool:
    """Embeds what lacks its passages, except in scopes to `skip`. Returns whether nothing is left
    but what the provider refuses. Never raises ModelError. `pause` gets the seconds that a turn
    took, and returns whether to go on."""
    after, is_all = "", True
    while rows := await asyncio.to_thread(_read, shard, model.model, after):
        after = rows[-1].memory_id
        for row in rows:
            if skip(row.scope):
                is_all = False
                continue
            began = time.monotonic()
            try:
                [made] = await embeddings(model, [row.text])
            except TransientModelError:
                return False
            except ModelError:
                continue
            if made.tokens is not None:
                await _write(shard, model.model, row, made.tokens)
            if pause is not None and not await pause(time.monotonic() - began):
                return False
    return is_all


def _read(shard: Shard, model: str, after: str) -> Sequence[_Turn]:
    values = {"model": model, "after": after, "count": READ_TURNS}
    return [_Turn(*row) for row in shard.fetch(_MISSING, values)]


def outlined(shard: Shard, space: str) -> int:
    """How many turns are still to be embedded."""
    if not shard.options.search.assistant_passages or not keeps_tokens(space):
        return 0
    [(count,)] = shard.fetch(f"SELECT count(*){_OUTLINED}", {"model": space})
    return int(count)


def copy_missing_turns(
    shard: Shard, model: str, stored: Callable[[Sequence[str]], Iterable[EmbeddedTurn]]
) -> None:
    """Copies what `stored` has of turns by their ids, where the shard lacks it. For a shard that
    nobody else uses; blocks."""
    after = ""
    while rows := _read(shard, model, after):
        after = rows[-1].memory_id
        present = {(row.memory_id, row.embedding_key, row.content_hash) for row in rows}
        kept = [turn for turn in stored([row.memory_id for row in rows]) if turn[:3] in present]
        if kept:
            with shard.writing():
                _insert(shard, model, kept)


async def _write(shard: Shard, model: str, row: _Turn, tokens: bytes) -> None:
    turn = EmbeddedTurn(row.memory_id, row.embedding_key, row.content_hash, tokens)
    async with shard.lock:
        with shard.writing():
            _insert(shard, model, [turn])
    if shard.embedding_space == model:
        change = partial(ScopeIndex.note_passages, memory_id=row.memory_id)
        shard.indexes.change(row.scope, change)


def _insert(shard: Shard, model: str, turns: Sequence[EmbeddedTurn]) -> None:
    columns: dict[str, list[Any]] = {
        "memory_id": [turn.memory_id for turn in turns],
        "model": [model] * len(turns),
        "embedding_key": [turn.embedding_key for turn in turns],
        "content_hash": [turn.content_hash for turn in turns],
        "tokens": [turn.tokens for turn in turns],
        "passages": [turn_passages(model, turn.tokens) for turn in turns],
    }
    again = ", ".join(f"{name} = excluded.{name}" for name in [*columns][2:])
    shard.tables.insert_columns("turn_passages", columns, f"ON CONFLICT DO UPDATE SET {again}")
