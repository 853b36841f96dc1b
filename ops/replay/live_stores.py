"""Copies of live stores, each as of one moment, whether a worker has them open or no one.

A copy says how far the store is, what it holds, and which vectors there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final, Self

import duckdb
import numpy as np

from palimpsest.ops.embedding.turn_passages import EmbeddedTurn
from palimpsest.ops.errors import RequestError, UnavailableError
from palimpsest.ops.log_folder import log_lock
from palimpsest.ops.parts import (
    EMBEDDING_STATE,
    embedding_model,
    open_shard,
    shard_folder,
    shard_options,
)
from palimpsest.ops.replay.branches import (
    COPIES,
    BranchManifest,
    branch_folder,
    branch_settings,
    records_behind,
)
from palimpsest.ops.replay.log_reading import Offsets
from palimpsest.ops.requests import CopyRequest
from palimpsest.ops.service.queries import queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.erasure.quotations import is_mark
from palimpsest.schemas.identity import UNREADABLE_SCOPE
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.memories import ArchiveRow
from palimpsest.schemas.rows.pipeline import AcceptedRow, DeadLetterRow
from palimpsest.schemas.rows.row_types import ROW_TYPES
from palimpsest.schemas.rows.sessions import ShortTermRow
from palimpsest.schemas.topics import MEMORY_CHANGES
from palimpsest.stores.database.cursors import connected
from palimpsest.stores.database.damage import StoreDamaged
from palimpsest.stores.database.snapshot import MEMORY_LIMIT_MIB, WRITTEN, opened
from palimpsest.stores.database.state_hash import differing_rows, row_count, state_hash
from palimpsest.stores.database.tables import COLUMNS
from palimpsest.stores.database.view_columns import quoted
from palimpsest.stores.index.vector_space import EMBEDDED, embedded_values
from palimpsest.stores.lock import FolderInUse
from palimpsest.stores.shard import DATABASE_FILE, StoreError
from palimpsest.streams.logs.base import LogReader, ahead_of_log, partition_for
from palimpsest.streams.logs.file_lock import is_held
from palimpsest.streams.models.base import Embedding, EmbeddingModel, Vector, embeddings
from palimpsest.streams.models.hashing import hashed
from palimpsest.streams.runtime.output import missing
from palimpsest.streams.store_port import Outbound

SENT_SECONDS = 10.0
"""How long what a running worker has committed may take to come into the log."""
LOOK_AGAIN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class LiveCopy:
    """The copy of one partition's store in a file, its tables in `schema`. `missing` says why there
    is nothing to compare with, if there is not; `ahead`, that the log lacks what the store has
    processed, so that only its vectors are of use."""

    partition: int
    path: Path
    schema: str
    missing: str | None = None
    ahead: str | None = None

    @property
    def not_compared(self) -> str | None:
        """Why the store of a rebuild is not compared with it."""
        return self.missing or self.ahead

    def cursors(self) -> Offsets:
        """How far the store is. Raises duckdb.Error."""
        found: Offsets = {}
        query = f"SELECT stage, topic, next_offset FROM live.{self.schema}.cursors"
        with attached({"live": self.path}) as connection:
            for stage, topic, offset in connection.execute(query).fetchall():
                found.setdefault(stage, {})[topic] = offset
        return found

    def outbox(self) -> list[Outbound]:
        """What the store has committed and may not have sent."""
        query = (
            "SELECT seq, topic, scope, record_key, value FROM"
            f" live.{self.schema}.outbox ORDER BY stage, seq"
        )
        with attached({"live": self.path}) as connection:
            return [Outbound(*row) for row in connection.execute(query).fetchall()]


@contextlib.asynccontextmanager
async def live_copies(
    settings: Settings, log: LogReader, branch: str, partitions: Sequence[int], alone: bool = False
) -> AsyncIterator[list[LiveCopy]]:
    """Yields a copy of each of these partitions with all that it tells of in the log, which lie in
    the folder of a branch as long as the block runs. `alone`: the process has the log locked
    itself. Raises RequestError, also where the log lacks what a store has committed."""
    with _folder_of_copies(settings, branch) as folder:
        copies = await _copies(settings, partitions, folder, alone)
        for number, copy in enumerate(copies):
            if copy.missing:
                continue
            cursors = copy.cursors()
            each = [place for topics in cursors.values() for place in topics.items()]
            if ahead_of_log(log, copy.partition, each) is not None:
                copies[number] = replace(copy, ahead="the log lacks what it has processed")
            elif any(cursors.values()):
                committed, waited = copy.outbox(), 0.0
                while missing(committed, log, copy.partition):
                    if waited >= SENT_SECONDS:
                        raise RequestError(
                            f"the store of partition {copy.partition} has committed what the log"
                            " does not have yet: a worker ended in between. Run `palimpsest run"
                            " --once`, then this again"
                        )
                    await asyncio.sleep(LOOK_AGAIN_SECONDS)
                    waited += LOOK_AGAIN_SECONDS
            elif log.end_offset(MEMORY_CHANGES.name, copy.partition) > 0:
                copies[number] = replace(copy, missing="it is empty")
        yield copies


@contextlib.contextmanager
def _folder_of_copies(settings: Settings, branch: str) -> Iterator[Path]:
    folder = branch_folder(settings, branch) / COPIES
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _copies(
    settings: Settings, partitions: Sequence[int], folder: Path, alone: bool = False
) -> list[LiveCopy]:
    """By the workers that have the partitions; by the folder where none has."""
    is_kafka = settings.log.kind == "kafka"
    if not is_kafka and (alone or not is_held(log_lock(settings))):
        return [_of_folder(settings, each, folder) for each in partitions]
    copies: list[LiveCopy] = []
    async with queries(settings) as found:
        for partition in partitions:
            copy = LiveCopy(partition, folder / f"{partition}.duckdb", f"shard_{partition}")
            if is_kafka:
                with contextlib.suppress(FolderInUse):
                    copies.append(_of_folder(settings, partition, folder))
                    continue
            try:
                await found.write_file(CopyRequest(partition), copy.path)
            except UnavailableError as error:
                copy = replace(copy, missing=str(error))
            except RequestError as error:
                copy.path.unlink(missing_ok=True)
                copy = replace(copy, missing=unreadable(error))
            copies.append(copy)
    return copies


def live_cursors(settings: Settings, partition: int) -> Offsets | None:
    """How far the live store of a partition is that no one has open; None where it cannot be
    read."""
    with contextlib.suppress(duckdb.Error):
        store = LiveCopy(partition, shard_folder(settings, partition) / DATABASE_FILE, "internal")
        return store.cursors()
    return None


def _of_folder(settings: Settings, partition: int, folder: Path) -> LiveCopy:
    copy = LiveCopy(partition, folder / f"{partition}.duckdb", "internal")
    if not (shard_folder(settings, partition) / DATABASE_FILE).exists():
        return replace(copy, missing="there is none")
    try:
        # No model is called here.
        shard = open_shard(settings, partition, shard_options(settings, embedding_model(settings)))
        try:
            shard.copy_file(copy.path)
        finally:
            with contextlib.suppress(duckdb.Error):
                shard.close()
        # A damaged file is copied like any other: what is asked first must be there.
        copy.cursors()
        copy.outbox()
    except (StoreError, StoreDamaged, duckdb.Error, OSError) as error:
        for left in folder.glob(f"{copy.path.name}*"):
            left.unlink()
        return replace(copy, missing=unreadable(error))
    return copy


def unreadable(error: Exception) -> str:
    """Why nothing is compared with a store, in a line."""
    return f"it cannot be read: {str(error).partition(chr(10))[0]}"


@contextlib.contextmanager
def attached(files: dict[str, Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Files of stores that no one writes, by the names under which they are read."""
    with opened(":memory:") as connection:
        for name, path in files.items():
            connection.execute(f"ATTACH {quoted(str(path))} AS {name} (READ_ONLY)")
        yield connection


