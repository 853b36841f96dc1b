"""Loads a scope's index from the store, in whole columns with no object per posting."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import duckdb
import numpy as np
import pyarrow as pa

from palimpsest.stores.index.scope_graph import MENTIONS, NAMES, RELATIONS, fill_graph
from palimpsest.stores.index.scope_index import DERIVED_FROM, ScopeIndex
from palimpsest.stores.index.segment import META, NEVER, Block, Segment, digest
from palimpsest.stores.index.vector_column import HalfVectors

TABLES = ("memory_rows", "memory_edges", "name_rows")
"""Of a scope that has a row in any of them there is something to load."""
_ANY = " UNION ALL ".join(f"SELECT 1 FROM {table} WHERE scope = $scope" for table in TABLES)
_CHANGES = (
    "SELECT 1 FROM memory_rows WHERE scope = $scope"
    " AND (version > 1 OR is_deleted OR valid_until IS NOT NULL) UNION ALL"
    " SELECT 1 FROM held_proposals WHERE scope = $scope LIMIT 1"
)
"""As `ScopeIndex.has_changes`."""
ROWS = (
    "SELECT m.memory_id, m.type AS kind, m.content, m.source_id,"
    " m.content_hash, m.write_seq, coalesce(m.decision_order, -1) AS decision_order, m.version,"
    " epoch_us(m.occurred_at) AS occurred, epoch_us(m.created_at) AS created,"
    f" coalesce(epoch_us(m.valid_until), {NEVER}) AS ends, m.access_count AS accesses,"
    " epoch_us(coalesce(m.last_accessed, m.created_at)) AS accessed, m.importance, m.who,"
    " m.role, m.session_id AS session, coalesce(m.utc_offset_minutes, 0) AS zone,"
    " coalesce(m.project, '') AS project, m.pinned, m.tags,"
    " m.categories, m.metadata, d.length, m.embedding_key FROM memory_rows m"
    " JOIN fts_docs d ON d.memory_id = m.memory_id"
    " WHERE m.scope = $scope AND d.scope = $scope AND NOT m.is_deleted{}"
    " ORDER BY m.write_seq, m.memory_id"
)
"""The rows of a scope, those of a further condition."""
_NUMBERS = (
    *("write_seq", "decision_order", "version", "occurred", "created", "ends", "accesses"),
    *("accessed", "importance", "pinned", "zone"),
)
_NAMES = ("kind", "who", "role", "session", "project")
"""Columns of `META` as the rows have them: numbers, and names."""
# Apart from the rows and in any order: sorting them would take several times their size.
VECTORS = (
    "SELECT embedding_key, vector FROM embeddings"
    " WHERE model = $model AND embedding_key IN ({keys})"
)
_ALL_KEYS = "SELECT embedding_key FROM memory_rows WHERE scope = $scope AND NOT is_deleted"
CopiedVectors = Callable[[str], pa.Table | None]
"""The copied vectors of a scope, if they are faster to read: `embedding_key` and `vector` of any of
its texts; None if there is no copy, or it is no faster."""
_DELETED_TURNS = (
    "SELECT memory_id, session_id FROM memory_rows WHERE scope = ? AND is_deleted"
    " AND type = 'episodic' ORDER BY memory_id"
)
_POSTINGS = "SELECT term, memory_id, tf FROM fts_postings WHERE scope = $scope"


def load_index(
    connection: duckdb.DuckDBPyConnection,
    scope: str,
    model: str,
    dimensions: int,
    folder: Path | None = None,
    copied: CopiedVectors = lambda scope: None,
) -> ScopeIndex:
    """Returns the index of a scope from one snapshot of the store; `folder` as in `ScopeIndex`.

    A text's vector is the same everywhere, so those in `copied` are not read from the store, which
    would scan the vectors of all scopes."""
    index = ScopeIndex(dimensions, folder)
    connection.execute("BEGIN")
    try:
        # Most scopes are first requested when they are new; the queries below take a while even
        # without results.
        if not connection.execute(f"{_ANY} LIMIT 1", {"scope": scope}).fetchall():
            return index
        rows = read(connection, ROWS.format(""), {"scope": scope})
        kept = vectors_of(connection, rows["embedding_key"], scope, model, copied(scope))
        postings = read(connection, _POSTINGS, {"scope": scope})
        edges = connection.execute(
            "SELECT relation_type, source_id, target_id FROM memory_edges WHERE scope = ?"
            " AND relation_type IN ('derived_from', 'temporal')"
            " ORDER BY source_id, target_id",
            [scope],
        ).fetchall()
        deleted = dict(connection.execute(_DELETED_TURNS, [scope]).fetchall())
        index.has_changes = bool(connection.execute(_CHANGES, {"scope": scope}).fetchall())
        graph = [read(connection, q, {"scope": scope}) for q in (NAMES, RELATIONS, MENTIONS)]
    finally:
        connection.execute("COMMIT")
    fill(index, rows, kept, postings, edges, deleted=deleted)
    fill_graph(index.graph, *graph)
    return index


def fill(
    index: ScopeIndex,
    rows: pa.Table,
    kept: Sequence[pa.Table],
    postings: pa.Table,
    edges: Iterable[tuple[str, str, str]],
    gap: int = 0,
    deleted: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Put rows of `ROWS` into an empty index, with `kept` vectors by embedding key, postings and
    edges (relation, source, target); `gap` slots are left empty between turns of a session that
    no edges join. `deleted` are the sessions of deleted turns, which may be recovered."""
    import pyarrow.compute as pc  # not by who reads no index: it takes a tenth of their start

    dimensions = index.turns.vectors.shape[1]
    is_turn = pc.equal(rows["kind"], "episodic")
    for segment, wanted in ((index.turns, is_turn), (index.facts, pc.invert(is_turn))):
        block = rows.filter(wanted)
        if block.num_rows:
            segment.load(_block(block, segment, kept, dimensions))
            # The postings of the block's documents, whose places they have by their order.
            found = pc.index_in(
                postings["memory_id"], value_set=block["memory_id"].combine_chunks()
            )
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
    following = {}
    for relation, source, target in edges:
        if relation == DERIVED_FROM:
            index.link_ids(source, target)
        else:
            following[source] = target
    _order_turns(index, following, gap, deleted)


