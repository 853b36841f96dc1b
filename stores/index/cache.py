"""Which scopes are resident: read from DuckDB on first use, the least used dropped first.

An index is read in whole columns by Arrow, with no object per posting.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from palimpsest.stores.database.cursors import Reading
from palimpsest.stores.index.scope_index import DERIVED_FROM, ScopeIndex
from palimpsest.stores.index.segment import META, NEVER, Block, Mask, Segment, digest
from palimpsest.stores.index.vector_column import HalfVectors
from palimpsest.stores.settings import ShardOptions

LOAD_LOCKS = 64
"""A scope is loaded by one thread at a time; these are shared by all scopes."""

MANY_PLACES = 20_000
"""Loading so many leaves several times their size behind in the allocators."""

Change = Callable[[ScopeIndex], None]


_ANY = (
    "SELECT 1 FROM memory_rows WHERE scope = ? UNION ALL"
    " SELECT 1 FROM memory_edges WHERE scope = ? LIMIT 1"
)
_ROWS = (
    "SELECT m.memory_id, m.type, m.content, m.source_id,"
    " m.content_hash, m.write_seq, coalesce(m.decision_order, -1) AS decision_order, m.version,"
    " epoch_us(m.occurred_at) AS occurred, epoch_us(m.created_at) AS created,"
    f" coalesce(epoch_us(m.valid_until), {NEVER}) AS ends, m.access_count, m.importance, m.who,"
    " m.session_id, coalesce(m.project, '') AS project, m.pinned, m.tags, m.categories, d.length,"
    " m.embedding_key FROM memory_rows m JOIN fts_docs d ON d.memory_id = m.memory_id"
    " WHERE m.scope = $scope AND d.scope = $scope AND NOT m.is_deleted"
    " ORDER BY m.write_seq, m.memory_id"
)
# Apart from the rows and in any order: sorting them would take several times their size.
_VECTORS = (
    "SELECT embedding_key, vector FROM embeddings"
    " WHERE model = $model AND embedding_key IN ({keys})"
)
_ALL_KEYS = "SELECT embedding_key FROM memory_rows WHERE scope = $scope AND NOT is_deleted"
CopiedVectors = Callable[[str], pa.Table | None]
"""What a copy of the vectors has of a scope, quickly: `embedding_key` and `vector` of any of its
texts; None where there is no copy, or it is no quicker."""
_POSTINGS = "SELECT term, memory_id, tf FROM fts_postings WHERE scope = $scope"


class IndexCache:
    """Scope indexes by scope, bounded in bytes. The newest used scope always stays.

    Any thread may ask; a scope that two ask for is loaded once. What is committed while a scope
    is being loaded is kept and applied after: applying a change twice is the same as once.
    """

    def __init__(
        self,
        reading: Reading,
        options: ShardOptions,
        folder: Path,
        copied: CopiedVectors,
    ) -> None:
        self._reading = reading
        self._copied = copied
        self._folder = folder
        self._options = options
        self._resident: OrderedDict[str, ScopeIndex] = OrderedDict()
        self._lock = threading.Lock()
        self._loading: dict[str, list[Change]] = {}
        self._load_locks = [threading.Lock() for _ in range(LOAD_LOCKS)]

    def get(self, scope: str) -> ScopeIndex:
        """The index of a scope, loaded when it is not resident."""
        index = self.resident(scope)
        if index is not None:
            return index
        with self._load_locks[hash(scope) % LOAD_LOCKS]:
            index = self.resident(scope)
            return self._load(scope) if index is None else index

    def resident(self, scope: str) -> ScopeIndex | None:
        """The index if it is resident."""
        with self._lock:
            index = self._resident.get(scope)
            if index is not None:
                self._resident.move_to_end(scope)
            return index

    def texts_of(self, memory_ids: Sequence[str]) -> dict[str, int | None]:
        """The digests of the texts that memories of resident scopes have now, by id; None where
        the text has no vector."""
        with self._lock:
            indexes = [*reversed(self._resident.values())]
        texts: dict[str, int | None] = {}
        for index in indexes:
            if len(texts) == len(memory_ids):
                break
            with index.lock:
                for memory_id in memory_ids:
                    found = None if memory_id in texts else index.find(memory_id)
                    if found is not None:
                        segment, place = found
                        has_vector = segment.has_vector[place]
                        texts[memory_id] = int(segment.meta[place]["text"]) if has_vector else None
        return texts

    def change(self, scope: str, change: Change) -> None:
        """Apply a committed change to the index, now or when its loading ends; what is not
        resident need not be kept current."""
        with self._lock:
            waiting = self._loading.get(scope)
            if waiting is not None:
                waiting.append(change)
            index = self._resident.get(scope)
        if index is not None:
            change(index)

    def wanted(self, scope: str) -> bool:
        """Whether `change` would do anything."""
        with self._lock:
            return scope in self._resident or scope in self._loading

    def forget(self, scope: str) -> None:
        with self._lock:
            self._resident.pop(scope, None)

    def clear(self) -> None:
        with self._lock:
            self._resident.clear()

    def bytes_used(self) -> int:
        with self._lock:
            return sum(index.bytes_used() for index in self._resident.values())

    def _load(self, scope: str) -> ScopeIndex:
        with self._lock:
            self._loading[scope] = []
        try:
            with self._reading() as reader:
                index = load_index(
                    reader,
                    scope,
                    self._options.embedding_model,
                    self._options.dimensions,
                    self._folder,
                    self._copied,
                )
        except BaseException:
            with self._lock:
                del self._loading[scope]
            raise
        with self._lock:
            for change in self._loading.pop(scope):
                change(index)
            self._resident[scope] = index
            self._make_room()
        if sum(segment.places for segment in index.segments) >= MANY_PLACES:
            _give_back()
        return index

    def _make_room(self) -> None:
        used = {scope: index.bytes_used() for scope, index in self._resident.items()}
        while len(self._resident) > 1 and sum(used.values()) > self._options.store.index_bytes:
            scope, _ = self._resident.popitem(last=False)
            del used[scope]


def _give_back() -> None:
    """Return to the system what loading needed and freed."""
    pa.default_memory_pool().release_unused()
    # Only the C library of GNU has it, and only there is it needed.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


# --- reading ----------------------------------------------------------------------------------


def load_index(
    connection: duckdb.DuckDBPyConnection,
    scope: str,
    model: str,
    dimensions: int,
    folder: Path | None = None,
    copied: CopiedVectors = lambda scope: None,
) -> ScopeIndex:
    """The index of a scope as one snapshot of the store has it; `folder` as `ScopeIndex` has it.

    A text's vector is the same wherever it is kept, so those that `copied` gives are not asked of
    the store, which would look through the vectors of all scopes.
    """
    index = ScopeIndex(dimensions, folder)
    connection.execute("BEGIN")
    try:
        # Most scopes are asked for first when they are new; the queries below take a while even
        # to find nothing.
        if not connection.execute(_ANY, [scope, scope]).fetchall():
            return index
        rows = _table(connection, _ROWS, {"scope": scope})
        kept = _vectors_of(connection, rows["embedding_key"], scope, model, copied(scope))
        postings = _table(connection, _POSTINGS, {"scope": scope})
        edges = connection.execute(
            "SELECT relation_type, source_id, target_id FROM memory_edges WHERE scope = ?"
            " AND relation_type IN ('derived_from', 'temporal')"
            " ORDER BY source_id, target_id",
            [scope],
        ).fetchall()
    finally:
        connection.execute("COMMIT")
    is_turn = pc.equal(rows["type"], "episodic")
    for segment, wanted in ((index.turns, is_turn), (index.facts, pc.invert(is_turn))):
        block = rows.filter(wanted)
        if block.num_rows:
            segment.load(_block(block, segment, kept, dimensions))
            _load_postings(segment, postings, block["memory_id"])
    following = {}
    for relation, source, target in edges:
        if relation == DERIVED_FROM:
            index.link_ids(source, target)
        else:
            following[source] = target
    _seat(index, following)
    return index


def _vectors_of(
    connection: duckdb.DuckDBPyConnection,
    keys: pa.ChunkedArray,
    scope: str,
    model: str,
    copied: pa.Table | None,
) -> list[pa.Table]:
    """The copy's vectors, and from the store those that it lacks; all, where there is no copy."""
    if copied is None:
        query = _VECTORS.format(keys=_ALL_KEYS)
        return [_table(connection, query, {"scope": scope, "model": model})]
    missing = keys.filter(pc.invert(pc.is_in(keys, value_set=copied["embedding_key"])))
    if not len(missing):
        return [copied]
    query = _VECTORS.format(keys="SELECT unnest($keys)")
    return [copied, _table(connection, query, {"keys": missing.to_pylist(), "model": model})]