# --- comparing ------------------------------------------------------------------------------------
# Compares stores with live ones, also of another number of partitions: with append times, without
# positions in the log.

_UNREADABLE: Final = quoted(UNREADABLE_SCOPE)
# An archived state has the positions that rows have, and an unreadable turn is known by its own.
_WITHOUT_POSITIONS: Final[dict[tuple[type[Row], str], str]] = {
    (ArchiveRow, "state"): "CAST(json_merge_patch(state,"
    """ '{"write_seq": null, "decision_order": null}') AS VARCHAR) AS state""",
    (AcceptedRow, "item_id"): f"CASE WHEN scope = {_UNREADABLE} THEN scope ELSE item_id END"
    " AS item_id",
    (DeadLetterRow, "item_ids"): "CASE WHEN item_ids[1] IN (SELECT item_id FROM"
    f" {{store}}.{AcceptedRow.TABLE} WHERE scope = {_UNREADABLE})"
    f" THEN [{_UNREADABLE}] ELSE item_ids END AS item_ids",
}


# Hashes, because DuckDB holds one side of a join.
_VECTORS: Final = """
SELECT DISTINCT m.scope, e.* FROM {store}.memory_rows m JOIN (
    SELECT embedding_key, model, len(vector) AS size, hash(vector) AS vector,
        CASE WHEN tokens IS NOT NULL THEN hash(tokens) END AS tokens
    FROM {store}.embeddings WHERE {models}
) e USING (embedding_key) WHERE NOT m.is_deleted"""
_MODEL_IN_USE: Final = (
    "model = (SELECT value FROM {store}.shard_state WHERE name = " + quoted(EMBEDDING_STATE) + ")"
)
# What is incomplete in a live store, and was made again, has not got lost. Stores that have the
# same text may have other vectors of it, of which one is kept.
_LOST_VECTORS: Final = """
WITH held AS (
    SELECT DISTINCT n.scope, n.embedding_key FROM memory.new.vectors n
    JOIN (SELECT DISTINCT * EXCLUDE scope FROM memory.live.vectors) l
        USING (embedding_key, model)
    WHERE n.size <> l.size OR (l.tokens IS NULL AND n.tokens IS NOT NULL)
        OR (n.vector = l.vector AND n.tokens IS NOT DISTINCT FROM l.tokens))
SELECT scope, count(DISTINCT embedding_key) FROM memory.live.vectors
ANTI JOIN held USING (scope, embedding_key) GROUP BY scope"""


