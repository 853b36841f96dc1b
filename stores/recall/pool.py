"""The memories that a query may find, and of these the pool that it considers: the hits of both
legs and what stands by them.

The pool does not depend on how many results are asked for, so the first ten are the same whether
ten or fifty are. Filters are masks, applied before the search and made once for all of an answer.
They have one meaning: whatever it shows (results and what they stand for, neighbours, what the
intent adds, evidence) passes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from palimpsest.stores.index.scope_index import FACTS, TURNS, ScopeIndex
from palimpsest.stores.index.scoring import (
    at_least_best,
    best_of_segments,
    keyword_sums,
    masked,
    row_products,
)
from palimpsest.stores.index.segment import (
    Floats,
    Integers,
    Mask,
    Segment,
    mean_vector,
    microseconds,
)
from palimpsest.stores.index.vector_column import Codes, Vector
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.ranking import (
    DEFAULTS,
    RankingParameters,
    centred,
    centring_share,
    keyword_coverage,
)
from palimpsest.stores.recall.ranking_steps import Ranking
from palimpsest.stores.settings import RecallSettings

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a query may show of the first places of each segment (None: all). `exists`: what is
    there at all for this query, also to propagate its score; `passes`: of that, what passes the
    filters."""

    index: ScopeIndex
    exists: tuple[Mask | None, ...]
    passes: tuple[Mask | None, ...]

    @classmethod
    def by(cls, index: ScopeIndex, query: Query, sizes: Sequence[int] | None = None) -> Self:
        """`sizes` are the places of each segment that there are for this query (None: all)."""
        with index.lock:
            known = sizes or [segment.places for segment in index.segments]
            pairs = list(zip(index.segments, known, strict=True))
            exists = tuple(_existing(segment, query, places) for segment, places in pairs)
            wanted = [_wanted(index, segment, query, places) for segment, places in pairs]
        return cls(index, exists, tuple(map(_both, exists, wanted)))

    @property
    def is_filtered(self) -> bool:
        """Whether anything that is alive may be left out."""
        return any(mask is not None for mask in self.passes)

    def among(self, memory_ids: Iterable[str]) -> set[str]:
        """Those of these memories that may be shown; not those that came meanwhile."""
        with self.index.lock:
            return {memory_id for memory_id in memory_ids if self._may_show(memory_id)}

    def _may_show(self, memory_id: str) -> bool:
        for segment, mask in zip(self.index.segments, self.passes, strict=True):
            place = segment.place_of.get(memory_id)
            if place is not None and (mask is None or (place < len(mask) and bool(mask[place]))):
                return True
        return False


@dataclass(frozen=True, slots=True)
class _Side:
    """The query's vector as it is compared: centred, with what was taken off the memories."""

    query: Vector
    off: Vector

    def cosines(self, vectors: Vector) -> Floats:
        """Centred cosines (n,) of unit vectors (n, d), each row's bits its own."""
        rest = 1.0 - 2.0 * row_products(vectors, self.off) + (self.off * self.off).sum()
        products = row_products(vectors, self.query) - (self.off * self.query).sum()
        lengths = np.sqrt(np.maximum(rest, 1e-6))
        cosines: Floats = (products / lengths).astype(np.float64)
        return cosines


