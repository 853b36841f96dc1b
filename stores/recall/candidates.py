"""Candidate search for decide and the near-duplicate check of apply-writes.

It searches the committed facts of a scope (the resident index) together with what the current batch
has written or anticipates, as one index: the answer does not depend on batch boundaries. So cosines
are raw, not centred as in recall; the pool is chosen with integers and the decision is made row by
row, so neither depends on the other rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from palimpsest.schemas.messages import ScoredCandidate
from palimpsest.schemas.rows import DOCUMENT_CHUNK, SOURCE_TYPES, MemoryRow
from palimpsest.stores.index.analysis import query_tokens, tokens
from palimpsest.stores.index.cache import IndexCache
from palimpsest.stores.index.fulltext import terms_of
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.scoring import (
    at_least_best,
    best_of_segments,
    keyword_sums,
    masked,
    row_cosines,
)
from palimpsest.stores.index.search_plan import SearchPlan
from palimpsest.stores.index.segment import (
    Floats,
    Integers,
    Mask,
    Segment,
    digest,
    from_microseconds,
)
from palimpsest.stores.index.vector_column import Vector
from palimpsest.stores.recall.ranking import keyword_coverage
from palimpsest.stores.settings import ShardOptions
from palimpsest.stores.writing.newest_facts import Newest, NewestFacts
from palimpsest.streams.store_port import Candidates, FindCandidates, NearDuplicates

POOL = 20
"""Candidates taken from each leg before blending."""


class SearchShard(Protocol):
    @property
    def indexes(self) -> IndexCache: ...
    @property
    def options(self) -> ShardOptions: ...
    @property
    def newest_facts(self) -> NewestFacts: ...


@dataclass(slots=True)
class _Overlay:
    """What a batch adds to the committed index: new documents, and the ids that these hide.
    `waiting` rows are added when the scope is searched, which mostly does not happen."""

    segment: Segment
    hidden: set[str]
    waiting: list[tuple[MemoryRow, Vector | None]] = field(default_factory=list)
    newest: Newest = field(default_factory=Newest)

    def put_waiting(self, language: str) -> None:
        for row, vector in self.waiting:
            self.hidden.add(row.memory_id)
            self.segment.remove(row.memory_id)
            if not row.is_deleted:
                self.segment.put(row, terms_of(row, language), vector)
        self.waiting.clear()


class CandidateSearch:
    """Searches of one batch."""

    def __init__(self, shard: SearchShard) -> None:
        self._shard = shard
        self._overlays: dict[str, _Overlay] = {}

    def show(self, row: MemoryRow, vector: Vector | None) -> None:
        """Makes a staged row visible to later searches of the batch."""
        if row.type in SOURCE_TYPES:
            return
        overlay = self._waiting(row.scope)
        overlay.waiting.append((row, vector))
        overlay.newest.note(row)

    def candidates(self, request: FindCandidates, as_of: int) -> Candidates:
        """Returns up to `limit` active memories by the blended score, best first, ties by id.

        score = alpha x cosine + (1 - alpha) x keyword, keyword being the share of the fact's
        information that the memory holds (`ranking.keyword_coverage`) by the statistics of the
        scope's facts. Both legs score every memory that either of them brought into the pool."""
        index = self._shard.indexes.search(self._plan(request))
        with index.lock:
            found = self._search(index, request)
        return Candidates(found, as_of)

    def near_duplicates(self, request: NearDuplicates, as_of: int) -> Candidates:
        """Returns memories that the decision could not have seen and that have nearly the same
        content."""
        newest = (self._waiting(request.scope).newest, self._shard.newest_facts.of(request.scope))
        if not any(each.may_be_unseen(request) for each in newest):
            return Candidates((), as_of)
        found: list[ScoredCandidate] = []
        index = self._shard.indexes.search(self._plan(request))
        with index.lock:
            seen = self._segments(index, request.scope)
            unseen = [_unseen(segment, visible, request) for segment, visible in seen]
            if not any(map(len, unseen)):
                return Candidates((), as_of)
            words = self._word_shares(request, seen, unseen)
            for (segment, _), places, shares in zip(seen, unseen, words, strict=True):
                closeness = shares
                if request.vector is not None:
                    cosines = row_cosines(segment.vectors[places], request.vector)
                    closeness = np.where(segment.has_vector[places], cosines, shares)
                same = segment.meta["digest"][places] == digest(request.content_hash)
                near = same | (closeness >= request.cosine)
                found += [
                    _shown(_Score(segment, place, segment.ids[place], score, score, None))
                    for place, score in zip(
                        places[near].tolist(), np.round(closeness[near], 6).tolist(), strict=True
                    )
                ]
        found.sort(key=lambda candidate: (-candidate.score, candidate.memory_id))
        return Candidates(tuple(found), as_of)

    def _plan(self, request: FindCandidates | NearDuplicates) -> SearchPlan:
        hidden = self._overlay(request.scope).hidden
        plan = SearchPlan(
            request.scope,
            terms=query_tokens(request.text, self._shard.options.search.language),
            ids=hidden,
            facts_only=True,
        )
        if isinstance(request, NearDuplicates):
            return replace(plan, written_after=request.as_of)
        # Rows that the batch hides must not take the places of others.
        return replace(plan, vector=request.vector, count=POOL + len(hidden))

    def _word_shares(
        self,
        request: NearDuplicates,
        seen: Sequence[tuple[Segment, Mask | None]],
        unseen: Sequence[Integers],
    ) -> list[Floats]:
        """Returns the replacement of the cosine where the text or the memory has no vector: the
        share of the text's information that a memory holds. Zeros where every pair has a cosine."""
        have_all = all(
            bool(segment.has_vector[places].all())
            for (segment, _), places in zip(seen, unseen, strict=True)
        )
        if request.vector is not None and have_all:
            return [np.zeros(len(places)) for places in unseen]
        terms = query_tokens(request.text, self._shard.options.search.language)
        sums, query_idf = keyword_sums(
            [segment for segment, _ in seen], terms, [visible for _, visible in seen]
        )
        return [
            keyword_coverage(found[places], query_idf)
            for found, places in zip(sums, unseen, strict=True)
        ]

    def naming(self, scope: str, words: Sequence[str]) -> set[str] | None:
        """Returns ids of the scope's committed active memories that contain all these words, each
        in any of its indexed forms; none where no word is indexed."""
        language = self._shard.options.search.language
        wanted = [forms for forms in (tokens(word, language) for word in words) if forms]
        if not wanted:
            return None
        index = self._shard.indexes.search(SearchPlan(scope, words=wanted))
        with index.lock:
            return {
                segment.ids[place]
                for segment in index.segments
                for place in _with_all_words(segment, wanted)
            }

    def _search(self, index: ScopeIndex, request: FindCandidates) -> tuple[ScoredCandidate, ...]:
        seen = self._segments(index, request.scope)
        segments = [segment for segment, _ in seen]
        masks = [visible for _, visible in seen]
        search = self._shard.options.search
        sums, query_idf = keyword_sums(segments, query_tokens(request.text, search.language), masks)
        near = [at_least_best(found, POOL) for found in sums]
        hits = [found[places] for found, places in zip(sums, near, strict=True)]
        pools = best_of_segments(segments, near, hits, POOL)
        if request.vector is not None:
            pools = self._with_vector_hits(segments, masks, request, pools)
        scored: list[_Score] = []
        for segment, found, places in zip(segments, sums, pools, strict=True):
            if len(places):
                keyword = keyword_coverage(found[places], query_idf)
                scored += _scores(segment, places, keyword, request, search.candidate_alpha)
        scored.sort(key=lambda found: (-found.score, found.memory_id))
        return tuple(_shown(found) for found in scored[: request.limit])

    def _with_vector_hits(
        self,
        segments: Sequence[Segment],
        masks: Sequence[Mask | None],
        request: FindCandidates,
        pools: Sequence[Integers],
    ) -> list[Integers]:
        vector = request.vector
        assert vector is not None
        products = [segment.codes.products(vector[None, :])[0] for segment in segments]
        visible = [masked(found, mask) for found, mask in zip(products, masks, strict=True)]
        places = [at_least_best(found, POOL) for found in visible]
        scores = [
            found[here].astype(np.float64) for found, here in zip(visible, places, strict=True)
        ]
        near = best_of_segments(segments, places, scores, POOL)
        return [np.union1d(a, b) for a, b in zip(pools, near, strict=True)]

    def _segments(self, index: ScopeIndex, scope: str) -> list[tuple[Segment, Mask | None]]:
        """Returns the committed facts and the batch's, each with its visible part (None: all)."""
        overlay = self._overlay(scope)
        return [
            (index.facts, _visible(index.facts, overlay.hidden)),
            (overlay.segment, _visible(overlay.segment, ())),
        ]

    def _overlay(self, scope: str) -> _Overlay:
        overlay = self._waiting(scope)
        overlay.put_waiting(self._shard.options.search.language)
        return overlay

    def _waiting(self, scope: str) -> _Overlay:
        overlay = self._overlays.get(scope)
        if overlay is None:
            overlay = _Overlay(Segment(self._shard.options.dimensions), set())
            self._overlays[scope] = overlay
        return overlay


