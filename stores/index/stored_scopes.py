"""Scopes that are too large to be resident, searched where they are stored.

The candidates are found first: by keywords in DuckDB's postings, by vector in LanceDB, and what
LanceDB does not have yet in DuckDB. Only these and the memories around them are loaded into a small
index, which counts the rest of the scope in its statistics; so the same search runs over it and
finds nearly the same. A search by decide compares all vectors of facts; only recall relies on an
approximate index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from palimpsest.schemas.rows.graph import NameRow
from palimpsest.schemas.rows.memories import SOURCE_LIST
from palimpsest.stores.database.cursors import Reading
from palimpsest.stores.index.loading import ROWS, VECTORS, fill, keyed_vectors, read, vectors_of
from palimpsest.stores.index.name_words import stands_in
from palimpsest.stores.index.scope_graph import (
    NAME_COLUMNS,
    Mentions,
    ScopeGraph,
    Stated,
    is_archived,
    name_row,
)
from palimpsest.stores.index.scope_index import DERIVED_FROM, STALE_SHARE, ScopeIndex
from palimpsest.stores.index.scoring import CenteredQuery
from palimpsest.stores.index.search_plan import EVERYTHING, SearchPlan
from palimpsest.stores.index.segment import Beyond, Integers, mean_of, whole
from palimpsest.stores.index.vector_column import HalfVectors, Vector
from palimpsest.stores.settings import ShardOptions

if TYPE_CHECKING:
    from palimpsest.stores.index.lance import VectorTable

NEAREST: Final = 6
"""Factor on the count requested from LanceDB: its order is by products, the search's by cosines of
centred vectors."""
FEW: Final = 2_000
"""Maximum number of memories that pass a filter and are all compared."""
BATCH: Final = 4_096
"""Vectors read at once."""

_PASSING_VECTORS = (
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
_LATEST = "SELECT count(*), coalesce(max(write_seq), 0) FROM memory_rows WHERE scope = $scope"
_SPEAKERS = (
    "SELECT DISTINCT who FROM memory_rows WHERE scope = $scope AND type = 'episodic'"
    " AND NOT is_deleted"
)
_DOCUMENTS = "(SELECT memory_id, length FROM fts_docs WHERE scope = $scope)"
_FACT_DOCUMENTS = (
    "(SELECT d.memory_id, d.length FROM fts_docs d JOIN memory_rows m USING (memory_id)"
    f" WHERE d.scope = $scope AND m.scope = $scope AND m.type NOT IN {SOURCE_LIST})"
)
_FACTS_AFTER = (
    "SELECT memory_id FROM memory_rows WHERE scope = $scope AND write_seq > $after"
    f" AND NOT is_deleted AND type NOT IN {SOURCE_LIST}"
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
_NAMING = (
    "SELECT name, memory_id, count(DISTINCT word)"
    " FROM (SELECT unnest($names) AS name, unnest($words) AS word, unnest($terms) AS term)"
    " JOIN fts_postings USING (term) WHERE scope = $scope GROUP BY ALL"
)
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
SELECT {NAME_COLUMNS} FROM name_rows
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
    AND n.entity_id NOT IN (FROM archived_entities)
    AND (list_contains(known.names, r.source_name_id)
        OR list_contains(known.names, r.target_name_id))"""