class PoolSearch:
    """One search of one resident index."""

    def __init__(
        self,
        index: ScopeIndex,
        query: Query,
        terms: Sequence[str],
        vector: Vector | None,
        language: str,
        settings: RecallSettings,
        parameters: RankingParameters = DEFAULTS,
    ) -> None:
        self._index = index
        self._query = query
        self._terms = terms
        self._settings = settings
        self._parameters = parameters
        self._language = language
        with index.lock:
            self._sizes = [segment.places for segment in index.segments]
            self._side = None if vector is None else self._centre(vector)
            codes = [segment.codes for segment in index.segments]
            rest = [] if self._side is None else self._rest_lengths()
        # The long work, done while others may change the index.
        self._near = (
            None
            if self._side is None
            else [_near(c, self._side, r) for c, r in zip(codes, rest, strict=True)]
        )

    @property
    def has_vectors(self) -> bool:
        return self._side is not None

    def pool(self, graph: Mapping[str, float]) -> tuple[Ranking, Allowed]:
        """All that is considered, turns first, with the scores of both legs; and what of the scope
        the query may show."""
        index = self._index
        with index.lock:
            pairs = index.pairs
            if self._sizes != [segment.places for segment in index.segments]:
                known = (pairs[:, 0] < self._sizes[TURNS]) & (pairs[:, 1] < self._sizes[FACTS])
                pairs = pairs[known]
            self._pairs = pairs
            allowed = Allowed.by(index, self._query, self._sizes)
            sums, query_idf = self._keyword()
            hits = self._hits(sums, allowed.passes)
            turns, facts = self._widened(
                np.union1d(hits[TURNS], self._known(TURNS, graph)),
                np.union1d(hits[FACTS], self._known(FACTS, graph)),
                allowed.exists,
            )
            places = (turns, facts)
            links = self._links(turns, facts)
            ids = [
                segment.ids[place]
                for segment, here in zip(index.segments, places, strict=True)
                for place in here.tolist()
            ]
            bm25 = np.concatenate([found[here] for found, here in zip(sums, places, strict=True)])
            rows = Ranking(
                ids=ids,
                turns=len(turns),
                meta=self._columns(places, lambda segment: segment.meta),
                keyword=keyword_coverage(bm25, query_idf) if self._terms else None,
                vector=self._cosines(places),
                graph=np.array([graph.get(memory_id, 0.0) for memory_id in ids], dtype=np.float64),
                is_hit=np.concatenate(list(map(np.isin, places, hits))),
                of_named=self._of_named(turns, facts, links),
                links=links,
                shown=np.concatenate(
                    [
                        np.ones(len(here), dtype=np.bool_) if mask is None else mask[here]
                        for mask, here in zip(allowed.passes, places, strict=True)
                    ]
                ),
            )
        return rows, allowed

    def _columns(
        self, places: Sequence[Integers], column: Callable[[Segment], NDArray[Scalar]]
    ) -> NDArray[Scalar]:
        """A column of the segments at these places, one after the other."""
        segments = self._index.segments
        return np.concatenate([column(s)[here] for s, here in zip(segments, places, strict=True)])

    def _cosines(self, places: Sequence[Integers]) -> Floats | None:
        if self._side is None:
            return None
        cosines = self._side.cosines(self._columns(places, lambda segment: segment.vectors))
        vector: Floats = np.clip(cosines, 0.0, 1.0)
        vector[~self._columns(places, lambda segment: segment.has_vector)] = np.nan
        return vector

    def _centre(self, vector: Vector) -> _Side | None:
        """None where nothing in the scope has a vector."""
        mean, count = mean_vector(self._index.segments)
        if not count:
            return None
        share = centring_share(count, self._parameters.centring, self._parameters.centring_half)
        return _Side(centred(vector, mean, share), (np.float32(share) * mean).astype(np.float32))

    def _rest_lengths(self) -> list[Vector]:
        assert self._side is not None
        return [self._index.rest_lengths(number, self._side.off) for number in (TURNS, FACTS)]

    def _keyword(self) -> tuple[list[Floats], float]:
        if self._settings.fusion == "vector" and self.has_vectors:
            return [np.zeros(size) for size in self._sizes], 0.0
        segments = self._index.segments
        alive = [None if segment.is_full_of_life else segment.alive for segment in segments]
        sums, query_idf = keyword_sums(
            segments, self._terms, alive, self._parameters.k1, self._parameters.b
        )
        # A document that came meanwhile counts in the statistics, and is not yet found.
        return [found[:size] for found, size in zip(sums, self._sizes, strict=True)], query_idf

    def _hits(self, sums: Sequence[Floats], visible: Sequence[Mask | None]) -> list[Integers]:
        """The best of each leg over both segments, ascending."""
        legs: list[Sequence[NDArray[np.floating]]] = [sums]
        if self._near is not None and self._settings.fusion != "keyword":
            legs.append(self._near)
        found = [np.zeros(0, dtype=np.int64) for _ in self._sizes]
        for leg in legs:
            seen = [masked(scores, mask) for scores, mask in zip(leg, visible, strict=True)]
            best = self._best(seen)
            found = [np.union1d(a, b) for a, b in zip(found, best, strict=True)]
        return found

    def _best(self, leg: Sequence[NDArray[np.floating]]) -> list[Integers]:
        count = self._settings.pool
        places = [at_least_best(scores, count) for scores in leg]
        scores = [s[p].astype(np.float64) for s, p in zip(leg, places, strict=True)]
        return best_of_segments(self._index.segments, places, scores, count)

    def _known(self, number: int, graph: Mapping[str, float]) -> Integers:
        segment = self._index.segments[number]
        places = {segment.place_of.get(memory_id, self._sizes[number]) for memory_id in graph}
        return np.array(sorted(p for p in places if p < self._sizes[number]), dtype=np.int64)

    def _widened(
        self, turns: Integers, facts: Integers, exists: Sequence[Mask | None]
    ) -> tuple[Integers, Integers]:
        """The hits with the turns that facts were drawn from, the turns beside all these in the
        session, and the facts drawn from them."""
        index = self._index
        pairs = self._pairs
        wide = self._mask(TURNS, turns)
        wide[pairs[self._mask(FACTS, facts)[pairs[:, 1]], 0]] = True
        near = np.flatnonzero(wide)
        reach = len(self._parameters.neighbour_weights)
        sessions = index.turns.meta["session"][near].tolist()
        positions = index.turns.meta["position"][near].tolist()
        beside: set[int] = set()
        for session, position in zip(sessions, positions, strict=True):
            if session >= 0:
                beside.update(index.seats[session][max(position - reach, 0) : position + reach + 1])
        wide[[place for place in beside if 0 <= place < self._sizes[TURNS]]] = True
        _leave_out(wide, index.turns, exists[TURNS])
        drawn = self._mask(FACTS, facts)
        drawn[pairs[wide[pairs[:, 0]], 1]] = True
        _leave_out(drawn, index.facts, exists[FACTS])
        return np.flatnonzero(wide), np.flatnonzero(drawn)

    def _mask(self, number: int, places: Integers) -> Mask:
        mask = np.zeros(self._sizes[number], dtype=np.bool_)
        mask[places] = True
        return mask

    def _links(self, turns: Integers, facts: Integers) -> Integers:
        """(m, 2) pairs of places among `turns` and `facts`, both ascending."""
        pairs = self._pairs
        both = self._mask(TURNS, turns)[pairs[:, 0]] & self._mask(FACTS, facts)[pairs[:, 1]]
        kept = pairs[both]
        return np.stack(
            (np.searchsorted(turns, kept[:, 0]), np.searchsorted(facts, kept[:, 1])), axis=1
        ).astype(np.int64)

    def _of_named(self, turns: Integers, facts: Integers, links: Integers) -> Mask | None:
        """Which rows are the named speaker's: said by them, drawn from that, or naming them. None
        where the query does not name just one."""
        index = self._index
        speaker = index.named_speaker(frozenset(self._terms), self._language)
        if speaker is None:
            return None
        said = index.turns.meta["who"][turns] == speaker
        about = index.facts.meta["who"][facts] == speaker
        naming = np.ones(len(facts), dtype=np.bool_)
        for term in index.name_terms(speaker, self._language):
            pair = index.facts.postings.get(term)
            naming &= np.isin(facts, pair[0]) if pair is not None else False
        about |= naming
        about[links[said[links[:, 0]], 1]] = True
        return np.concatenate((said, about))


