"""Recall: the memories of a scope that answer a question, with the reason for each score.

The recipe and its reasons stand in `stores.ranking`; here its steps are joined to the stores. The
legs are the scope's keywords (BM25 as a share of the query's information) and vectors (centred
cosine); a leg that is off, because nothing has a vector yet or the provider is down, is told in
the answer's `method`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol

import numpy as np

from stores.analysis import query_tokens
from stores.index_cache import IndexCache
from stores.part import from_microseconds, microseconds
from stores.ranking import DEFAULTS, RankingParameters
from stores.readers import Readable
from stores.recall_filter import Allowed
from stores.recall_pool import PoolSearch
from stores.recall_rank import Chosen, Ranked, choose, leg_ranks, rank
from stores.recall_types import (
    Explanation,
    Fusion,
    Legs,
    Neighbour,
    Query,
    RecallAnswer,
    RecallResult,
    Scores,
)
from stores.scope_index import ScopeIndex
from stores.settings import ShardOptions
from stores.vector_column import Vector

__all__ = ["Query", "Recall", "RecallAnswer", "RecallResult", "RecallShard"]

NO_GRAPH: Mapping[str, float] = {}
MAX_QUERY_TERMS = 256
"""Distinct terms that are searched for: far more than a question has."""


class RecallShard(Readable, Protocol):
    """What recall needs of a shard. Recall itself reads no table but to load an index."""

    @property
    def indexes(self) -> IndexCache: ...
    @property
    def options(self) -> ShardOptions: ...


@dataclass(frozen=True, slots=True)
class _Row:
    id: str
    content: str
    type: str
    scope: str
    who: str
    session_id: str
    source_id: str | None
    tags: tuple[str, ...]
    categories: tuple[str, ...]
    pinned: bool
    importance: float
    occurred_at: datetime
    created_at: datetime
    project: str | None


def utc_now() -> datetime:
    return datetime.now(UTC)


class Recall:
    """Searches of one shard; may be used by any thread. `clock` dates recency and what has ended
    (a query's `as_of` comes before it); `graph_weight` is what a full hit of the graph adds."""

    def __init__(
        self,
        shard: RecallShard,
        parameters: RankingParameters = DEFAULTS,
        fusion: Fusion = "hybrid",
        graph_weight: float = 0.2,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._shard = shard
        self._parameters = parameters
        self._fusion = fusion
        self._graph_weight = graph_weight
        self._clock = clock

    def search(
        self, query: Query, vector: Vector | None = None, graph: Mapping[str, float] = NO_GRAPH
    ) -> RecallAnswer:
        """The answer to a query whose text has this unit vector (None: by keywords only).

        `graph` are hits of the graph, 0..1 by memory id: they enter the pool and add to its
        scores. Raises ValueError for a vector of another length than the shard's, a limit below 1
        or a time without a zone.
        """
        self._check(query, vector)
        index = self._shard.indexes.get(query.scope)
        language = self._shard.options.search.language
        terms = query_tokens(query.text, language)[:MAX_QUERY_TERMS]
        if not query.text.strip():
            return RecallAnswer(query.text, "none")
        search = PoolSearch(index, query, terms, vector, self._parameters, language)
        method = _method(bool(terms), search.has_vectors, self._fusion)
        if method == "none":
            return RecallAnswer(query.text, method)
        pool = search.pool(self._fusion, graph)
        now = microseconds(query.as_of or self._clock())
        ranked = rank(pool, self._parameters, self._fusion, self._graph_weight, now)
        chosen = choose(pool, ranked, query.limit, query.group)
        return RecallAnswer(query.text, method, self._results(index, query, ranked, chosen))

    def _check(self, query: Query, vector: Vector | None) -> None:
        dimensions = self._shard.options.dimensions
        if vector is not None and vector.shape != (dimensions,):
            raise ValueError(
                f"the query's vector has the shape {vector.shape}; the stored ones have"
                f" {dimensions} numbers: embed the query with the model that is in use"
            )
        if query.limit < 1:
            raise ValueError(f"the limit must be 1 or more, not {query.limit}")
        for name in ("since", "until", "as_of"):
            time = getattr(query, name)
            if time is not None and time.tzinfo is None:
                raise ValueError(f"{name} needs a time zone, for example 2026-03-01T00:00:00Z")

    def _results(
        self, index: ScopeIndex, query: Query, ranked: Ranked, chosen: Sequence[Chosen]
    ) -> tuple[RecallResult, ...]:
        ids = [ranked.ids[found.face] for found in chosen]
        with index.lock:
            sources = {i: tuple(sorted(index.drawn_from.get(i, ()))) for i in ids}
            beside = _beside(index, query, ids)
            wanted = {*ids, *(s for found in sources.values() for s in found)}
            wanted.update(i for found in beside.values() for i, _ in found)
            rows = {i: row for i in wanted if (row := _row(index, query.scope, i)) is not None}
        ranks = _ranks(ranked) if query.explain else {}
        return tuple(
            _result(ranked, found, rows, sources[i], beside[i], ranks)
            for i, found in zip(ids, chosen, strict=True)
            # Deleted between the search and the reading: no longer there to be shown.
            if i in rows
        )


def _row(index: ScopeIndex, scope: str, memory_id: str) -> _Row | None:
    """What the index holds of a memory to show it: no table is read. None when it is gone."""
    for part in index.parts:
        place = part.place_of.get(memory_id)
        if place is not None:
            break
    else:
        return None
    meta = part.meta[place]
    kind, who, session, project = (
        part.numbers.name(int(meta[name])) for name in ("kind", "who", "session", "project")
    )
    return _Row(
        id=memory_id,
        content=part.contents[place],
        type=kind,
        scope=scope,
        who=who,
        session_id=session,
        source_id=part.source_ids[place],
        tags=part.tags[place],
        categories=part.categories[place],
        pinned=bool(meta["pinned"]),
        importance=float(meta["importance"]),
        occurred_at=from_microseconds(int(meta["occurred"])),
        created_at=from_microseconds(int(meta["created"])),
        project=project or None,
    )


def _method(has_terms: bool, has_vectors: bool, fusion: Fusion) -> Legs:
    if fusion == "keyword":
        has_vectors = has_vectors and not has_terms
    if fusion == "vector":
        has_terms = has_terms and not has_vectors
    if has_terms and has_vectors:
        return "hybrid"
    return "keyword" if has_terms else "vector" if has_vectors else "none"


def _neighbour_ids(index: ScopeIndex, memory_id: str, reach: int) -> list[tuple[str, int]]:
    """The turns beside a turn in its session with how far they are, in order."""
    place = index.turns.place_of.get(memory_id)
    if place is None or reach < 1:
        return []
    meta = index.turns.meta[place]
    seats = index.seats.get(int(meta["session"]))
    if seats is None:
        return []
    position = int(meta["position"])
    found = []
    for there in range(max(position - reach, 0), min(position + reach + 1, len(seats))):
        other = seats[there]
        if there != position and other >= 0 and index.turns.alive[other]:
            found.append((index.turns.ids[other], there - position))
    return found


def _beside(
    index: ScopeIndex, query: Query, ids: Sequence[str]
) -> dict[str, list[tuple[str, int]]]:
    """The neighbours of each result, as far as the query may show them."""
    if query.neighbours < 1:
        return {memory_id: [] for memory_id in ids}
    beside = {memory_id: _neighbour_ids(index, memory_id, query.neighbours) for memory_id in ids}
    may = Allowed.by(index, query).among({i for found in beside.values() for i, _ in found})
    return {own: [pair for pair in found if pair[0] in may] for own, found in beside.items()}


def _ranks(ranked: Ranked) -> dict[str, list[int | None]]:
    return {
        "keyword": leg_ranks(ranked.keyword, ranked.ids),
        "vector": leg_ranks(ranked.vector, ranked.ids),
    }


def _result(
    ranked: Ranked,
    found: Chosen,
    rows: Mapping[str, _Row],
    sources: Sequence[str],
    beside: Sequence[tuple[str, int]],
    ranks: Mapping[str, list[int | None]],
) -> RecallResult:
    place = found.face
    row = rows[ranked.ids[place]]
    said = [rows[source] for source in sources if source in rows]
    own = [row] if row.type == "episodic" else said
    return RecallResult(
        id=row.id,
        content=row.content,
        type=row.type,
        score=round(found.score, 6),
        scores=_scores(ranked, place),
        source=_source(ranked, place),
        scope=row.scope,
        who=row.who,
        session_id=row.session_id,
        source_id=row.source_id,
        source_ids=tuple(each.source_id for each in own if each.source_id is not None),
        derived_from=tuple(sources),
        tags=row.tags,
        categories=row.categories,
        pinned=row.pinned,
        importance=row.importance,
        occurred_at=row.occurred_at,
        created_at=row.created_at,
        project=row.project,
        neighbours=tuple(
            Neighbour(i, offset, rows[i].content, rows[i].who, rows[i].occurred_at)
            for i, offset in beside
            if i in rows
        ),
        explanation=_explanation(ranked, found, ranks) if ranks else None,
    )


def _scores(ranked: Ranked, place: int) -> Scores:
    def of(leg: np.ndarray | None) -> float | None:
        return None if leg is None or np.isnan(leg[place]) else round(float(leg[place]), 6)

    return Scores(
        keyword=of(ranked.keyword),
        vector=of(ranked.vector),
        graph=round(float(ranked.graph[place]), 6),
        recency=round(float(ranked.recency[place]), 6),
        importance=round(float(ranked.importance[place]), 6),
    )


def _source(ranked: Ranked, place: int) -> Literal["hybrid", "vector", "keyword"]:
    by_word = ranked.keyword is not None and ranked.keyword[place] > 0.0
    by_vector = ranked.vector is not None and np.nan_to_num(ranked.vector[place]) > 0.0
    if by_word == by_vector:
        # Found by what stands beside it: by the legs that were on.
        by_word, by_vector = ranked.keyword is not None, ranked.vector is not None
    return "hybrid" if by_word and by_vector else "vector" if by_vector else "keyword"


def _explanation(
    ranked: Ranked, found: Chosen, ranks: Mapping[str, list[int | None]]
) -> Explanation:
    """The parts of the score of the memory that gave it: of a group that is its turn."""
    scored = next((m for m in found.others if m < ranked.turns), found.face)
    parts = {name: float(step[scored]) for name, step in ranked.steps.items()}
    return Explanation(
        parts={name: round(value, 9) for name, value in parts.items()},
        ranks={leg: places[scored] for leg, places in ranks.items()},
        grouped=tuple(ranked.ids[member] for member in found.others),
    )