def vectors_of(
    connection: duckdb.DuckDBPyConnection,
    keys: pa.ChunkedArray,
    scope: str,
    model: str,
    copied: pa.Table | None,
) -> list[pa.Table]:
    """The copy's vectors, and from the store those of `keys` that it lacks; where there is no copy,
    all of the scope."""
    import pyarrow.compute as pc

    if copied is None:
        query = VECTORS.format(keys=_ALL_KEYS)
        return [read(connection, query, {"scope": scope, "model": model})]
    missing = keys.filter(pc.invert(pc.is_in(keys, value_set=copied["embedding_key"])))
    if not len(missing):
        return [copied]
    query = VECTORS.format(keys="SELECT unnest($keys)")
    return [copied, read(connection, query, {"keys": missing.to_pylist(), "model": model})]


def read(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: dict[str, object]
) -> pa.Table:
    """The rows of a query, by columns."""
    table: pa.Table = connection.sql(query, params=parameters).to_arrow_table()
    return table


def _block(rows: pa.Table, segment: Segment, kept: Sequence[pa.Table], dimensions: int) -> Block:
    import pyarrow.compute as pc

    meta = np.zeros(rows.num_rows, dtype=META)
    for column in _NUMBERS:
        meta[column] = rows[column].to_numpy()
    for column in _NAMES:
        meta[column] = [segment.numbers.of(name) for name in rows[column].to_pylist()]
    meta["digest"] = [digest(value) for value in rows["content_hash"].to_pylist()]
    meta["text"] = [digest(value) for value in rows["embedding_key"].to_pylist()]
    # A row of zeros for a key of which no vector of the right size is stored.
    vectors = np.zeros((rows.num_rows, dimensions), dtype=np.float16)
    has_vector = np.zeros(rows.num_rows, dtype=np.bool_)
    for batch in (batch for table in kept for batch in table.to_batches()):
        known, flat = _fitting(batch, dimensions)
        found = np.asarray(pc.index_in(rows["embedding_key"], value_set=known).fill_null(-1))
        places = np.flatnonzero(found >= 0)
        vectors[places] = flat[found[places]]
        has_vector[places] = True
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
        metadata=[sys.intern(text) for text in rows["metadata"].to_pylist()],
    )


def _tuples(column: pa.ChunkedArray) -> list[tuple[str, ...]]:
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    # One object for each distinct list: most memories have none.
    return [known.setdefault(found, found) for found in map(tuple, column.to_pylist())]


def keyed_vectors(batch: pa.RecordBatch, dimensions: int) -> tuple[list[str], HalfVectors]:
    """The embedding keys (n,) and vectors (n, d) of a batch of `VECTORS`, of the right size."""
    keys, flat = _fitting(batch, dimensions)
    return keys.to_pylist(), flat.astype(np.float16)


def _fitting(batch: pa.RecordBatch, dimensions: int) -> tuple[pa.Array, np.ndarray]:
    import pyarrow.compute as pc

    values = batch.column("vector")
    fits = np.asarray(pc.list_value_length(values).fill_null(0)) == dimensions
    # Only lists of the right size: their values then lie in rows one after another.
    flat = np.asarray(values.filter(pa.array(fits)).flatten()).reshape(-1, dimensions)
    return batch.column("embedding_key").filter(pa.array(fits)), flat


def _order_turns(
    index: ScopeIndex, following: dict[str, str], gap: int, deleted: Mapping[str, str]
) -> None:
    """Positions of the turns in their sessions: the order in which they arrived, as the temporal
    edges have it. A missing turn of the chain leaves its position empty."""
    segment = index.turns
    followed = set(following.values())
    starts = [i for i in [*following, *segment.ids, *deleted] if i not in followed]
    for start in dict.fromkeys(starts):
        chain = [start]
        while chain[-1] in following and len(chain) <= len(following):
            chain.append(following[chain[-1]])
        places = [segment.place_of.get(memory_id, -1) for memory_id in chain]
        session = next((int(segment.meta[p]["session"]) for p in places if p >= 0), -1)
        if session < 0:
            name = next((deleted[memory_id] for memory_id in chain if memory_id in deleted), "")
            session = segment.numbers.of(name)
        if session < 0:
            continue
        slots = index.turns_by_session.setdefault(session, array("i"))
        if slots:
            slots.extend([-1] * gap)
        for memory_id, place in zip(chain, places, strict=True):
            if place >= 0:
                segment.meta[place]["position"] = len(slots)
            else:
                index.empty_slots[memory_id] = len(slots)
            slots.append(place)