def _table(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: dict[str, object]
) -> pa.Table:
    table: pa.Table = connection.sql(query, params=parameters).to_arrow_table()
    return table


def _block(rows: pa.Table, segment: Segment, kept: Sequence[pa.Table], dimensions: int) -> Block:
    meta = np.zeros(rows.num_rows, dtype=META)
    for field, column in (
        ("write_seq", "write_seq"), ("decision_order", "decision_order"), ("version", "version"),
        ("occurred", "occurred"), ("created", "created"), ("ends", "ends"),
        ("accesses", "access_count"), ("importance", "importance"), ("pinned", "pinned"),
    ):  # fmt: skip
        meta[field] = rows[column].to_numpy()
    meta["digest"] = [digest(value) for value in rows["content_hash"].to_pylist()]
    meta["text"] = [digest(value) for value in rows["embedding_key"].to_pylist()]
    for field, column in (
        ("kind", "type"), ("who", "who"), ("session", "session_id"), ("project", "project"),
    ):  # fmt: skip
        meta[field] = [segment.numbers.of(name) for name in rows[column].to_pylist()]
    vectors, has_vector = _vectors(rows["embedding_key"], kept, dimensions)
    return Block(
        ids=rows["memory_id"].to_pylist(),
        contents=rows["content"].to_pylist(),
        source_ids=rows["source_id"].to_pylist(),
        meta=meta,
        lengths=rows["length"].to_numpy().astype(np.float64),
        vectors=vectors,
        has_vector=has_vector,
        tags=_tuples(rows["tags"]),
        categories=_tuples(rows["categories"]),
    )