def _visible(segment: Segment, hidden: set[str] | tuple[()]) -> Mask | None:
    """What decisions may see: no chunks of documents."""
    places = [place for i in hidden if (place := segment.place_of.get(i)) is not None]
    chunks = segment.meta["kind"] == segment.numbers.of(DOCUMENT_CHUNK)
    if not places and segment.has_no_tombstones and not chunks.any():
        return None
    visible: Mask = segment.alive & ~chunks
    visible[places] = False
    return visible


def _unseen(segment: Segment, visible: Mask | None, request: NearDuplicates) -> Integers:
    """Positions that the decision could not have seen."""
    if segment.newest_write <= request.as_of:
        return np.zeros(0, dtype=np.int64)
    meta = segment.meta
    order = meta["decision_order"]
    unseen = meta["write_seq"] > request.as_of
    unseen &= (order < 0) | (order >= request.decision_order)
    if visible is not None:
        unseen &= visible
    return np.flatnonzero(unseen)


def _with_all_words(segment: Segment, words: Sequence[Sequence[str]]) -> list[int]:
    having: Integers | None = None
    for forms in words:
        pairs = [segment.postings.get(form) for form in dict.fromkeys(forms)]
        found_at = [pair[0].astype(np.int64) for pair in pairs if pair is not None]
        if not found_at:
            return []
        here = np.unique(np.concatenate(found_at))
        having = here if having is None else np.intersect1d(having, here)
    if having is None:
        return []
    found: list[int] = having[segment.alive[having]].tolist()
    return found


