"""Candidate search for decide and the near-duplicate check of apply-writes.

It searches the committed facts of a scope (the resident index) together with what the current batch
has written or anticipates, as one index: the answer does not depend on batch boundaries. So cosines
are raw, not centred as in recall; the pool is chosen with integers and the decision is made row by
row, so neither depends on the other rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from palimpsest.schemas.messages import ScoredCandidate
from palimpsest.schemas.rows.memories import DOCUMENT_CHUNK, PROFILE, SOURCE_TYPES, MemoryRow
from palimpsest.stores.database.analysis import query_tokens, tokens
from palimpsest.stores.index.cache import IndexCache
from palimpsest.stores.index.fulltext import terms_of
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.scoring import best_of_legs, keyword_sums, row_cosines
from palimpsest.stores.index.search_plan import SearchPlan
from palimpsest.stores.index.segment import NEVER, Floats, Integers, Mask, Segment, digest
from palimpsest.stores.index.vector_column import Vector
from palimpsest.stores.index.vector_space import VectorSpace
from palimpsest.stores.ranking import keyword_coverage
from palimpsest.stores.settings import ShardOptions
from palimpsest.stores.writing.scope_caches import Newest, NewestFacts
from palimpsest.streams.store_port import Candidates, FindCandidates, NearDuplicates

POOL = 20
"""Candidates taken from each leg before blending, unless more are requested."""


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

    def __init__(self, shard: SearchShard, space: VectorSpace | None = None) -> None:
        """`space`: the vectors to search, by default those that the shard uses now."""
        self._shard = shard
        self._indexes, self._options = shard.indexes, shard.options
        self._began = 0
        if space is not None:
            self._indexes, self._options = space.indexes, space.options
            self._began = space.began
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
        index = self._indexes.search(self._plan(request))
        with index.lock:
            found = self._search(index, request)
        if not request.words:
            return Candidates(found, as_of)
        limit = request.limit_by_words
        by_words = FindCandidates(request.scope, request.words, None, limit, 0.0)
        return Candidates(found, as_of, self.candidates(by_words, as_of).found)

    def near_duplicates(self, request: NearDuplicates, as_of: int) -> Candidates:
        """Returns memories that the decision could not have seen and that have nearly the same
        content. Memories from before a change of the embedding model are compared by words: their
        vectors by the new model were not made in the order of the log."""
        newest = (self._waiting(request.scope).newest, self._shard.newest_facts.of(request.scope))
        if not any(each.may_be_unseen(request) for each in newest):
            return Candidates((), as_of)
        found: list[ScoredCandidate] = []
        index = self._indexes.search(self._plan(request))
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
                    closeness = np.where(self._comparable(segment)[places], cosines, shares)
                same = segment.meta["digest"][places] == digest(request.content_hash)
                near = same | (closeness >= request.cosine)
                found += [
                    _Score(segment, place, segment.ids[place], score, score, None).shown()
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
            terms=query_tokens(request.text, self._options.search.language),
            ids=hidden,
            facts_only=True,
        )
        if isinstance(request, NearDuplicates):
            return replace(plan, written_after=request.as_of)
        # Rows that the batch hides must not take the places of others.
        count = max(POOL, request.limit) + len(hidden)
        return replace(plan, vector=request.vector, count=count)

    def _word_shares(
        self,
        request: NearDuplicates,
        seen: Sequence[tuple[Segment, Mask | None]],
        unseen: Sequence[Integers],
    ) -> list[Floats]:
        """Returns the replacement of the cosine where the text or the memory has no vector: the
        share of the text's information that a memory holds. Zeros where every pair has a cosine."""
        have_all = all(
            bool(self._comparable(segment)[places].all())
            for (segment, _), places in zip(seen, unseen, strict=True)
        )
        if request.vector is not None and have_all:
            return [np.zeros(len(places)) for places in unseen]
        terms = query_tokens(request.text, self._options.search.language)
        sums, query_idf = keyword_sums(
            [segment for segment, _ in seen], terms, [visible for _, visible in seen]
        )
        return [
            keyword_coverage(found[places], query_idf)
            for found, places in zip(sums, unseen, strict=True)
        ]

    def _comparable(self, segment: Segment) -> Mask:
        comparable: Mask = segment.has_vector & (segment.meta["write_seq"] > self._began)
        return comparable

    def naming(self, scope: str, names: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
        """Returns ids of the scope's committed active memories that contain all words of a name,
        each in any of its indexed forms, by name; without names of which no word is indexed."""
        language = self._options.search.language
        forms = {
            name: [found for word in words if (found := tokens(word, language))]
            for name, words in names.items()
        }
        return self._indexes.naming(scope, {name: held for name, held in forms.items() if held})

    def _search(self, index: ScopeIndex, request: FindCandidates) -> tuple[ScoredCandidate, ...]:
        seen = self._segments(index, request.scope)
        segments = [segment for segment, _ in seen]
        masks = [visible for _, visible in seen]
        search = self._options.search
        sums, query_idf = keyword_sums(segments, query_tokens(request.text, search.language), masks)
        legs: list[Sequence[NDArray[np.floating]]] = [sums]
        if request.vector is not None:
            query = request.vector[None, :]
            legs.append([segment.codes.products(query)[0] for segment in segments])
        pools = best_of_legs(segments, legs, masks, max(POOL, request.limit))
        scored: list[_Score] = []
        for segment, found, places in zip(segments, sums, pools, strict=True):
            if not len(places):
                continue
            scores = keyword = keyword_coverage(found[places], query_idf)
            cosines: list[float | None] = [None] * len(places)
            if request.vector is not None:
                exact = row_cosines(segment.vectors[places], request.vector)
                alpha = search.candidate_alpha
                scores = alpha * np.maximum(exact, 0.0) + (1.0 - alpha) * keyword
                cosines = list(np.round(exact, 6).tolist())
            columns = np.round(scores, 6).tolist(), cosines, np.round(keyword, 6).tolist()
            scored += [
                _Score(segment, place, segment.ids[place], score, cosine, share)
                for place, score, cosine, share in zip(places.tolist(), *columns, strict=True)
                if score >= request.min_score
            ]
        scored.sort(key=lambda found: (-found.score, found.memory_id))
        return tuple(found.shown() for found in scored[: request.limit])

    def _segments(self, index: ScopeIndex, scope: str) -> list[tuple[Segment, Mask | None]]:
        """Returns the committed facts and the batch's, each with its visible part (None: all)."""
        overlay = self._overlay(scope)
        return [
            (index.facts, _visible(index.facts, overlay.hidden)),
            (overlay.segment, _visible(overlay.segment)),
        ]

    def _overlay(self, scope: str) -> _Overlay:
        overlay = self._waiting(scope)
        overlay.put_waiting(self._options.search.language)
        return overlay

    def _waiting(self, scope: str) -> _Overlay:
        overlay = self._overlays.get(scope)
        if overlay is None:
            overlay = _Overlay(Segment(self._options.dimensions), set())
            self._overlays[scope] = overlay
        return overlay


def _visible(segment: Segment, hidden: Collection[str] = ()) -> Mask | None:
    """What decisions may see: no chunks of documents, and no profiles."""
    places = [place for i in hidden if (place := segment.place_of.get(i)) is not None]
    # Each by itself: `isin` takes ten times as long for two.
    kinds = segment.meta["kind"]
    chunks = kinds == segment.numbers.of(DOCUMENT_CHUNK)
    chunks |= kinds == segment.numbers.of(PROFILE)
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


class _Score(NamedTuple):
    segment: Segment
    place: int
    memory_id: str
    score: float
    cosine: float | None
    keyword: float | None

    def shown(self) -> ScoredCandidate:
        # Without validation: every value comes from a validated row.
        return ScoredCandidate.model_construct(
            memory_id=self.memory_id,
            version=int(self.segment.meta[self.place]["version"]),
            type=self.segment.name(self.place, "kind"),
            content=self.segment.contents[self.place],
            score=self.score,
            cosine=self.cosine,
            keyword=self.keyword,
            occurred_at=self.segment.time(self.place, "occurred"),
            valid_until=None
            if self.segment.meta[self.place]["ends"] == NEVER
            else self.segment.time(self.place, "ends"),
        )
