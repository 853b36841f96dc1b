"""The vectors of a shard and of its texts' tokens in LanceDB: derived from DuckDB, never the truth.

LanceDB does not sync its files, and a crash can leave a table that does not open. So every vector
lies in DuckDB's `embeddings` first; this table is written after the commit, from DuckDB, by one
writer, and is rebuilt when it is missing, damaged or not what DuckDB says. The first sync of a
process compares it with DuckDB as a whole, so no position has to be kept, or trusted, across a
crash; later ones follow the write sequence.

A scope's vectors are loaded from it (`held`) into the resident index, and where a store is large
the packed token vectors of a pool are read from it by id (`tokens`). Vectors are half floats, as in
the resident index, so it does not matter from where they came.

All methods block: call them in a thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from palimpsest.schemas.rows.memories import SOURCE_LIST
from palimpsest.stores.database.cursors import Reading, StoreClosed
from palimpsest.stores.index.token_reader import HeldTokens
from palimpsest.stores.index.vector_column import Vector

_CLIENT: Final = "lance_namespace_urllib3_client"


def _defer(name: str) -> None:
    """Lets the modules of a package be imported without its `__init__`, which runs when one of its
    names is asked for: that of LanceDB's client of a catalogue server takes 0.8 s, more than
    all the rest, at the start of every worker."""
    spec = None if name in sys.modules else find_spec(name)
    if spec is None or spec.loader is None:
        return
    module, loader = module_from_spec(spec), spec.loader

    def load(wanted: str) -> object:
        del module.__getattr__
        loader.exec_module(module)
        return getattr(module, wanted)

    module.__getattr__ = load  # type: ignore[method-assign]
    sys.modules[name] = module


_defer(_CLIENT)

import lancedb  # noqa: E402
from lancedb.index import Bitmap, BTree, IvfSq  # noqa: E402

logger = logging.getLogger(__name__)

TABLE = "vectors"
FOLDER = "vectors.lance"
BESIDE = "~new"
"""End of the name of a folder whose table is not yet in use; no model's folder has this end."""
MERGES_BEFORE_OPTIMIZE = 32
"""Every merge leaves a small file, and many small files slow down reads."""
KEEP_VERSIONS = timedelta(minutes=5)
"""`optimize` removes older versions of the table: a concurrent search needs its own."""
SYNC_ROWS = 20_000
"""Memories taken in one merge."""
HELD_FROM = 50_000
"""Number of vectors of a store from which a scope's are read here: DuckDB then takes 0.1 s."""
TOKENS_FROM = 20_000
"""Number of memories of a store, forgotten ones included, from which tokens are copied here. DuckDB
scans the keys of all texts, which then takes as long as this index."""

INDEXED_FROM = 50_000
"""Number of a scope's vectors from which an index is faster than a scan of all of them."""
PARTITION_ROWS = 4_096
"""Vectors per partition of the vector index."""
PROBES = 24
"""Number of these partitions that a search scans."""
REFINED = 2
"""Multiple of the requested results that are compared by their full vectors."""
T = TypeVar("T")

# None joins what is wide: DuckDB holds one side of a join, which may be all vectors of the store.
_WANTED = (
    "SELECT m.memory_id, m.embedding_key, e.lacks_tokens FROM memory_rows m"
    " JOIN (SELECT embedding_key, tokens IS NULL OR NOT $copies AS lacks_tokens FROM embeddings"
    "  WHERE model = $model AND len(vector) = $dimensions) e USING (embedding_key)"
    " WHERE NOT m.is_deleted"
)
_MEMORIES = (
    f"SELECT memory_id, scope, type IN {SOURCE_LIST} AS is_turn, embedding_key"
    " FROM memory_rows WHERE NOT is_deleted AND memory_id IN (SELECT unnest($ids))"
)
_VECTORS = (
    "SELECT embedding_key, vector, {tokens} FROM embeddings WHERE model = $model"
    " AND len(vector) = $dimensions AND embedding_key IN (SELECT unnest($keys))"
)

_LARGEST = (
    "SELECT coalesce(max(n), 0) FROM"
    " (SELECT count(*) AS n FROM memory_rows WHERE NOT is_deleted GROUP BY scope)"
)
_HELD = {
    "memory_id": "memory_id",
    "embedding_key": "embedding_key",
    "lacks_tokens": "tokens IS NULL",
}


@dataclass(frozen=True, slots=True)
class Synced:
    """The result of a sync. `rebuilt` is why the table was rebuilt, if it was."""

    written: int
    removed: int
    position: int
    rebuilt: str | None = None