class _Score(NamedTuple):
    segment: Segment
    place: int
    memory_id: str
    score: float
    cosine: float | None
    keyword: float | None


def _scores(
    segment: Segment,
    places: Integers,
    keyword: Floats,
    request: FindCandidates,
    alpha: float,
) -> list[_Score]:
    """Returns the positions of the pool that are worth showing, scored to six digits."""
    cosines: list[float | None] = [None] * len(places)
    scores = keyword
    if request.vector is not None:
        exact = row_cosines(segment.vectors[places], request.vector)
        scores = alpha * np.maximum(exact, 0.0) + (1.0 - alpha) * keyword
        cosines = list(np.round(exact, 6).tolist())
    rounded = np.round(scores, 6).tolist()
    keywords = np.round(keyword, 6).tolist()
    return [
        _Score(segment, place, segment.ids[place], rounded[n], cosines[n], keywords[n])
        for n, place in enumerate(places.tolist())
        if rounded[n] >= request.min_score
    ]


def _shown(found: _Score) -> ScoredCandidate:
    meta = found.segment.meta[found.place]
    # Without validation: every value comes from a validated row.
    return ScoredCandidate.model_construct(
        memory_id=found.memory_id,
        version=int(meta["version"]),
        type=found.segment.numbers.names[int(meta["kind"])],
        content=found.segment.contents[found.place],
        score=found.score,
        cosine=found.cosine,
        keyword=found.keyword,
        occurred_at=from_microseconds(int(meta["occurred"])),
    )