def _near(codes: Codes, side: _Side, rest: Vector) -> Vector:
    """Centred cosines (n,) of all places, nearly right: they choose what is scored exactly."""
    products = codes.products(side.query[None, :])[0]
    cosines: Vector = (products - np.float32(side.off @ side.query)) / rest[: len(products)]
    return cosines


def _leave_out(mask: Mask, segment: Segment, exists: Mask | None) -> None:
    """Drop the dead, and what a query must not know of."""
    if exists is not None:
        mask &= exists
    elif not segment.is_full_of_life:
        mask &= segment.alive[: len(mask)]


# --- filters ----------------------------------------------------------------------------------


def _existing(segment: Segment, query: Query, places: int) -> Mask | None:
    if query.as_of is None:
        return None if segment.is_full_of_life else segment.alive[:places]
    mask: Mask = segment.meta["created"][:places] <= microseconds(query.as_of)
    return mask & segment.alive[:places]


def _wanted(index: ScopeIndex, segment: Segment, query: Query, places: int) -> Mask | None:
    meta = segment.meta[:places]
    masks: list[Mask] = []
    if query.types:
        masks.append(_named(segment, meta["kind"], query.types))
    if query.who is not None:
        masks.append(_said_by(index, segment, query.who, places))
    if query.session is not None:
        masks.append(_named(segment, meta["session"], (query.session,)))
    if query.project is not None:
        masks.append(_named(segment, meta["project"], (query.project,)))
    if query.pinned is not None:
        masks.append(meta["pinned"] == query.pinned)
    if query.importance_min is not None:
        masks.append(meta["importance"] >= query.importance_min)
    if query.since is not None:
        masks.append(meta["occurred"] >= microseconds(query.since))
    if query.until is not None:
        masks.append(meta["occurred"] < microseconds(query.until))
    if query.tags_any:
        masks.append(_lists(segment.tags[:places], _shares_one(query.tags_any)))
    if query.tags_all:
        masks.append(_lists(segment.tags[:places], set(query.tags_all).issubset))
    if query.categories:
        masks.append(_lists(segment.categories[:places], _shares_one(query.categories)))
    return np.logical_and.reduce(masks) if masks else None