class VectorTable:
    """The table of one shard and embedding model. One instance per process; usable from any
    thread."""

    def __init__(
        self, folder: Path, model: str, dimensions: int, reading: Reading, resident: int = 0
    ) -> None:
        """A scope with more memories than may be `resident` is searched here."""
        name = "".join(c if c.isalnum() or c in "-._" else "_" for c in model) or "_"
        self.folder = folder / FOLDER / name
        self._model = model
        self._dimensions = dimensions
        self._reading = reading
        self._indexed_from = max(resident, INDEXED_FROM)
        self._lock = threading.Lock()
        self._table: Any = None
        self._merges = 0
        self._has_written = False
        self._copies_tokens = False
        self._late: set[str] = set()
        self._position = 0

    def note(self, memory_ids: Iterable[str]) -> None:
        """Registers vectors that were added, or memories that were removed, without a change of
        their row's sequence."""
        with self._lock:
            self._late.update(memory_ids)

    def sync(self) -> Synced:
        """Updates the table to the present state of DuckDB. The first sync compares all ids; later
        ones read what was written since."""
        with self._lock, self._reading() as reader:
            return self._sync(reader)

    def compare(self) -> Synced:
        """As the first sync: compares all ids, also those that are not known to have changed."""
        with self._lock, self._reading() as reader:
            self._table = None
            return self._sync(reader)

    def differing(self) -> dict[str, int]:
        """The number of memories by scope whose row here is missing, obsolete or of another text,
        though the sync has passed them. Nothing is compared while the table is not open or a sync
        is under way."""
        if not self._lock.acquire(blocking=False):
            return {}
        try:
            if self._table is None:
                return {}
            with self._reading() as reader:
                found = reader.execute(
                    "SELECT id, scope FROM (SELECT unnest(?::VARCHAR[]) AS id)"
                    " LEFT JOIN memory_rows ON memory_id = id WHERE coalesce(write_seq, 0) <= ?",
                    [self._differing(reader), self._position],
                ).fetchall()
        finally:
            self._lock.release()
        scopes = Counter(scope for key, scope in found if scope and key not in self._late)
        unknown = self._found(_listed([key for key, scope in found if not scope]), ["scope"])
        scopes.update([] if unknown is None else unknown["scope"].to_pylist())
        return scopes

    def held(self, scope: str) -> pa.Table | None:
        """`embedding_key` and `vector` of a scope's memories, in any order, as of the last sync.

        Found by the index of scopes, where DuckDB looks through the vectors of all scopes. None
        where that is as quick, or this table cannot be read.
        """
        if self._query(lambda table: table.count_rows() >= HELD_FROM):
            return self._found(f"scope = {_literal(scope)}", ["embedding_key", "vector"])
        return None

    def vectors(self, memory_ids: Sequence[str]) -> pa.Table | None:
        """As `held`, of these memories."""
        return self._found(_listed(memory_ids), ["embedding_key", "vector"])

    def nearest(self, scope: str, vector: Vector, count: int, facts_only: bool) -> pa.Table | None:
        """`memory_id` and `vector` of `count` memories of a scope whose product with a vector is
        large, as of the last sync: nearly those with the largest, by the index if there is one; of
        facts just those, by comparing all vectors. None if this table cannot be read."""

        def search(table: Any) -> pa.Table:
            here = f"scope = {_literal(scope)}" + (" AND NOT is_turn" if facts_only else "")
            query = table.search(vector, query_type="vector", vector_column_name="vector")
            query = query.distance_type("dot").where(here, prefilter=True).limit(count)
            if facts_only:
                query = query.bypass_vector_index()
            else:
                query = query.nprobes(PROBES).refine_factor(REFINED)
            return query.select(["memory_id", "vector", "_distance"]).to_arrow()

        return self._query(search)

    @property
    def position(self) -> int:
        """The write sequence as of the last sync."""
        return self._position

    def tokens(self, memory_ids: Sequence[str]) -> dict[str, HeldTokens]:
        """Those of these memories that have tokens here, as of the last sync; found by the index
        of ids. None where the store is small."""
        if not self._copies_tokens:
            return {}
        rows = self._found(_listed(memory_ids), ["memory_id", "embedding_key", "tokens"])
        if rows is None:
            return {}
        columns = (rows[name].to_pylist() for name in ("memory_id", "embedding_key", "tokens"))
        return {
            memory_id: HeldTokens(key, packed)
            for memory_id, key, packed in zip(*columns, strict=True)
            if packed is not None
        }

    def _found(self, condition: str, columns: list[str]) -> pa.Table | None:
        return self._query(lambda table: table.search().where(condition).select(columns).to_arrow())

    def _query(self, query: Callable[[Any], T]) -> T | None:
        """Queries the table; returns None if it cannot be read."""
        table = self._table
        if table is None:
            return None
        try:
            return query(table)
        except Exception:  # any LanceDB error: the next sync checks it, and rebuilds it from DuckDB
            # A sync under way notices by itself, and may take long: no search waits for it.
            if self._lock.acquire(blocking=False):
                if self._table is table:
                    self._table = None
                self._lock.release()
            return None

    @property
    def is_open(self) -> bool:
        """Whether there is anything to search since the last sync."""
        return self._table is not None

    def write_again(self) -> None:
        """Writes the table anew beside its files, whose place it takes: compaction leaves the bytes
        of deleted rows if they are few. Searches and syncs go on meanwhile. One thread at a time.
        Raises StoreClosed, OSError and duckdb.Error."""
        new = VectorTable(
            self.folder.parent.parent,
            self._model,
            self._dimensions,
            self._reading,
            self._indexed_from,
        )
        new.folder = self.folder.with_name(self.folder.name + BESIDE)
        new.remove()
        try:
            if self.is_open:
                new.sync()
            with self._lock, self._reading() as reader:
                self._table = None
                shutil.rmtree(self.folder, ignore_errors=True)
                if new.is_open:
                    os.replace(new.folder, self.folder)
                    self._sync(reader)  # compares all: what was synced meanwhile lay in the old one
        except (StoreClosed, OSError, duckdb.Error):
            raise
        except Exception as error:  # any LanceDB error: the next sync makes the table anew
            logger.warning("the vectors in %s are made anew: %s", self.folder, error)
            for table in (self, new):
                table.remove()

    def remove(self) -> None:
        """Removes the table's files. The next sync creates the table again."""
        with self._lock:
            self._table = None
            shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Closes the table, with nothing left to be merged in its files."""
        with self._lock:
            table, self._table = self._table, None
            self._tidy(table, timedelta(0))

    def rest(self) -> None:
        """Merges the small files of a table to which nothing has been written for KEEP_VERSIONS,
        and removes those of its older versions."""
        with self._lock:
            self._tidy(self._table, KEEP_VERSIONS)

    def _tidy(self, table: Any, older_than: timedelta) -> None:
        with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
            if table is not None and self._has_written:
                table.optimize(cleanup_older_than=older_than)

    # --- within the lock --------------------------------------------------------------------

    def _sync(self, connection: duckdb.DuckDBPyConnection) -> Synced:
        rebuilt = None
        if self._table is None:
            rebuilt = self._open()
        try:
            return self._bring_up(connection, rebuilt, compare=self._merges < 0)
        except Exception as error:
            # Any LanceDB error: DuckDB has all of its content. Once; a second error is raised.
            rebuilt = f"damaged: {error}"
            self._recreate()
            return self._bring_up(connection, rebuilt, compare=True)

    def _open(self) -> str | None:
        """Opens or recreates the table; returns the reason if recreated. The next sync compares
        all."""
        self._merges = -1
        if not self.folder.exists():
            self._recreate()
            return "missing"
        try:
            table = lancedb.connect(self.folder).open_table(TABLE)
            if table.schema != self._schema():
                raise ValueError("it has other columns")
            self._table = table
        except Exception as error:
            self._recreate()
            return f"damaged: {error}"
        return None

    def _recreate(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        table: Any = lancedb.connect(self.folder).create_table(TABLE, schema=self._schema())
        table.set_unenforced_primary_key("memory_id")
        self._table = table
        self._merges = -1

    def _bring_up(
        self, connection: duckdb.DuckDBPyConnection, rebuilt: str | None, compare: bool
    ) -> Synced:
        connection.execute("BEGIN")
        try:
            newest = _number(connection, "SELECT coalesce(max(write_seq), 0) FROM memory_rows")
            late = list(self._late)
            copies = _number(connection, "SELECT count(*) FROM memory_rows") >= TOKENS_FROM
            compare |= copies != self._copies_tokens
            self._copies_tokens = copies
            if compare:
                ids = self._differing(connection)
            else:
                found = connection.execute(
                    "SELECT memory_id FROM memory_rows WHERE write_seq > ?", [self._position]
                ).fetchall()
                ids = sorted({*late, *(row[0] for row in found)})
            # Into an empty table nothing need be merged: no look at what is there for every part.
            is_empty = compare and not self._table.count_rows()
            written = removed = 0
            for first in range(0, len(ids), SYNC_ROWS):
                some = ids[first : first + SYNC_ROWS]
                rows = self._rows(connection, some)
                gone = sorted(set(some) - set(rows["memory_id"].to_pylist()))
                written += self._merge(rows, is_empty)
                removed += self._delete(gone)
        finally:
            connection.execute("COMMIT")
        self._late.difference_update(late)
        self._has_written |= bool(written or removed)
        self._position = newest
        if compare:
            self._merges = 0
            self._optimize(connection)
        elif self._merges >= MERGES_BEFORE_OPTIMIZE:
            self._optimize(connection)
        return Synced(written, removed, newest, rebuilt)

    def _differing(self, connection: duckdb.DuckDBPyConnection) -> list[str]:
        """Returns ids whose vector or tokens here are missing, of another text, or obsolete."""
        assert self._table is not None
        held = self._table.search().select(_HELD).to_arrow()
        connection.register("held", held)
        try:
            found = connection.execute(
                f"SELECT coalesce(w.memory_id, h.memory_id) FROM ({_WANTED}) w"
                " FULL JOIN held h ON h.memory_id = w.memory_id"
                " WHERE w.embedding_key IS DISTINCT FROM h.embedding_key"
                " OR w.lacks_tokens IS DISTINCT FROM h.lacks_tokens ORDER BY 1",
                {
                    "model": self._model,
                    "dimensions": self._dimensions,
                    "copies": self._copies_tokens,
                },
            ).fetchall()
        finally:
            connection.unregister("held")
        return [row[0] for row in found]

    def _rows(self, connection: duckdb.DuckDBPyConnection, ids: list[str]) -> pa.Table:
        """Returns the table's expected rows of these memories, each once."""
        memories: pa.Table = connection.sql(_MEMORIES, params={"ids": ids}).to_arrow_table()
        keys = memories["embedding_key"].unique().to_pylist()
        tokens = "tokens" if self._copies_tokens else "NULL::BLOB AS tokens"
        vectors: pa.Table = connection.sql(
            _VECTORS.format(tokens=tokens),
            params={"model": self._model, "dimensions": self._dimensions, "keys": keys},
        ).to_arrow_table()
        flat = pc.list_flatten(vectors["vector"]).combine_chunks().to_numpy().astype(np.float16)
        listed = pa.FixedSizeListArray.from_arrays(pa.array(flat), self._dimensions)
        places = pc.index_in(memories["embedding_key"], vectors["embedding_key"].combine_chunks())
        found = memories.filter(places.is_valid())
        places = places.drop_null()
        return (
            found.append_column("vector", listed.take(places.combine_chunks()))
            .append_column("tokens", vectors["tokens"].take(places))
            .select(self._schema().names)
            .cast(self._schema())
        )

    def _merge(self, rows: pa.Table, is_new: bool) -> int:
        if not rows.num_rows:
            return 0
        assert self._table is not None
        if is_new:
            self._table.add(rows)
        else:
            merge = self._table.merge_insert("memory_id")
            merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)
        self._merges += 1
        return int(rows.num_rows)

    def _delete(self, ids: list[str]) -> int:
        assert self._table is not None
        for first in range(0, len(ids), 500):
            listed = ", ".join(map(_literal, ids[first : first + 500]))
            self._table.delete(f"memory_id IN ({listed})")
        return len(ids)

    def _optimize(self, connection: duckdb.DuckDBPyConnection) -> None:
        if self._table is None:
            return
        rows = self._table.count_rows()
        indexed = {index.name for index in self._table.list_indices()}
        scalar: list[tuple[str, Bitmap | BTree]] = [("scope", Bitmap()), ("memory_id", BTree())]
        for column, config in scalar:
            if rows and f"{column}_idx" not in indexed:
                self._table.create_index(column, config=config, name=f"{column}_idx")
        largest = _number(connection, _LARGEST)
        if largest >= self._indexed_from and "vector_idx" not in indexed:
            parts = max(2, rows // PARTITION_ROWS)
            vectors = IvfSq(distance_type="dot", num_partitions=parts)
            self._table.create_index("vector", config=vectors, name="vector_idx")
        self._table.optimize(cleanup_older_than=KEEP_VERSIONS)
        self._merges = 0

    def _schema(self) -> pa.Schema:
        return pa.schema(
            [
                pa.field("memory_id", pa.string(), nullable=False),
                pa.field("scope", pa.string()),
                pa.field("is_turn", pa.bool_()),
                pa.field("embedding_key", pa.string()),
                pa.field("vector", pa.list_(pa.float16(), self._dimensions)),
                pa.field("tokens", pa.binary()),
            ]
        )


def _number(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    rows = connection.execute(query).fetchall()
    return int(rows[0][0]) if rows else 0


def _listed(memory_ids: Sequence[str]) -> str:
    return f"memory_id IN ({', '.join(map(_literal, memory_ids))})" if memory_ids else "false"


def _literal(text: str) -> str:
    """A string of LanceDB's filters: nothing in it but quotes has a meaning."""
    return "'" + text.replace("'", "''") + "'"