_MENTIONED = """
WITH wanted AS (SELECT unnest($ids) AS entity_id, generate_subscripts($ids, 1) - 1 AS entity)
SELECT w.entity, m.memory_id, max(m.confidence) AS confidence,
    any_value(r.importance) AS importance, any_value(r.pinned::DOUBLE) AS pinned,
    any_value(epoch_us(r.occurred_at)) AS occurred
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
    """The graph of a scope as the tables have it: answers as `ScopeGraph` does."""

    reading: Reading
    scope: str

    def documents(self) -> int:
        return int(self._rows("SELECT count(*) FROM fts_docs WHERE scope = $scope")[0][0])

    def named(self, query: str, tokens: frozenset[str], language: str) -> dict[str, list[NameRow]]:
        # A word and its stem have all but their last characters in common.
        starts = {token[:-1] if len(token) > 3 else token for token in tokens}
        names: dict[str, list[NameRow]] = {}
        for row in self._rows(_NAMED, text=query, starts="|".join(sorted(starts))):
            name = name_row(row)
            names.setdefault(name.entity_id, []).append(name)
        return {
            entity_id: known
            for entity_id, known in names.items()
            if not is_archived(known)
            and any(stands_in(name.canonical_name, query, tokens, language) for name in known)
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
        names = ("importance", "pinned", "occurred")
        columns = {name: np.zeros(len(memories.dictionary)) for name in names}
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


Graph = ScopeGraph | StoredGraph


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
class _Mean:
    """Of the vectors of a scope when it had this number of documents."""

    documents: int
    vector_sum: Integers
    vector_count: int


class StoredScopes:
    """Those of one shard. `copy` is LanceDB's of its vectors, if there is one. Any thread may
    search."""

    def __init__(
        self, reading: Reading, options: ShardOptions, copy: Callable[[], VectorTable | None]
    ) -> None:
        self._reading = reading
        self.options = options
        self.copy = copy
        self.totals: dict[tuple[str, bool], _Totals] = {}
        self.means: dict[str, _Mean] = {}

    def scope(self, scope: str) -> StoredScope:
        return StoredScope(self.search, StoredGraph(self._reading, scope))

    def naming(
        self, scope: str, names: Mapping[str, Sequence[Sequence[str]]]
    ) -> dict[str, set[str]]:
        """As `IndexCache.naming`, in one query."""
        given = [
            (name, number, form)
            for name, words in names.items()
            for number, forms in enumerate(words)
            for form in forms
        ]
        found: dict[str, set[str]] = {name: set() for name in names}
        if given:
            columns = map(list, zip(*given, strict=True))
            values = dict(zip(("names", "words", "terms"), columns, strict=True))
            with self._reading() as reader:
                rows = reader.execute(_NAMING, {"scope": scope, **values}).fetchall()
            for name, memory_id, count in rows:
                if count == len(names[name]):
                    found[name].add(memory_id)
        return found

    def search(self, plan: SearchPlan) -> ScopeIndex:
        with self._reading() as reader:
            reader.execute("BEGIN")
            try:
                return _Search(self, reader, plan).index()
            finally:
                reader.execute("COMMIT")


@dataclass(frozen=True, slots=True)
class _Near:
    """Memories (n) and vectors (n, d)."""

    ids: list[str]
    vectors: HalfVectors


Edges = set[tuple[str, str, str]]
"""Relation, source and target."""


@dataclass(frozen=True, slots=True)
class _Search:
    """One search, in one snapshot of the store."""

    shard: StoredScopes
    reader: duckdb.DuckDBPyConnection
    plan: SearchPlan

    def index(self) -> ScopeIndex:
        plan = self.plan
        key, latest = (plan.scope, plan.facts_only), self._rows(_LATEST)[0]
        totals = self.shard.totals.get(key)
        if totals is None or totals.latest != latest:
            documents, length = self._rows(_TOTALS.format(documents=self._documents))[0]
            totals = self.shard.totals[key] = _Totals(latest, int(documents), float(length))
        frequency, best = self._by_terms(totals)
        ids = best.union(plan.ids)
        if plan.written_after is not None:
            ids |= self._ids(_FACTS_AFTER, after=plan.written_after)
        mean = None if plan.facts_only or not plan.count else self._mean(totals.documents)
        if plan.vector is not None and plan.count:
            ids |= self._near(plan.vector, mean)
        if plan.reach is not None and len(ids) < plan.count:
            ids |= self._ids(_NEWEST.format(plan.passes), count=plan.count, **plan.values)
        index = self._loaded(*((ids, set()) if plan.reach is None else self._with_related(ids)))
        segments = (index.facts,) if plan.facts_only else index.segments
        here = {
            term: sum(len(held[0]) for s in segments if (held := s.postings.get(term)) is not None)
            for term in frequency
        }
        index.facts.beyond = Beyond(
            totals.documents - sum(segment.places for segment in segments),
            totals.length - sum(segment.total_length for segment in segments),
            {term: count - here[term] for term, count in frequency.items()},
        )
        if mean is not None:
            index.facts.vector_sum = mean.vector_sum - index.turns.vector_sum
            index.facts.vector_count = mean.vector_count - index.turns.vector_count
            index.know_speakers(self._ids(_SPEAKERS))
        return index

    def _rows(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        return self.reader.execute(query, {"scope": self.plan.scope, **values}).fetchall()

    def _ids(self, query: str, **values: object) -> set[str]:
        return {row[0] for row in self._rows(query, **values)}

    @property
    def _documents(self) -> str:
        return _FACT_DOCUMENTS if self.plan.facts_only else _DOCUMENTS

    def _by_terms(self, totals: _Totals) -> tuple[dict[str, int], set[str]]:
        """How many memories have a term, and the best by BM25."""
        plan = self.plan
        if not plan.terms:
            return {}, set()
        passing = "" if plan.passes == EVERYTHING else _PASSING.format(plan.passes)
        rows = self._rows(
            _BY_TERMS.format(documents=self._documents, passing=passing),
            terms=list(dict.fromkeys(plan.terms)),
            documents=totals.documents,
            average=max(totals.length / max(totals.documents, 1), 1.0),
            k1=plan.ranking.k1,
            b=plan.ranking.b,
            count=plan.count,
            **(plan.values if passing else {}),
        )
        frequency = {key: df for is_term, key, df in rows if is_term}
        return frequency, {key for is_term, key, _ in rows if not is_term}

    # --- by vector --------------------------------------------------------------------------

    def _mean(self, documents: int) -> _Mean:
        """Nearly: it is computed again when their number has changed much."""
        known = self.shard.means.get(self.plan.scope)
        if known is None or abs(documents - known.documents) > STALE_SHARE * known.documents:
            total = np.zeros(self.shard.options.dimensions, dtype=np.int64)
            count = 0
            for _, vectors in replace(self, plan=SearchPlan(self.plan.scope))._vectors(after=-1):
                total += whole(vectors).sum(axis=0)
                count += len(vectors)
            known = self.shard.means[self.plan.scope] = _Mean(documents, total, count)
        return known

    def _near(self, vector: Vector, mean: _Mean | None) -> set[str]:
        """At least nearly all of the `count` nearest to the vector; of few that pass a
        filter all."""
        plan = self.plan
        if plan.passes != EVERYTHING:
            query = f"{_PASSING_VECTORS.format(plan.passes)} LIMIT {FEW + 1}"
            passing = self._ids(query, **plan.values)
            if len(passing) <= FEW:
                return passing
        centred = None
        if mean is not None:
            centre = mean_of(mean.vector_sum, mean.vector_count)
            centred = CenteredQuery.of(vector, centre, mean.vector_count, plan.ranking)
            vector = centred.query
        copy = self.shard.copy()
        after = -1 if copy is None else copy.position  # before the search: it may advance meanwhile
        copied = None if copy is None else self._copied(copy, vector)
        newer = self._newer(vector, -1 if copied is None else after)
        found = [near for near in (copied, newer) if near is not None]
        ids = [memory_id for near in found for memory_id in near.ids]
        if centred is None or len(ids) <= plan.count:
            return set(ids)
        cosines = centred.cosines(np.concatenate([near.vectors for near in found]))
        best = np.argpartition(-cosines, plan.count)[: plan.count]
        return {ids[place] for place in best.tolist()}

    def _copied(self, copy: VectorTable, vector: Vector) -> _Near | None:
        """As many as are needed after the filter: requests more while too few pass."""
        plan = self.plan
        count = NEAREST * plan.count
        while True:
            found = copy.nearest(plan.scope, vector, count, plan.facts_only)
            if found is None:
                return None
            ids = found["memory_id"].to_pylist()
            flat = found["vector"].combine_chunks().flatten().to_numpy()
            vectors = flat.reshape(-1, self.shard.options.dimensions)
            if plan.passes == EVERYTHING:
                return _Near(ids, vectors)
            query = (
                f"{_PASSING_VECTORS.format(plan.passes)} AND m.memory_id IN (SELECT unnest($ids))"
            )
            passing = self._ids(query, ids=ids, **plan.values)
            if len(passing) >= NEAREST * plan.count or len(ids) < count:
                places = [n for n, memory_id in enumerate(ids) if memory_id in passing]
                return _Near([ids[place] for place in places], vectors[places])
            count *= 4

    def _newer(self, vector: Vector, after: int) -> _Near | None:
        """The nearest of what was written after a write sequence, by comparing all of it."""
        if not self._rows(_ANY_AFTER, after=after):
            return None
        count = NEAREST * self.plan.count
        keys: list[str] = []
        near = np.zeros((0, self.shard.options.dimensions), dtype=np.float16)
        for some, vectors in self._vectors(after):
            keys, near = keys + some, np.concatenate((near, vectors))
            if len(keys) > count:
                kept = np.argpartition(-(near.astype(np.float32) @ vector), count)[:count]
                keys, near = [keys[place] for place in kept.tolist()], near[kept]
        place_of = {key: place for place, key in enumerate(keys)}
        rows = self._rows(_IDS, keys=keys)
        return _Near([row[1] for row in rows], near[[place_of[row[0]] for row in rows]])

    def _vectors(self, after: int) -> Iterator[tuple[list[str], HalfVectors]]:
        """Embedding keys and vectors of what passes, some at a time."""
        plan, options = self.plan, self.shard.options
        facts = f" AND m.type NOT IN {SOURCE_LIST}" if plan.facts_only else ""
        query = VECTORS.format(keys=_KEYS.format(plan.passes) + facts)
        given = {"scope": plan.scope, "after": after, "model": options.embedding_model}
        batches = self.reader.sql(query, params={**given, **plan.values})
        for batch in batches.to_arrow_reader(BATCH):
            yield keyed_vectors(batch, options.dimensions)

    # --- what is around them ----------------------------------------------------------------

    def _with_related(self, ids: set[str]) -> tuple[set[str], Edges]:
        """The turns that these were derived from, the turns next to all these, the facts derived
        from them and everything that those were derived from; and what joins them."""

        def edges_of(query: str, ids: set[str]) -> set[tuple[Any, ...]]:
            return set(self._rows(query, ids=sorted(ids))) if ids else set()

        derived = edges_of(_DERIVED.format("source_id"), ids)
        turns = ids | {source for _, source in derived}
        adjacent: set[tuple[Any, ...]] = set()
        edge = turns
        for _ in range(self.plan.reach or 0):
            adjacent |= (new := edges_of(_TEMPORAL, edge))
            edge = {end for ends in new for end in ends} - turns
            turns |= edge
        facts = edges_of(_DERIVED.format("target_id"), turns)
        derived |= edges_of(_DERIVED.format("source_id"), {fact for fact, _ in facts})
        edges = {(DERIVED_FROM, *pair) for pair in derived}
        edges |= {("temporal", *pair) for pair in adjacent}
        return turns | {end for ends in derived for end in ends}, edges

    def _loaded(self, memory_ids: set[str], edges: Edges) -> PartialIndex:
        plan, shard = self.plan, self.shard
        index = PartialIndex(shard.options.dimensions, replace(plan, ids=memory_ids), shard.search)
        ids = sorted(memory_ids)
        values: dict[str, object] = {"scope": plan.scope, "ids": ids}
        rows = read(self.reader, ROWS.format(" AND m.memory_id IN (SELECT unnest($ids))"), values)
        copy = shard.copy()
        copied = None if copy is None else copy.vectors(ids)
        if copied is None:
            copied = _NO_VECTORS
        model = shard.options.embedding_model
        kept = vectors_of(self.reader, rows["embedding_key"], plan.scope, model, copied)
        postings = read(self.reader, _POSTINGS, {**values, "terms": list(plan.terms)})
        fill(index, rows, kept, postings, sorted(edges), gap=plan.reach or 0)
        return index