def _both(a: Mask | None, b: Mask | None) -> Mask | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def _named(
    segment: Segment,
    numbers: np.ndarray,
    names: Sequence[str],
    same: Callable[[str], str] = str,
) -> Mask:
    """Which numbers are of names that are the `same` as one of these; the empty one is none."""
    wanted = {same(name) for name in names}
    asked = [n for n, name in enumerate(segment.numbers.names) if same(name) in wanted]
    if "" in names:
        asked.append(-1)
    return np.isin(numbers, asked)


def _said_by(index: ScopeIndex, segment: Segment, who: str, places: int) -> Mask:
    """What a person said or wrote (case ignored), and what was drawn from that."""
    mask = _named(segment, segment.meta["who"][:places], (who,), str.casefold)
    if segment is index.facts:
        turns = index.turns
        said = _named(turns, turns.meta["who"], (who,), str.casefold)
        for memory_id, sources in index.drawn_from.items():
            place = segment.place_of.get(memory_id, places)
            if place < places and not mask[place]:
                mask[place] = any(said[turns.place_of[s]] for s in sources if s in turns.place_of)
    return mask


def _shares_one(asked: Sequence[str]) -> Callable[[tuple[str, ...]], bool]:
    wanted = set(asked)
    return lambda found: not wanted.isdisjoint(found)


def _lists(lists: Sequence[tuple[str, ...]], test: Callable[[tuple[str, ...]], bool]) -> Mask:
    return np.fromiter(map(test, lists), dtype=np.bool_, count=len(lists))
