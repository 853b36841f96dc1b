"""Scopes that are too large to be resident, searched where they are stored.

The candidates are found first: by keywords in DuckDB's postings, by vector in LanceDB, and what
LanceDB does not have yet in DuckDB. Only these and the memories around them are loaded into a small
index, which counts the rest of the scope in its statistics; so the same search runs over it and
finds nearly the same. A search by decide compares all vectors of facts; only recall relies on an
approximate index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from palimpsest.stores.database.cursors import Reading
from palimpsest.stores.index.loading import (
    ROWS,
    fill,
    read,
    vectors_of,
)
from palimpsest.stores.index.name_words import stands_in
from palimpsest.stores.index.scope_graph import NAME_COLUMNS, KnownName, Mentions, Stated
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
_NAMED = f"""
SELECT {", ".join(NAME_COLUMNS)} FROM name_rows
WHERE scope = $scope AND entity_id IN (SELECT entity_id FROM name_rows WHERE scope = $scope
    AND (contains($text, canonical_name) OR regexp_matches(canonical_name, $starts)))"""
"""All names of the entities of which one may be in a query. Tokens are alphanumeric, so the pattern
needs no escapes."""
_RELATED = """
WITH known AS (SELECT list(name_id) AS names FROM name_rows
    WHERE scope = $scope AND list_contains($ids, entity_id))
SELECT n.entity_id, r.mentions, r.confidence
FROM living_relations r CROSS JOIN known JOIN name_rows n ON n.name_id = CASE
    WHEN list_contains(known.names, r.source_name_id) THEN r.target_name_id
    ELSE r.source_name_id END
JOIN name_rows main ON main.name_id = n.entity_id
WHERE r.scope = $scope AND NOT list_contains($ids, n.entity_id)
    AND (list_contains(known.names, r.source_name_id)
        OR list_contains(known.names, r.target_name_id))"""
_MENTIONED = """
WITH wanted AS (SELECT unnest($ids) AS entity_id, generate_subscripts($ids, 1) - 1 AS entity)
SELECT w.entity, m.memory_id, max(m.confidence) AS confidence,
    any_value(r.importance) AS importance, any_value(epoch_us(r.occurred_at)) AS occurred
