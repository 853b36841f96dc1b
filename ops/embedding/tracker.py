"""Gives every memory a vector of the model in use, and of the one that a migration goes to.

A memory lacks a vector of a model if the provider was unavailable when it came, if its text has
changed without a model at hand, if the model is new, if the stored vector has another size, or if
the model makes token vectors and none are stored. The
provider's health is checked first; then memories are embedded in batches, each written in one
transaction and visible to recall at once. What was done is what is stored: a run that was killed
goes on where it was.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

import duckdb

from palimpsest.ops.embedding.models import EmbeddingModels, choice_of, choices
from palimpsest.ops.embedding.turn_passages import embed_turns
from palimpsest.ops.parts import SetupError, utc_now
from palimpsest.ops.scheduling.periodic import PeriodicTask, passing
from palimpsest.schemas.commands import ChangeEmbeddingCommand, EmbeddingChoice
from palimpsest.schemas.envelope import Actor, local_time
from palimpsest.schemas.memory_texts import embedding_key, embedding_text, linked_text
from palimpsest.schemas.rows.pipeline import EmbeddingRow
from palimpsest.stores.database.cursors import Readable
from palimpsest.stores.database.membership import EMBEDDING_KEYS, KnownKeys
from palimpsest.stores.database.tables import Tables
from palimpsest.stores.index.passages import embedding_columns
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.token_vectors import keeps_tokens
from palimpsest.stores.index.vector_space import (
    EMBEDDED,
    EmbeddingProgress,
    VectorSpace,
    embedded_values,
)
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import Outgoing, partition_for
from palimpsest.streams.memory_rows import effective
from palimpsest.streams.models.base import (
    Embedding,
    EmbeddingModel,
    ModelError,
    TransientModelError,
    embeddings,
)
from palimpsest.streams.runtime.model_port import LONG_CHARACTERS
from palimpsest.streams.runtime.output import own_command
from palimpsest.streams.settings import Flags
from palimpsest.streams.store_port import KeepVector, PriorityLock

if TYPE_CHECKING:
    from palimpsest.stores.index.lance import VectorTable

logger = logging.getLogger(__name__)

LEAST, BATCH = 8, 256
"""Memories in a batch: at least so many, and at most."""
BATCH_SECONDS: Final = 1.0
"""What the model takes for a batch. A shorter one waits as long for the store."""
PAUSE: Final = 0.5
"""How long a migration pauses after a batch, as a share of the model's time: stages and recall need
the processor, too. Longer, and it would not catch up with 20 turns a second."""
GROWTH = 4
TRACK_SECONDS: Final = 5.0
"""Interval between searches for memories without a vector, if there may be some."""
SWITCH_SECONDS: Final = 0.05
"""Interval between checks whether a switch was executed."""
DROPPED_ROWS: Final = 2_000
COPIED: Final = 4_096
WORKER: Final = Actor(id="embedding-tracker", type="system")

_LACKS = (
    " NOT m.is_deleted AND NOT EXISTS (SELECT 1 FROM embeddings e WHERE e.embedding_key ="
    f" m.embedding_key AND {EMBEDDED})"
)
_MISSING = (
    "SELECT m.memory_id, m.scope, m.embedding_key, m.type, m.who, m.content, m.occurred_at,"
    " coalesce(m.utc_offset_minutes, 0)"
    f" FROM memory_rows m WHERE m.memory_id > $after AND{_LACKS} ORDER BY m.memory_id LIMIT $count"
)
_REASONS = f"""
SELECT count(*), count(*) FILTER (other), count(*) FILTER (NOT other AND version > 1) FROM (
    SELECT m.version, EXISTS (SELECT 1 FROM embeddings o
        WHERE o.embedding_key = m.embedding_key) AS other
    FROM memory_rows m WHERE coalesce(m.write_seq <= $through, true) AND{_LACKS})"""
_DROP_TURNS = "DELETE FROM turn_passages WHERE model = $model"
_DROP = (
    "DELETE FROM embeddings WHERE model = $model AND embedding_key IN"
    " (SELECT embedding_key FROM embeddings WHERE model = $model LIMIT $count)"
)


class TrackedShard(Readable, Protocol):
    @property
    def space(self) -> VectorSpace: ...
    @property
    def known(self) -> KnownKeys: ...
    @property
    def lock(self) -> PriorityLock: ...
    @property
    def tables(self) -> Tables: ...

    vectors_changed: int

    def writing(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]: ...


@dataclass(frozen=True, slots=True)
class Missing:
    """How many memories lack a vector: in all, and of these, how many have one of another model,
    and how many have only one of an earlier text."""

    total: int
    of_another_model: int
    of_another_text: int


@dataclass(frozen=True, slots=True)
class _Missing:
    memory_id: str
    scope: str
    embedding_key: str
    type: str
    who: str
    content: str
    occurred_at: datetime
    utc_offset_minutes: int

    @property
    def text(self) -> str:
        """The text whose hash is the row's key: a turn's outline if no person wrote the turn; the
        keys of older turns have the day in UTC, or none."""
        row = (self.type, self.who, self.content)
        said_at = local_time(self.occurred_at, self.utc_offset_minutes)
        texts = [embedding_text(*row, said_at, "assistant"), linked_text(*row)]
        texts += [embedding_text(*row, self.occurred_at, role) for role in ("user", "assistant")]
        known = (text for text in texts if embedding_key(text) == self.embedding_key)
        return next(known, embedding_text(*row, said_at))


def missing(
    shard: TrackedShard, space: str, dimensions: int, through: int | None = None
) -> Missing:
    """Counts the memories without a vector of this space and size; up to the write sequence
    `through`, if there is one."""
    values = {**embedded_values(space, dimensions), "through": through}
    with shard.reading() as reader:
        return Missing(*reader.execute(_REASONS, values).fetchall()[0])


_counted: Final[WeakKeyDictionary[Shard, dict[tuple[str, int, int, int], Missing]]] = (
    WeakKeyDictionary()
)


def missing_now(shard: Shard, choice: EmbeddingChoice) -> Missing:
    """The same, counted only if rows or vectors have changed since it was counted last."""
    present = (choice.space, choice.dimensions, shard.write_seq, shard.vectors_changed)
    found = _counted.get(shard, {})
    if present not in found:
        kept = {key: each for key, each in found.items() if key[2:] == present[2:]}
        found = kept | {present: missing(shard, choice.space, choice.dimensions)}
        _counted[shard] = found
    return found[present]


async def catch_up(
    shard: TrackedShard,
    model: EmbeddingModel,
    vectors: VectorTable | None = None,
    batch: int = BATCH,
    skip: Callable[[str], bool] = lambda scope: False,
    done: EmbeddingProgress | None = None,
    pause: Callable[[float], Awaitable[bool]] | None = None,
) -> EmbeddingProgress:
    """Embeds memories without a vector, except in scopes to `skip`, and adds to `done`. It counts
    and skips texts that the provider cannot embed, and ends early while the provider is
    unavailable. Never raises ModelError.

    The model takes about a second for a batch, which holds up to `batch` memories: a stop loses no
    more than one batch. `pause` gets the model's seconds for a batch, and returns whether to go on.
    """
    done = EmbeddingProgress() if done is None else done
    after = ""
    size = min(LEAST, batch)
    done.complete = False
    done.failure = await model.check()
    began = time.monotonic()
    while done.failure is None or after:
        rows = await asyncio.to_thread(_read, shard, model.model, model.dimensions, after, size)
        done.complete = not rows
        if not rows:
            break
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
        took = time.monotonic() - began
        done.seconds += took
        # By the model's time alone: waiting for the store does not grow with a batch.
        asked, done.model_seconds = done.model_seconds, 0.0
        fitting = max(1, min(GROWTH * read, int(read * BATCH_SECONDS / max(asked, 1e-6))))
        size = max(min(LEAST, batch), min(fitting, batch))
        if pause is not None and not await pause(asked):
            break
        began = time.monotonic()
    return done


def copy_missing(
    shard: TrackedShard,
    space: str,
    dimensions: int,
    stored: Callable[[Sequence[str]], Mapping[str, Embedding]],
) -> None:
    """Copies vectors that `stored` has by their texts' keys, where the shard lacks them. For a
    shard that nobody else uses; blocks."""
    after = ""
    while rows := _read(shard, space, dimensions, after, COPIED):
        after = rows[-1].memory_id
        found = stored([row.embedding_key for row in rows])
        having = [row for row in rows if row.embedding_key in found]
        if having:
            with shard.writing():
                _write(shard, space, having, [found[row.embedding_key] for row in having])


async def _embed(
    shard: TrackedShard,
    model: EmbeddingModel,
    vectors: VectorTable | None,
    rows: Sequence[_Missing],
    done: EmbeddingProgress,
) -> None:
    texts = [row.text for row in rows]
    try:
        # Long texts go one by one: concurrent writes wait for at most one of them.
        is_divided = len(rows) > 1 and any(len(text) > LONG_CHARACTERS for text in texts)
        began = time.monotonic()
        made = [] if is_divided else await embeddings(model, texts)
        done.model_seconds += time.monotonic() - began
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
        shard.vectors_changed += 1
        shard.known.add(EMBEDDING_KEYS, [row.embedding_key for row in rows])
    space = shard.space  # read after the commit: an index that is loaded later has them
    if space.options.embedding_model == model.model:
        for row, embedding in zip(rows, made, strict=True):
            vector = embedding.vector
            change = partial(ScopeIndex.set_vector, memory_id=row.memory_id, vector=vector)
            space.indexes.change(row.scope, change)
    if vectors is not None:
        vectors.note(row.memory_id for row in rows)
    done.embedded += len(rows)


def _read(
    shard: TrackedShard, space: str, dimensions: int, after: str, count: int
) -> list[_Missing]:
    values = {**embedded_values(space, dimensions), "after": after, "count": count}
    with shard.reading() as reader:
        return [_Missing(*row) for row in reader.execute(_MISSING, values).fetchall()]


def _write(
    shard: TrackedShard, model: str, rows: Sequence[_Missing], made: Sequence[Embedding]
) -> None:
    by_key = {
        row.embedding_key: KeepVector(row.embedding_key, each.vector, each.tokens)
        for row, each in zip(rows, made, strict=True)
    }
    columns = embedding_columns(model, list(by_key.values()))
    # A vector that is there may have another size.
    again = (
        "ON CONFLICT DO UPDATE SET vector = excluded.vector, tokens = excluded.tokens,"
        " passages = excluded.passages"
    )
    shard.tables.insert_columns("embeddings", columns, again)


# --- the tracker ----------------------------------------------------------------------------------


class EmbeddingTracker:
    """Gives the memories of the open shards their vectors, and moves migrations forward: once all
    vectors of the new model exist it gives the command to switch, if that was asked for, and it
    removes the vectors of models that were dropped. `append` adds records to a log of `partitions`.

    `autonomous_frozen` stops it, for a scope or for all."""

    def __init__(
        self,
        shards: Callable[[], Mapping[int, Shard]],
        models: EmbeddingModels,
        flags: Flags,
        append: Callable[[Sequence[Outgoing]], object] | None = None,
        partitions: int = 1,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._shards = shards
        self._models = models
        self._flags = flags
        self._append = append
        self._partitions = partitions
        self._clock = clock

    def tasks(self) -> list[PeriodicTask]:
        """Vectors of the models in use, and, apart from them, what assistants say and
        migrations."""
        return [
            PeriodicTask("missing vectors", TRACK_SECONDS, partial(self._round, self.track)),
            PeriodicTask("passages", TRACK_SECONDS, partial(self._round, self.track_turns)),
            PeriodicTask("embedding migration", TRACK_SECONDS, partial(self._round, self.migrate)),
        ]

    async def _round(self, work: Callable[[int, Shard], Awaitable[None]]) -> None:
        async def one(partition: int, shard: Shard) -> None:
            with passing("vectors", partition):
                await work(partition, shard)

        await asyncio.gather(*(one(*each) for each in self._shards().items()))

    def busy(self) -> bool:
        """Whether a migration will still go on or give the command to switch."""
        return self._append is not None and any(
            row.upcoming is not None and row.switches
            for shard in self._shards().values()
            if (row := shard.embedding) is not None
        )

    async def track(self, partition: int, shard: Shard) -> None:
        """Embeds what lacks a vector of the model in use."""
        if not shard.may_lack_vectors:
            return
        choice = self._models.live(shard)
        shard.may_lack_vectors = False  # before the count: later memories set it again
        lacking = None
        try:
            lacking = await asyncio.to_thread(missing, shard, choice.space, choice.dimensions)
        finally:
            shard.may_lack_vectors |= lacking is None or lacking.total != 0
        if lacking.total:
            await self._catch_up(shard, choice)

    async def track_turns(self, partition: int, shard: Shard) -> None:
        """Embeds all that assistants say."""
        choice = self._models.live(shard)
        is_wanted = shard.options.search.assistant_passages and keeps_tokens(choice.space)
        if not is_wanted or not shard.may_lack_passages:
            return

        async def go_on(took: float) -> bool:
            await asyncio.sleep(min(PAUSE * took, BATCH_SECONDS))
            return choice.space == shard.embedding_space

        shard.may_lack_passages = False  # before they are read: later turns set it again
        is_all = False
        try:
            model = self._models.of(choice)
            is_all = await embed_turns(shard, model, self._is_frozen(shard), go_on)
        except SetupError as error:
            logger.warning("what assistants say is not embedded: %s", error)
        finally:
            shard.may_lack_passages |= not is_all

    def _is_frozen(self, shard: Shard) -> Callable[[str], bool]:
        """Whether machines must leave a scope alone."""
        return lambda scope: effective(self._flags, shard.flags.get(scope)).autonomous_frozen

    async def migrate(self, partition: int, shard: Shard) -> None:
        """Moves a migration forward by as much as there is to do now."""
        row = shard.embedding
        if row is None:
            return
        for space in row.dropped:
            await self._drop(shard, space)
        if row.upcoming is None:
            return
        to = choice_of(row.upcoming)
        done = shard.progress.setdefault(to.space, EmbeddingProgress())
        while True:
            through = shard.write_seq
            await self._catch_up(shard, to)
            if not done.complete:
                return
            done.through = through
            if shard.write_seq - through <= BATCH:
                break
        # What has come since the pass began gets its vectors right after the switch.
        lacking = await asyncio.to_thread(missing, shard, to.space, to.dimensions, through)
        may_switch = row.switches and shard.embedding is row and self._append is not None
        if lacking.total <= row.allow_missing and may_switch:
            # Switches, and then gives the newest memories their vectors.
            assert self._append is not None
            # Before anything is awaited: a command that was given before a crash may be applied
            # meanwhile, and one from another model to this one would have another id.
            command = self._switch(partition, row, self._models.live(shard), to)
            await asyncio.to_thread(shard.vector_table(to.space, to.dimensions).sync)
            await asyncio.to_thread(self._append, [command])
            until = time.monotonic() + TRACK_SECONDS
            while shard.embedding is row and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(SWITCH_SECONDS)
            await self.track(partition, shard)

    def _switch(
        self, partition: int, row: EmbeddingRow, live: EmbeddingChoice, to: EmbeddingChoice
    ) -> Outgoing:
        command = ChangeEmbeddingCommand(action="switch", live=live, to=to)
        scope = partition_scope(partition, self._partitions)
        # The same id until it is applied: given twice, it is executed once.
        number = int(row.recorded_at.timestamp() * 1e6)
        return own_command(scope, command, WORKER, self._clock(), number)[1]

    async def _catch_up(self, shard: Shard, choice: EmbeddingChoice) -> None:
        is_live = choice.space == shard.embedding_space

        async def go_on(asked: float) -> bool:
            if is_live:
                return choice.space == shard.embedding_space
            await asyncio.sleep(min(PAUSE * asked, BATCH_SECONDS))
            return choice in choices(shard)

        done = shard.progress.setdefault(choice.space, EmbeddingProgress())
        table = shard.vector_table(choice.space, choice.dimensions)
        try:
            model = self._models.of(choice)
        except SetupError as error:
            done.failure = str(error)
            return

        await catch_up(shard, model, table, BATCH, self._is_frozen(shard), done, go_on)

    async def _drop(self, shard: Shard, space: str) -> None:
        """Removes the vectors of a model that is not in use, some in each transaction."""
        is_done = space in shard.progress and shard.progress[space].dropped
        if is_done or space == shard.embedding_space:
            return
        while True:
            async with shard.lock:
                with shard.writing() as connection:
                    values = {"model": space, "count": DROPPED_ROWS}
                    [(removed,)] = connection.execute(_DROP, values).fetchall()
                    connection.execute(_DROP_TURNS, {"model": space})
            shard.vectors_changed += 1
            if not removed:
                break
        await asyncio.to_thread(shard.drop_vector_table, space)
        shard.progress[space] = EmbeddingProgress(dropped=True)


def partition_scope(partition: int, partitions: int, about: str = "embedding") -> str:
    """The name under which a command `about` a whole partition lies in the log: one that belongs to
    that partition. Those about embeddings match `EMBEDDING_SCOPE`."""
    names = (f"{about}-{number}" for number in range(1_000_000))
    return next(name for name in names if partition_for(name, partitions) == partition)