def compare_stores(
    live: Sequence[LiveCopy], new: Sequence[Path], ended: datetime | None = None
) -> list[tuple[int, str, dict[str, int]]]:
    """Returns for each new store the number of its rows, its state hash with append times, and by
    table how many rows of its scopes only one side has, as `embeddings` the number of texts whose
    vectors of the model in use it lacks or has changed; nothing differs where no `live` store is
    given. Each store is read once. Short-term memories that were over by `ended`, the last time of
    the log, do not count: when they are swept depends on the other scopes of their partition.
    Raises duckdb.Error."""
    files = {f"live_{copy.partition}": copy.path for copy in live}
    files |= {f"new_{number}": path for number, path in enumerate(new)}
    with attached(files) as connection:
        news = [f"new_{number}.internal" for number in range(len(new))]
        differing: list[dict[str, int]] = [defaultdict(int) for _ in new]
        if live:
            _union(connection, "live", [f"live_{c.partition}.{c.schema}" for c in live], ended)
            _union(connection, "new", news, ended)
            found_differing = differing_rows(connection, "memory.live", "memory.new")
            found_differing["embeddings"] = dict(connection.execute(_LOST_VECTORS).fetchall())
            for table, scopes in found_differing.items():
                for scope, rows in scopes.items():
                    # What has no scope lies where its record lay.
                    number = 0 if scope == UNREADABLE_SCOPE else partition_for(scope, len(new))
                    differing[number][table] += rows
        found = []
        for store, tables in zip(news, differing, strict=True):
            rows = row_count(connection, store)
            connection.execute(f"USE {store}")
            found.append((rows, state_hash(connection, times=True), {**tables}))
            connection.execute("USE memory.main")
        return found


def _union(
    connection: duckdb.DuckDBPyConnection, side: str, stores: Sequence[str], ended: datetime | None
) -> None:
    """Creates views of the tables of all these stores together, without positions."""
    connection.execute(f"CREATE SCHEMA memory.{side}")
    left = f" WHERE expires_at > TIMESTAMPTZ {quoted(ended.isoformat())}" if ended else ""
    for row_type in ROW_TYPES:
        columns = (_WITHOUT_POSITIONS.get((row_type, name), name) for name in COLUMNS[row_type])
        query = f"SELECT {', '.join(columns)} FROM {{store}}.{row_type.SOURCE}"
        query += left if row_type is ShortTermRow else ""
        union = " UNION ALL ".join(query.replace("{store}", store) for store in stores)
        connection.execute(f"CREATE VIEW memory.{side}.{row_type.SOURCE} AS {union}")
    # A new store has no worker yet that would write down its model, so all of its vectors count.
    models = _MODEL_IN_USE if side == "live" else "true"
    query = _VECTORS.replace("{models}", models)
    vectors = " UNION ALL ".join(query.replace("{store}", store) for store in stores)
    connection.execute(f"CREATE VIEW memory.{side}.vectors AS {vectors}")


# --- stored embeddings ----------------------------------------------------------------------------
# Embeddings out of copies of stores, by what the texts say; a model only for texts in none.

_EMBEDDINGS = (
    f"SELECT embedding_key, vector, tokens FROM {{schema}}.embeddings WHERE {EMBEDDED}"
    " AND embedding_key IN (SELECT unnest($keys))"
)
_TURNS = (
    "SELECT memory_id, embedding_key, content_hash, tokens FROM {schema}.turn_passages"
    " WHERE model = $model AND memory_id IN (SELECT unnest($ids))"
)
_SCHEMA = "SELECT schema_name FROM duckdb_tables() WHERE table_name = 'embeddings'"


