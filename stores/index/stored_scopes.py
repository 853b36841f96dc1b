"""Scopes that are too large to be resident, searched where they are stored.

What a search needs is found first: by keywords in DuckDB's postings, by vector in LanceDB, and what
LanceDB does not have yet in DuckDB. Just this, with what stands by it, becomes a small index, which
counts the rest of the scope in its statistics; so the same search runs over it and finds nearly
the same. A search by decide looks at all vectors of facts; only recall takes an index's word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa

from palimpsest.stores.database.cursors import Reading
from palimpsest.stores.index.loading import (
    ROWS,
    fill,
    read,
    vectors_of,
)
from palimpsest.stores.index.scope_index import DERIVED_FROM, ScopeIndex
from palimpsest.stores.index.search_plan import EVERYTHING, SearchPlan
from palimpsest.stores.index.segment import Beyond, Segment
from palimpsest.stores.index.stored_vectors import StoredVectors, VectorCopy
from palimpsest.stores.settings import ShardOptions

_LATEST = "SELECT count(*), coalesce(max(write_seq), 0) FROM memory_rows WHERE scope = $scope"
_SPEAKERS = (
    "SELECT DISTINCT who FROM memory_rows WHERE scope = $scope AND type = 'episodic'"
    " AND NOT is_deleted"
)
_DOCUMENTS = "(SELECT memory_id, length FROM fts_docs WHERE scope = $scope)"
_FACT_DOCUMENTS = (
    "(SELECT d.memory_id, d.length FROM fts_docs d JOIN memory_rows m USING (memory_id)"
    " WHERE d.scope = $scope AND m.scope = $scope AND m.type NOT IN ('episodic', 'document_chunk'))"
)
_FACTS_AFTER = (
    "SELECT memory_id FROM memory_rows WHERE scope = $scope AND write_seq > $after"
    " AND NOT is_deleted AND type NOT IN ('episodic', 'document_chunk')"
)
_NEWEST = (
    "SELECT m.memory_id FROM memory_rows m WHERE m.scope = $scope AND NOT m.is_deleted AND {}"
    " ORDER BY m.occurred_at DESC, m.memory_id LIMIT $count"
)
_NO_VECTORS = pa.table(
    {"embedding_key": pa.array([], pa.string()), "vector": pa.array([], pa.list_(pa.float32()))}
)
_TOTALS = "SELECT count(*), coalesce(sum(length), 0) FROM {documents}"
_BY_TERMS = """
WITH hits AS MATERIALIZED (
    SELECT p.term, p.memory_id, p.tf, d.length FROM fts_postings p
    JOIN {documents} d USING (memory_id)
    WHERE p.scope = $scope AND p.term IN (SELECT unnest($terms))
), frequency AS (SELECT term, count(*) AS df FROM hits GROUP BY term),
scores AS (
    SELECT h.memory_id, sum(ln(1 + ($documents - f.df + 0.5) / (f.df + 0.5)) * h.tf
        / (h.tf + $k1 * (1 - $b + $b * h.length / $average))) AS score
    FROM hits h JOIN frequency f USING (term) {passing} GROUP BY h.memory_id
)
SELECT true, term, df FROM frequency UNION ALL
(SELECT false, memory_id, NULL FROM scores ORDER BY score DESC, memory_id LIMIT $count)"""
_PASSING = "JOIN (SELECT m.memory_id FROM memory_rows m WHERE {}) USING (memory_id)"
_HAVING = "SELECT memory_id FROM fts_postings WHERE scope = $scope AND term IN (SELECT unnest(${}))"
_POSTINGS = (
    "SELECT term, memory_id, tf FROM fts_postings WHERE scope = $scope"
    " AND term IN (SELECT unnest($terms)) AND memory_id IN (SELECT unnest($ids))"
)
_TEMPORAL = (
    "SELECT source_id, target_id FROM memory_edges WHERE scope = $scope"
    " AND relation_type = 'temporal' AND (source_id IN (SELECT unnest($ids))"
    " OR target_id IN (SELECT unnest($ids)))"
)
_DERIVED = (
    "SELECT source_id, target_id FROM memory_edges WHERE scope = $scope"
    " AND relation_type = 'derived_from' AND {} IN (SELECT unnest($ids))"
)


class FoundOfScope(ScopeIndex):
    """What one search needs of a scope, and how to get more of it."""

    def __init__(
        self, dimensions: int, need: SearchPlan, load: Callable[[SearchPlan], ScopeIndex]
    ) -> None:
        super().__init__(dimensions)
        self._need = need
        self._load = load

    def including(self, memory_ids: Collection[str]) -> ScopeIndex:
        new = set(memory_ids) - set(self._need.ids)
        if all(self.find(memory_id) for memory_id in new):
            return self
        return self._load(SearchPlan(self._need.scope, ids={*memory_ids}, reach=0))


@dataclass(frozen=True, slots=True)
class _Totals:
    """How many documents, of how many terms, when this was `latest`."""

    latest: tuple[int, ...]
    documents: int
    length: float


@dataclass(frozen=True, slots=True)
class _Edges:
    """Memories, and what joins them: relation, source and target."""

    ids: set[str]
    found: set[tuple[str, str, str]]


class StoredScopes:
    """Of one shard. `copy` is that of its vectors, if there is one. Any thread may ask."""

    def __init__(
        self, reading: Reading, options: ShardOptions, copy: Callable[[], VectorCopy | None]
    ) -> None:
        self._reading = reading
        self._options = options
        self._copy = copy
        self._vectors = StoredVectors(options, copy)
        self._totals: dict[tuple[str, bool], _Totals] = {}

    def search(self, need: SearchPlan) -> ScopeIndex:
        """An index that has what is needed, and counts the rest of the scope."""
        with self._reading() as reader:
            reader.execute("BEGIN")
            try:
                return self._found(reader, need)
            finally:
                reader.execute("COMMIT")

    def _found(self, reader: duckdb.DuckDBPyConnection, need: SearchPlan) -> ScopeIndex:
        ids = set(need.ids) | _having(reader, need) | _written_after(reader, need)
        totals = self._totals_of(reader, need)
        frequency, best = _by_terms(reader, need, totals)
        ids |= best
        mean = (
            None
            if need.centred is None
            else self._vectors.mean(reader, need.scope, totals.documents)
        )
        if need.vector is not None and need.count:
            ids |= self._vectors.near(reader, need, mean)
        if need.reach is not None and len(ids) < need.count:
            ids |= _newest(reader, need)
        edges = _Edges(ids, set()) if need.reach is None else _beside(reader, need, ids)
        index = self._loaded(reader, need, edges)
        segments = (index.facts,) if need.facts_only else index.segments
        index.facts.beyond = _beyond(segments, totals, frequency)
        if mean is not None:
            index.facts.vector_sum = mean.vector_sum - index.turns.vector_sum
            index.facts.vector_count = mean.vector_count - index.turns.vector_count
            names = reader.execute(_SPEAKERS, {"scope": need.scope}).fetchall()
            index.know_speakers(who for (who,) in names)
        return index

    def _totals_of(self, reader: duckdb.DuckDBPyConnection, need: SearchPlan) -> _Totals:
        latest = tuple(reader.execute(_LATEST, {"scope": need.scope}).fetchall()[0])
        known = self._totals.get((need.scope, need.facts_only))
        if known is None or known.latest != latest:
            query = _TOTALS.format(documents=_documents(need))
            documents, length = reader.execute(query, {"scope": need.scope}).fetchall()[0]
            known = _Totals(latest, int(documents), float(length))
            self._totals[need.scope, need.facts_only] = known
        return known

    def _loaded(
        self, reader: duckdb.DuckDBPyConnection, need: SearchPlan, edges: _Edges
    ) -> FoundOfScope:
        index = FoundOfScope(self._options.dimensions, replace(need, ids=edges.ids), self.search)
        ids = sorted(edges.ids)
        values: dict[str, object] = {"scope": need.scope, "ids": ids}
        rows = read(reader, ROWS.format(" AND m.memory_id IN (SELECT unnest($ids))"), values)
        copy = self._copy()
        copied = None if copy is None else copy.vectors(ids)
        if copied is None:
            copied = _NO_VECTORS
        model = self._options.embedding_model
        kept = vectors_of(reader, rows["embedding_key"], need.scope, model, copied)
        postings = read(reader, _POSTINGS, {**values, "terms": _terms(need)})
        fill(index, rows, kept, postings, sorted(edges.found), gap=need.reach or 0)
        return index


def _terms(need: SearchPlan) -> list[str]:
    words = (term for forms in need.words for term in forms)
    return list(dict.fromkeys((*need.terms, *words)))


def _documents(need: SearchPlan) -> str:
    return _FACT_DOCUMENTS if need.facts_only else _DOCUMENTS


def _having(reader: duckdb.DuckDBPyConnection, need: SearchPlan) -> set[str]:
    if not need.words:
        return set()
    query = " INTERSECT ".join(_HAVING.format(f"w{n}") for n in range(len(need.words)))
    values = {f"w{n}": list(forms) for n, forms in enumerate(need.words)}
    return {row[0] for row in reader.execute(query, {"scope": need.scope, **values}).fetchall()}


def _written_after(reader: duckdb.DuckDBPyConnection, need: SearchPlan) -> set[str]:
    if need.written_after is None:
        return set()
    values = {"scope": need.scope, "after": need.written_after}
    return {row[0] for row in reader.execute(_FACTS_AFTER, values).fetchall()}


def _newest(reader: duckdb.DuckDBPyConnection, need: SearchPlan) -> set[str]:
    values = {**need.values, "scope": need.scope, "count": need.count}
    return {row[0] for row in reader.execute(_NEWEST.format(need.passes), values).fetchall()}


def _by_terms(
    reader: duckdb.DuckDBPyConnection, need: SearchPlan, totals: _Totals
) -> tuple[dict[str, int], set[str]]:
    """How many memories have a term, and the best by BM25."""
    if not need.terms:
        return {}, set()
    passing = "" if need.passes == EVERYTHING else _PASSING.format(need.passes)
    query = _BY_TERMS.format(documents=_documents(need), passing=passing)
    values = {
        "scope": need.scope,
        "terms": list(dict.fromkeys(need.terms)),
        "documents": totals.documents,
        "average": max(totals.length / max(totals.documents, 1), 1.0),
        "k1": need.k1,
        "b": need.b,
        "count": need.count,
        **(need.values if passing else {}),
    }
    rows = reader.execute(query, values).fetchall()
    frequency = {key: df for is_term, key, df in rows if is_term}
    return frequency, {key for is_term, key, _ in rows if not is_term}


def _beside(reader: duckdb.DuckDBPyConnection, need: SearchPlan, ids: set[str]) -> _Edges:
    """The turns that these were drawn from, the turns beside all these, the facts drawn from them
    and all that those were drawn from."""

    def asked(query: str, ids: set[str]) -> set[tuple[str, str]]:
        values = {"scope": need.scope, "ids": sorted(ids)}
        return set(reader.execute(query, values).fetchall()) if ids else set()

    derived = asked(_DERIVED.format("source_id"), ids)
    turns = ids | {source for _, source in derived}
    beside: set[tuple[str, str]] = set()
    edge = turns
    for _ in range(need.reach or 0):
        beside |= (new := asked(_TEMPORAL, edge))
        edge = {end for ends in new for end in ends} - turns
        turns |= edge
    drawn = asked(_DERIVED.format("target_id"), turns)
    derived |= asked(_DERIVED.format("source_id"), {fact for fact, _ in drawn})
    found = {(DERIVED_FROM, *pair) for pair in derived} | {("temporal", *pair) for pair in beside}
    return _Edges(turns | {end for ends in derived for end in ends}, found)


def _beyond(segments: Sequence[Segment], totals: _Totals, frequency: Mapping[str, int]) -> Beyond:
    here = {
        term: sum(len(held[0]) for s in segments if (held := s.postings.get(term)) is not None)
        for term in frequency
    }
    return Beyond(
        totals.documents - sum(segment.places for segment in segments),
        totals.length - sum(segment.total_length for segment in segments),
        {term: count - here[term] for term, count in frequency.items()},
    )