FROM present_mentions m JOIN wanted w USING (entity_id) JOIN memory_rows r USING (memory_id)
WHERE m.scope = $scope AND r.scope = $scope GROUP BY w.entity, m.memory_id"""
_DERIVED = (
    "SELECT source_id, target_id FROM memory_edges WHERE scope = $scope"
    " AND relation_type = 'derived_from' AND {} IN (SELECT unnest($ids))"
)


class PartialIndex(ScopeIndex):
    """What one search needs of a scope, and how to load more of it. Its own graph is empty."""

    is_whole = False

    def __init__(self, dimensions: int, plan: SearchPlan, load: Callable[[SearchPlan], ScopeIndex]):
        super().__init__(dimensions)
        self._plan = plan
        self._load = load

    def including(self, memory_ids: Collection[str]) -> ScopeIndex:
        new = set(memory_ids) - set(self._plan.ids)
        if all(self.find(memory_id) for memory_id in new):
            return self
        return self._load(SearchPlan(self._plan.scope, ids={*memory_ids}, reach=0))


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """The graph of a scope as the tables have it (`stores.index.scope_graph.Graph`)."""

    reading: Reading
    scope: str

    def documents(self) -> int:
        return int(self._rows("SELECT count(*) FROM fts_docs WHERE scope = $scope")[0][0])

    def named(
        self, query: str, tokens: frozenset[str], language: str
    ) -> dict[str, list[KnownName]]:
        # A word and its stem have all but their last characters in common.
        starts = {token[:-1] if len(token) > 3 else token for token in tokens}
        rows = self._rows(_NAMED, text=query, starts="|".join(sorted(starts)))
        names: dict[str, list[KnownName]] = {}
        for row in rows:
            name = KnownName(*row)
            names.setdefault(name.entity_id, []).append(name)
        return {
            entity_id: known
            for entity_id, known in names.items()
            if any(stands_in(name.canonical_name, query, tokens, language) for name in known)
        }

    def related(self, entity_ids: Collection[str]) -> list[tuple[str, Stated]]:
        rows = self._rows(_RELATED, ids=list(entity_ids))
        return [(other, (mentions, confidence)) for other, mentions, confidence in rows]

    def mentions(self, entity_ids: Sequence[str]) -> Mentions:
        values: dict[str, object] = {"scope": self.scope, "ids": list(entity_ids)}
        with self.reading() as reader:
            rows = read(reader, _MENTIONED, values).combine_chunks()
        memories = rows["memory_id"].combine_chunks().dictionary_encode()
        numbers = memories.indices.to_numpy(zero_copy_only=False).astype(np.int32)
        columns = {name: np.zeros(len(memories.dictionary)) for name in ("importance", "occurred")}
        for name, column in columns.items():
            column[numbers] = rows[name].to_numpy()
        return Mentions(
            rows["entity"].to_numpy(),
            numbers,
            rows["confidence"].to_numpy(),
            memories.dictionary.to_pylist(),
            lambda some, name: columns[name][some],
        )

    def _rows(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        with self.reading() as reader:
            return reader.execute(query, {"scope": self.scope, **values}).fetchall()


@dataclass(frozen=True, slots=True)
class StoredScope:
    """One scope that is searched where it is stored."""

    search: Callable[[SearchPlan], ScopeIndex]
    """Returns an index that has at least what the plan needs, and counts the rest of the scope."""
    graph: StoredGraph


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
    """Those of one shard. `copy` is LanceDB's of its vectors, if there is one. Any thread may
    search."""

    def __init__(
        self, reading: Reading, options: ShardOptions, copy: Callable[[], VectorCopy | None]
    ) -> None:
        self._reading = reading
        self._options = options
        self._copy = copy
        self._vectors = StoredVectors(options, copy)
        self._totals: dict[tuple[str, bool], _Totals] = {}

    def scope(self, scope: str) -> StoredScope:
        return StoredScope(self._search, StoredGraph(self._reading, scope))

    def _search(self, plan: SearchPlan) -> ScopeIndex:
        with self._reading() as reader:
            reader.execute("BEGIN")
            try:
                return self._found(reader, plan)
            finally:
                reader.execute("COMMIT")

    def _found(self, reader: duckdb.DuckDBPyConnection, plan: SearchPlan) -> ScopeIndex:
        ids = set(plan.ids) | _having(reader, plan) | _written_after(reader, plan)
        totals = self._totals_of(reader, plan)
        frequency, best = _by_terms(reader, plan, totals)
        ids |= best
        mean = (
            None
            if plan.centred is None
            else self._vectors.mean(reader, plan.scope, totals.documents)
        )
        if plan.vector is not None and plan.count:
            ids |= self._vectors.near(reader, plan, mean)
        if plan.reach is not None and len(ids) < plan.count:
            ids |= _newest(reader, plan)
        edges = _Edges(ids, set()) if plan.reach is None else _with_related(reader, plan, ids)
        index = self._loaded(reader, plan, edges)
        segments = (index.facts,) if plan.facts_only else index.segments
        index.facts.beyond = _beyond(segments, totals, frequency)
        if mean is not None:
            index.facts.vector_sum = mean.vector_sum - index.turns.vector_sum
            index.facts.vector_count = mean.vector_count - index.turns.vector_count
            names = reader.execute(_SPEAKERS, {"scope": plan.scope}).fetchall()
            index.know_speakers(who for (who,) in names)
        return index

    def _totals_of(self, reader: duckdb.DuckDBPyConnection, plan: SearchPlan) -> _Totals:
        latest = tuple(reader.execute(_LATEST, {"scope": plan.scope}).fetchall()[0])
        known = self._totals.get((plan.scope, plan.facts_only))
        if known is None or known.latest != latest:
            query = _TOTALS.format(documents=_documents(plan))
            documents, length = reader.execute(query, {"scope": plan.scope}).fetchall()[0]
            known = _Totals(latest, int(documents), float(length))
            self._totals[plan.scope, plan.facts_only] = known
        return known

    def _loaded(
        self, reader: duckdb.DuckDBPyConnection, plan: SearchPlan, edges: _Edges
    ) -> PartialIndex:
        index = PartialIndex(self._options.dimensions, replace(plan, ids=edges.ids), self._search)
        ids = sorted(edges.ids)
        values: dict[str, object] = {"scope": plan.scope, "ids": ids}
        rows = read(reader, ROWS.format(" AND m.memory_id IN (SELECT unnest($ids))"), values)
        copy = self._copy()
        copied = None if copy is None else copy.vectors(ids)
        if copied is None:
            copied = _NO_VECTORS
        model = self._options.embedding_model
        kept = vectors_of(reader, rows["embedding_key"], plan.scope, model, copied)
        postings = read(reader, _POSTINGS, {**values, "terms": _terms(plan)})
        fill(index, rows, kept, postings, sorted(edges.found), gap=plan.reach or 0)
        return index


def _terms(plan: SearchPlan) -> list[str]:
    words = (term for forms in plan.words for term in forms)
    return list(dict.fromkeys((*plan.terms, *words)))


def _documents(plan: SearchPlan) -> str:
    return _FACT_DOCUMENTS if plan.facts_only else _DOCUMENTS


def _having(reader: duckdb.DuckDBPyConnection, plan: SearchPlan) -> set[str]:
    if not plan.words:
        return set()
    query = " INTERSECT ".join(_HAVING.format(f"w{n}") for n in range(len(plan.words)))
    values = {f"w{n}": list(forms) for n, forms in enumerate(plan.words)}
    return {row[0] for row in reader.execute(query, {"scope": plan.scope, **values}).fetchall()}


def _written_after(reader: duckdb.DuckDBPyConnection, plan: SearchPlan) -> set[str]:
    if plan.written_after is None:
        return set()
    values = {"scope": plan.scope, "after": plan.written_after}
    return {row[0] for row in reader.execute(_FACTS_AFTER, values).fetchall()}


def _newest(reader: duckdb.DuckDBPyConnection, plan: SearchPlan) -> set[str]:
    values = {**plan.values, "scope": plan.scope, "count": plan.count}
    return {row[0] for row in reader.execute(_NEWEST.format(plan.passes), values).fetchall()}


def _by_terms(
    reader: duckdb.DuckDBPyConnection, plan: SearchPlan, totals: _Totals
) -> tuple[dict[str, int], set[str]]:
    """How many memories have a term, and the best by BM25."""
    if not plan.terms:
        return {}, set()
    passing = "" if plan.passes == EVERYTHING else _PASSING.format(plan.passes)
    query = _BY_TERMS.format(documents=_documents(plan), passing=passing)
    values = {
        "scope": plan.scope,
        "terms": list(dict.fromkeys(plan.terms)),
        "documents": totals.documents,
        "average": max(totals.length / max(totals.documents, 1), 1.0),
        "k1": plan.k1,
        "b": plan.b,
        "count": plan.count,
        **(plan.values if passing else {}),
    }
    rows = reader.execute(query, values).fetchall()
    frequency = {key: df for is_term, key, df in rows if is_term}
    return frequency, {key for is_term, key, _ in rows if not is_term}


def _with_related(reader: duckdb.DuckDBPyConnection, plan: SearchPlan, ids: set[str]) -> _Edges:
    """The turns that these were derived from, the turns next to all these, the facts derived from
    them and everything that those were derived from."""

    def edges_of(query: str, ids: set[str]) -> set[tuple[str, str]]:
        values = {"scope": plan.scope, "ids": sorted(ids)}
        return set(reader.execute(query, values).fetchall()) if ids else set()

    derived = edges_of(_DERIVED.format("source_id"), ids)
    turns = ids | {source for _, source in derived}
    adjacent: set[tuple[str, str]] = set()
    edge = turns
    for _ in range(plan.reach or 0):
        adjacent |= (new := edges_of(_TEMPORAL, edge))
        edge = {end for ends in new for end in ends} - turns
        turns |= edge
    facts = edges_of(_DERIVED.format("target_id"), turns)
    derived |= edges_of(_DERIVED.format("source_id"), {fact for fact, _ in facts})
    found = {(DERIVED_FROM, *pair) for pair in derived} | {("temporal", *pair) for pair in adjacent}
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
