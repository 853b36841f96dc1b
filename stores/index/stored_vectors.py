"""The nearest vectors of a scope that is not resident: by LanceDB, and by DuckDB what that does not
have yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import duckdb
import numpy as np
import pyarrow as pa

from palimpsest.stores.index.loading import VECTORS, keyed_vectors
from palimpsest.stores.index.scope_index import STALE_SHARE
from palimpsest.stores.index.search_plan import EVERYTHING, Centred, SearchPlan
from palimpsest.stores.index.segment import UNIT, Integers, whole
from palimpsest.stores.index.vector_column import HalfVectors, Vector
from palimpsest.stores.settings import ShardOptions

NEAREST: Final = 6
"""Factor on the count requested from LanceDB: its order is by products, the search's by cosines of
centred vectors."""
FEW: Final = 2_000
"""Maximum number of memories that pass a filter and are all compared."""
BATCH: Final = 4_096
"""Vectors read at once."""

_PASSING = (
    "SELECT m.memory_id FROM memory_rows m WHERE m.scope = $scope AND NOT m.is_deleted AND {}"
)
_ANY_AFTER = "SELECT 1 FROM memory_rows WHERE scope = $scope AND write_seq > $after LIMIT 1"
_KEYS = (
    "SELECT m.embedding_key FROM memory_rows m WHERE m.scope = $scope AND m.write_seq > $after"
    " AND NOT m.is_deleted AND {}"
)
_IDS = (
    "SELECT embedding_key, memory_id FROM memory_rows WHERE scope = $scope AND NOT is_deleted"
    " AND embedding_key IN (SELECT unnest($keys))"
)


class VectorCopy(Protocol):
    """As `stores.index.lance.VectorTable`."""

    @property
    def position(self) -> int: ...

    def vectors(self, memory_ids: Sequence[str]) -> pa.Table | None: ...

    def nearest(
        self, scope: str, vector: Vector, count: int, facts_only: bool, exact: bool
    ) -> pa.Table | None: ...


@dataclass(frozen=True, slots=True)
class Mean:
    """Of the vectors of a scope when it had this number of documents."""

    documents: int
    vector_sum: Integers
    vector_count: int

    def centre(self, centred: Callable[[Vector, int], Centred]) -> Centred:
        mean = self.vector_sum / (UNIT * max(self.vector_count, 1))
        return centred(mean.astype(np.float32), self.vector_count)


@dataclass(frozen=True, slots=True)
class _Near:
    """Memories (n) and vectors (n, d)."""

    ids: list[str]
    vectors: HalfVectors


class StoredVectors:
    """Of one shard. `copy` is that in LanceDB, if there is one. Any thread may search."""

    def __init__(self, options: ShardOptions, copy: Callable[[], VectorCopy | None]) -> None:
        self._options = options
        self._copy = copy
        self._means: dict[str, Mean] = {}

    def mean(self, reader: duckdb.DuckDBPyConnection, scope: str, documents: int) -> Mean:
        """Nearly: it is computed again when their number has changed much."""
        known = self._means.get(scope)
        if known is None or abs(documents - known.documents) > STALE_SHARE * known.documents:
            total = np.zeros(self._options.dimensions, dtype=np.int64)
            count = 0
            for _, vectors in self._read(reader, SearchPlan(scope), after=-1):
                total += whole(vectors).sum(axis=0)
                count += len(vectors)
            known = self._means[scope] = Mean(documents, total, count)
        return known

    def near(
        self, reader: duckdb.DuckDBPyConnection, plan: SearchPlan, mean: Mean | None
    ) -> set[str]:
        """At least nearly all of the `count` nearest to the vector; of few that pass a
        filter all."""
        assert plan.vector is not None
        if plan.passes != EVERYTHING:
            query = f"{_PASSING.format(plan.passes)} LIMIT {FEW + 1}"
            rows = reader.execute(query, {"scope": plan.scope, **plan.values}).fetchall()
            if len(rows) <= FEW:
                return {row[0] for row in rows}
        centred = None if mean is None or plan.centred is None else mean.centre(plan.centred)
        vector = plan.vector if centred is None else centred.query
        copy = self._copy()
        after = -1 if copy is None else copy.position  # before the search: it may advance meanwhile
        copied = None if copy is None else self._copied(reader, copy, plan, vector)
        newer = self._newer(reader, plan, vector, -1 if copied is None else after)
        found = [near for near in (copied, newer) if near is not None]
        ids = [memory_id for near in found for memory_id in near.ids]
        if centred is None or len(ids) <= plan.count:
            return set(ids)
        cosines = centred.cosines(np.concatenate([near.vectors for near in found]))
        best = np.argpartition(-cosines, plan.count)[: plan.count]
        return {ids[place] for place in best.tolist()}

    def _copied(
        self, reader: duckdb.DuckDBPyConnection, copy: VectorCopy, plan: SearchPlan, vector: Vector
    ) -> _Near | None:
        """As many as are needed after the filter: requests more while too few pass."""
        count = NEAREST * plan.count
        while True:
            exact = plan.centred is None
            found = copy.nearest(plan.scope, vector, count, plan.facts_only, exact)
            if found is None:
                return None
            near = _near(found, self._options.dimensions)
            if plan.passes == EVERYTHING:
                return near
            query = f"{_PASSING.format(plan.passes)} AND m.memory_id IN (SELECT unnest($ids))"
            values = {"scope": plan.scope, "ids": near.ids, **plan.values}
            passing = {row[0] for row in reader.execute(query, values).fetchall()}
            if len(passing) >= NEAREST * plan.count or len(near.ids) < count:
                places = [n for n, memory_id in enumerate(near.ids) if memory_id in passing]
                return _Near([near.ids[place] for place in places], near.vectors[places])
            count *= 4

    def _newer(
        self, reader: duckdb.DuckDBPyConnection, plan: SearchPlan, vector: Vector, after: int
    ) -> _Near | None:
        """The nearest of what was written after a write sequence, by comparing all of it."""
        if not reader.execute(_ANY_AFTER, {"scope": plan.scope, "after": after}).fetchall():
            return None
        count = NEAREST * plan.count
        keys: list[str] = []
        near = np.zeros((0, self._options.dimensions), dtype=np.float16)
        for some, vectors in self._read(reader, plan, after):
            keys, near = keys + some, np.concatenate((near, vectors))
            if len(keys) > count:
                kept = np.argpartition(-(near.astype(np.float32) @ vector), count)[:count]
                keys, near = [keys[place] for place in kept.tolist()], near[kept]
        place_of = {key: place for place, key in enumerate(keys)}
        rows = reader.execute(_IDS, {"scope": plan.scope, "keys": keys}).fetchall()
        return _Near([row[1] for row in rows], near[[place_of[row[0]] for row in rows]])

    def _read(
        self, reader: duckdb.DuckDBPyConnection, plan: SearchPlan, after: int
    ) -> Iterator[tuple[list[str], HalfVectors]]:
        """Embedding keys and vectors of what passes, some at a time."""
        facts = " AND m.type NOT IN ('episodic', 'document_chunk')" if plan.facts_only else ""
        query = VECTORS.format(keys=_KEYS.format(plan.passes) + facts)
        model = self._options.embedding_model
        values = {"scope": plan.scope, "after": after, "model": model, **plan.values}
        for batch in reader.sql(query, params=values).to_arrow_reader(BATCH):
            yield keyed_vectors(batch, self._options.dimensions)


def _near(found: pa.Table, dimensions: int) -> _Near:
    flat = found["vector"].combine_chunks().flatten().to_numpy()
    return _Near(found["memory_id"].to_pylist(), flat.reshape(-1, dimensions))