class StoredEmbeddings:
    """An EmbeddingModel that looks each text up first: in the stores at `files`, the first that
    has it with its token vectors if the model makes any, then asks `model`. No one may have the
    files open for writing. One that cannot be read has nothing."""

    def __init__(self, model: EmbeddingModel, files: Sequence[Path]) -> None:
        self._asked = model
        self.model = model.model
        self.dimensions = model.dimensions
        self.made = 0
        """Texts that the model was called with."""
        self._stores: dict[Path, duckdb.DuckDBPyConnection] = {}
        for file in files:
            with contextlib.suppress(duckdb.Error):
                self._stores[file] = opened_store(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for store in self._stores.values():
            store.close()

    async def embed_with_tokens(self, texts: Sequence[str]) -> list[Embedding]:
        keys = [embedding_key(text) for text in texts]
        found = self.stored(keys)
        missing = []
        for text, key in zip(texts, keys, strict=True):
            if key not in found and is_mark(text):
                # It says nothing, and its memory is erased: any vector will do.
                found[key] = Embedding(hashed(text, self.dimensions))
            elif key not in found:
                missing.append(text)
        missing = list(dict.fromkeys(missing))
        if missing:
            made = await embeddings(self._asked, missing)
            self.made += len(missing)
            found.update(zip(map(embedding_key, missing), made, strict=True))
        return [found[key] for key in keys]

    def stored(self, keys: Iterable[str]) -> dict[str, Embedding]:
        """The embeddings that any of the stores has, by key."""
        wanted = set(keys)
        found: dict[str, Embedding] = {}
        for file in [*self._stores]:
            left = sorted(wanted - found.keys())
            if left:
                found.update(self._read(file, left))
        return found

    def turns(self, memory_ids: Sequence[str]) -> Iterator[EmbeddedTurn]:
        """All that turns say, of those that any of the stores has."""
        values = {"model": self.model, "ids": list(memory_ids)}
        for store in self._stores.values():
            with contextlib.suppress(duckdb.Error):  # a store from before them has none
                (schema,), *_ = store.execute(_SCHEMA).fetchall()
                rows = store.execute(_TURNS.format(schema=schema), values).fetchall()
                yield from (EmbeddedTurn(*row) for row in rows)

    def _read(self, file: Path, keys: Sequence[str]) -> dict[str, Embedding]:
        try:
            store = self._stores[file]
            (schema,), *_ = store.execute(_SCHEMA).fetchall()
            query = _EMBEDDINGS.format(schema=schema)
            values = {**embedded_values(self.model, self.dimensions), "keys": list(keys)}
            rows = store.sql(query, params=values).to_arrow_table()
        except (duckdb.Error, ValueError):
            self._stores.pop(file).close()
            return {}
        vectors = rows["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        shaped = vectors.astype(np.float32, copy=False).reshape(-1, self.dimensions)
        return {
            key: Embedding(vector, tokens)
            for key, vector, tokens in zip(
                rows["embedding_key"].to_pylist(), shaped, rows["tokens"].to_pylist(), strict=True
            )
        }

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        return [found.vector for found in await self.embed_with_tokens(texts)]

    async def embed_query(self, text: str) -> Vector:
        return await self._asked.embed_query(text)

    async def check(self) -> str | None:
        return await self._asked.check()

    async def close(self) -> None:
        self.__exit__()
        await self._asked.close()


def opened_store(file: Path) -> duckdb.DuckDBPyConnection:
    """A store's file to read from. Raises duckdb.Error."""
    return connected(file, MEMORY_LIMIT_MIB, access_mode="READ_ONLY", **WRITTEN)


# --- vectors for a branch -------------------------------------------------------------------------
# Copies the vectors of the live stores for a branch, so that a text of the live memory is not
# embedded again. The copies hold hashes of the texts, not the texts.

LEAST_RECORDS: Final = 100
"""Below this number of records, embedding costs less than copying."""


@contextlib.asynccontextmanager
async def live_embeddings(
    settings: Settings, branch: BranchManifest, reader: LogReader
) -> AsyncIterator[Sequence[Path]]:
    """Yields files with the live vectors, which exist as long as the block runs: none if the branch
    uses another embedding model or has little to embed. Skips live stores that cannot be read."""
    own = branch_settings(settings, branch)
    is_same = own.embedding_model == settings.embedding_model
    vectors: list[Path] = []
    with _folder_of_copies(settings, branch.name) as folder:
        if is_same and records_behind(branch.read_through, reader) >= LEAST_RECORDS:
            for partition in range(branch.partitions):
                [copy] = await _copies(settings, [partition], folder)
                if not copy.missing:
                    with contextlib.suppress(duckdb.Error, OSError):
                        path = folder / f"{partition}.vectors.duckdb"
                        with attached({"live": copy.path}) as connection:
                            connection.execute(f"ATTACH {quoted(str(path))} AS vectors")
                            connection.execute(
                                "CREATE TABLE vectors.embeddings AS FROM"
                                f" live.{copy.schema}.embeddings"
                            )
                        vectors.append(path)
                    copy.path.unlink(missing_ok=True)
        yield vectors