def _tuples(column: pa.ChunkedArray) -> list[tuple[str, ...]]:
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    # One object for each distinct list: most memories have none.
    return [known.setdefault(found, found) for found in map(tuple, column.to_pylist())]


def _vectors(
    keys: pa.ChunkedArray, kept: Sequence[pa.Table], dimensions: int
) -> tuple[HalfVectors, Mask]:
    """The vector of each key, a row of zeros where none of the right size is kept."""
    vectors = np.zeros((len(keys), dimensions), dtype=np.float16)
    has_vector = np.zeros(len(keys), dtype=np.bool_)
    for batch in (batch for table in kept for batch in table.to_batches()):
        values = batch.column("vector")
        fits = np.asarray(pc.list_value_length(values).fill_null(0)) == dimensions
        # Only lists of the right size: their values then lie in rows one after another.
        flat = np.asarray(values.filter(pa.array(fits)).flatten()).reshape(-1, dimensions)
        known = batch.column("embedding_key").filter(pa.array(fits))
        found = np.asarray(pc.index_in(keys, value_set=known).fill_null(-1))
        rows = np.flatnonzero(found >= 0)
        vectors[rows] = flat[found[rows]]
        has_vector[rows] = True
    return vectors, has_vector


def _load_postings(segment: Segment, postings: pa.Table, ids: pa.ChunkedArray) -> None:
    """Those of the documents `ids`, whose places they have by their order."""
    found = pc.index_in(postings["memory_id"], value_set=ids.combine_chunks())
    places = np.asarray(found.fill_null(-1))
    here = np.flatnonzero(places >= 0)
    encoded = postings["term"].take(pa.array(here)).combine_chunks().dictionary_encode()
    of_term = encoded.indices.to_numpy()
    order = np.lexsort((places[here], of_term))
    segment.postings.load(
        encoded.dictionary.to_pylist(),
        of_term[order],
        places[here][order].astype(np.int32),
        postings["tf"].to_numpy()[here][order],
    )


def _seat(index: ScopeIndex, following: dict[str, str]) -> None:
    """Positions of the turns in their sessions: the order in which they arrived, as the temporal
    edges tell it. A turn of the chain that is gone leaves its seat empty."""
    segment = index.turns
    followed = set(following.values())
    starts = [i for i in [*following, *segment.ids] if i not in followed]
    for start in dict.fromkeys(starts):
        chain = [start]
        while chain[-1] in following and len(chain) <= len(following):
            chain.append(following[chain[-1]])
        places = [segment.place_of.get(memory_id, -1) for memory_id in chain]
        session = next((int(segment.meta[p]["session"]) for p in places if p >= 0), -1)
        if session < 0:
            continue
        seats = index.seats.setdefault(session, array("i"))
        for memory_id, place in zip(chain, places, strict=True):
            if place >= 0:
                segment.meta[place]["position"] = len(seats)
            else:
                index.empty_seats[memory_id] = len(seats)
            seats.append(place)
