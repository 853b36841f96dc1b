"""The pool of memories that a query considers: the hits of both legs and the memories around them.

The pool does not depend on how many results are requested, up to its size, so the first ten are the
same whether ten or fifty are. All of it passes the query's filters (`stores.recall.filters`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from palimpsest.stores.index.analysis import asks, only_asks
from palimpsest.stores.index.scope_index import FACTS, TURNS, ScopeIndex
from palimpsest.stores.index.scoring import (
    at_least_best,
    best_of_segments,
    keyword_sums,
    masked,
    row_products,
)
from palimpsest.stores.index.search_plan import SearchPlan
from palimpsest.stores.index.segment import Floats, Integers, Mask, Segment, mean_vector
from palimpsest.stores.index.vector_column import Codes, HalfVectors, Vector
from palimpsest.stores.recall.filters import VisibilityMask, in_sql
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.ranking import (
    DEFAULTS,
    RankingParameters,
    centred,
    centring_share,
    keyword_coverage,
)
from palimpsest.stores.recall.ranking_steps import Ranking
from palimpsest.stores.recall.token_leg import TokenLeg
from palimpsest.stores.settings import RecallSettings

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class CenteredQuery:
    """The query's vector for the comparison: centred, with what was subtracted from the
    memories."""

    query: Vector
    off: Vector

    @classmethod
    def of(cls, vector: Vector, mean: Vector, count: int, parameters: RankingParameters) -> Self:
        """Centres the vector in a scope with `count` vectors of this mean."""
        share = centring_share(count, parameters.centring, parameters.centring_half)
        return cls(centred(vector, mean, share), (np.float32(share) * mean).astype(np.float32))

    def cosines(self, vectors: HalfVectors) -> Floats:
        """Centred cosines (n,) of unit vectors (n, d), each row's bits its own."""
        rest = 1.0 - 2.0 * row_products(vectors, self.off) + (self.off * self.off).sum()
        products = row_products(vectors, self.query) - (self.off * self.query).sum()
        lengths = np.sqrt(np.maximum(rest, 1e-6))
        cosines: Floats = (products / lengths).astype(np.float64)
        return cosines


def search_plan(
    query: Query,
    terms: Sequence[str],
    vector: Vector | None,
    ids: Collection[str],
    settings: RecallSettings,
    parameters: RankingParameters = DEFAULTS,
) -> SearchPlan:
    """What the pool of a query needs of a scope; `ids` are in it, too, if they pass."""

    def centre(mean: Vector, count: int) -> CenteredQuery:
        assert vector is not None
        return CenteredQuery.of(vector, mean, count, parameters)

    passes, values = in_sql(query)
    return SearchPlan(
        query.scope,
        terms=terms,
        vector=vector,
        centred=centre,
        count=max(settings.pool, query.limit),
        ids=ids,
        # The words of turns near the furthest ones count as theirs.
        reach=parameters.reach + parameters.context_reach + query.neighbours,
        passes=passes,
        values=values,
        k1=parameters.k1,
        b=parameters.b,
    )


class PoolSearch:
    """One search of one index."""

    def __init__(
        self,
        index: ScopeIndex,
        query: Query,
        terms: Sequence[str],
        vector: Vector | None,
        language: str,
        settings: RecallSettings,
        parameters: RankingParameters = DEFAULTS,
        tokens: TokenLeg | None = None,
    ) -> None:
        """With `tokens` the pool is scored by token vectors; vectors only select it."""
        self._index = index
        self._query = query
        self._terms = terms
        self._settings = settings
        self._parameters = parameters
        self._language = language
        self._vector = vector
        self._tokens = tokens
        with index.lock:
            self._sizes = [segment.places for segment in index.segments]
            self._centred = None if vector is None else self._centre(vector)
            codes = [segment.codes for segment in index.segments]
            rest = [] if self._centred is None else self._rest_lengths()
        # The slow part, during which others may change the index.
        self._near = (
            None
            if self._centred is None
            else [_near(c, self._centred, r) for c, r in zip(codes, rest, strict=True)]
        )

    @property
    def has_vectors(self) -> bool:
        return self._centred is not None

    def pool(self, graph: Mapping[str, float]) -> tuple[Ranking, VisibilityMask]:
        """Returns all memories to consider, turns first, with the scores of both legs; and what of
        the scope the query may show."""
        index = self._index
        with index.lock:
            pairs = index.pairs
            if self._sizes != [segment.places for segment in index.segments]:
                known = (pairs[:, 0] < self._sizes[TURNS]) & (pairs[:, 1] < self._sizes[FACTS])
                pairs = pairs[known]
            self._pairs = pairs
            allowed = VisibilityMask.by(index, self._query, self._sizes)
            sums, query_idf = self._keyword()
            hits = self._hits(sums, allowed.passes)
            # The graph adds memories to the pool, but not the memories around them.
            wide = self._widened(hits[TURNS], hits[FACTS], allowed.passes)
            turns, facts = places = tuple(
                np.union1d(wide[number], self._known(number, graph, allowed.passes[number]))
                for number in (TURNS, FACTS)
            )
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
                vector=None,
                graph=np.array([graph.get(memory_id, 0.0) for memory_id in ids], dtype=np.float64),
                of_named=self._of_named(turns, facts, links),
                links=links,
                questions=self._questions(turns),
                nearby=self._nearby(turns, allowed.passes[TURNS]),
            )
            rows.of_assistant = self._of_assistant(rows, turns)
            rows.only_questions = self._only_questions(rows, turns)
            if self._tokens is None:
                rows.vector = self._cosines(places)
        if self._tokens and self.is_by_tokens:
            rows.vector = self._by_tokens(self._tokens, places, rows)
        return rows, allowed

    @property
    def is_by_tokens(self) -> bool:
        """Whether the vector leg compares token vectors."""
        by_keywords = self._settings.fusion == "keyword" and bool(self._terms)
        return self._tokens is not None and self.has_vectors and not by_keywords

    def _questions(self, turns: Integers) -> Mask:
        contents = self._index.turns.contents
        found = (asks(contents[place]) for place in turns.tolist())
        return np.fromiter(found, dtype=np.bool_, count=len(turns))

    def _of_assistant(self, rows: Ranking, turns: Integers) -> Mask | None:
        """Turns of assistants, and memories derived only from such turns."""
        segment = self._index.turns
        role = segment.meta["role"][: self._sizes[TURNS]] == segment.numbers.of("assistant")
        if not role.any():
            return None
        by_assistant = np.zeros(len(rows.ids), dtype=np.bool_)
        by_assistant[: rows.turns] = role[turns]
        derived = rows.links[:, 1] + rows.turns
        by_assistant[derived[by_assistant[rows.links[:, 0]]]] = True
        by_assistant[derived[~by_assistant[rows.links[:, 0]]]] = False
        return by_assistant

    def _only_questions(self, rows: Ranking, turns: Integers) -> Mask:
        """People's turns that are nothing but questions."""
        contents, by_assistant = self._index.turns.contents, rows.of_assistant
        asking = rows.questions
        if by_assistant is not None:
            asking = asking & ~by_assistant[: rows.turns]
        only = np.zeros(len(rows.ids), dtype=np.bool_)
        for row in np.flatnonzero(asking).tolist():
            only[row] = only_asks(contents[turns[row]])
        return only

    def _nearby(self, turns: Integers, passes: Mask | None) -> dict[int, list[str]]:
        """By offset, the id of the turn that far from each in its session; empty where there is
        none, or it may not be shown."""
        segment, slots = self._index.turns, self._index.turns_by_session
        may = np.ones(self._sizes[TURNS], dtype=np.bool_)
        _leave_out(may, segment, passes)
        sessions = segment.meta["session"][turns].tolist()
        positions = segment.meta["position"][turns].tolist()
        offsets = {-1, *(offset for offset, _ in self._parameters.context_shares)}
        found: dict[int, list[str]] = {offset: [] for offset in sorted(offsets)}
        for session, position in zip(sessions, positions, strict=True):
            places = slots[session] if session >= 0 else ()
            for offset, ids in found.items():
                there = position + offset
                place = places[there] if 0 <= there < len(places) else -1
                ids.append(segment.ids[place] if 0 <= place < len(may) and may[place] else "")
        return found

    def _by_tokens(self, tokens: TokenLeg, places: Sequence[Integers], rows: Ranking) -> Floats:
        """Reads tokens from a table, so without the index's lock."""
        scores = tokens.scores(rows.ids, rows.nearby)
        lacking = np.isnan(scores)
        if lacking.any() and self._vector is not None:
            with self._index.lock:
                vectors = self._columns(places, lambda segment: segment.vectors)[lacking]
                known = self._columns(places, lambda segment: segment.has_vector)[lacking]
            scores[lacking] = np.where(
                known, tokens.estimates(row_products(vectors, self._vector)), np.nan
            )
        return scores

    def _columns(
        self, places: Sequence[Integers], column: Callable[[Segment], NDArray[Scalar]]
    ) -> NDArray[Scalar]:
        """A column of the segments at these places, one after the other."""
        segments = self._index.segments
        return np.concatenate([column(s)[here] for s, here in zip(segments, places, strict=True)])

    def _cosines(self, places: Sequence[Integers]) -> Floats | None:
        if self._centred is None:
            return None
        cosines = self._centred.cosines(self._columns(places, lambda segment: segment.vectors))
        vector: Floats = np.clip(cosines, 0.0, 1.0)
        vector[~self._columns(places, lambda segment: segment.has_vector)] = np.nan
        return vector

    def _centre(self, vector: Vector) -> CenteredQuery | None:
        """None where nothing in the scope has a vector."""
        mean, count = mean_vector(self._index.segments)
        if not count:
            return None
        return CenteredQuery.of(vector, mean, count, self._parameters)

    def _rest_lengths(self) -> list[Vector]:
        assert self._centred is not None
        return [self._index.rest_lengths(number, self._centred.off) for number in (TURNS, FACTS)]

    def _keyword(self) -> tuple[list[Floats], float]:
        if self._settings.fusion == "vector" and self.has_vectors:
            return [np.zeros(size) for size in self._sizes], 0.0
        segments = self._index.segments
        alive = [None if segment.has_no_tombstones else segment.alive for segment in segments]
        sums, query_idf = keyword_sums(
            segments, self._terms, alive, self._parameters.k1, self._parameters.b
        )
        # A document that came meanwhile counts in the statistics, and is not yet found.
        return [found[:size] for found, size in zip(sums, self._sizes, strict=True)], query_idf

    def _hits(self, sums: Sequence[Floats], visible: Sequence[Mask | None]) -> list[Integers]:
        """The best hits of each leg over both segments, ascending."""
        legs: list[Sequence[NDArray[np.floating]]] = [sums]
        if self._near is not None and self._settings.fusion != "keyword":
            legs.append(self._near)
        found = [np.zeros(0, dtype=np.int64) for _ in self._sizes]
        for leg in legs:
            seen = [masked(scores, mask) for scores, mask in zip(leg, visible, strict=True)]
            best = self._best(seen)
            found = [np.union1d(a, b) for a, b in zip(found, best, strict=True)]
        return self._filled(found, visible)

    def _filled(self, hits: list[Integers], visible: Sequence[Mask | None]) -> list[Integers]:
        """Returns the hits; if they are fewer than the pool holds, also the nearest of the others
        that pass, or the newest without vectors."""
        missing = max(self._settings.pool, self._query.limit) - sum(map(len, hits))
        if missing <= 0:
            return hits
        places: list[Integers] = []
        nearness: list[Floats] = []
        for number, (segment, mask) in enumerate(zip(self._index.segments, visible, strict=True)):
            rest = np.ones(self._sizes[number], dtype=np.bool_)
            _leave_out(rest, segment, mask)
            rest[hits[number]] = False
            places.append(np.flatnonzero(rest))
            by_vector = self._near is not None and self._settings.fusion != "keyword"
            leg = self._near[number] if by_vector and self._near else segment.meta["occurred"]
            nearness.append(leg[places[number]].astype(np.float64))
        more = best_of_segments(self._index.segments, places, nearness, missing)
        return [np.union1d(a, b) for a, b in zip(hits, more, strict=True)]

    def _best(self, leg: Sequence[NDArray[np.floating]]) -> list[Integers]:
        count = max(self._settings.pool, self._query.limit)
        places = [at_least_best(scores, count) for scores in leg]
        scores = [s[p].astype(np.float64) for s, p in zip(leg, places, strict=True)]
        return best_of_segments(self._index.segments, places, scores, count)

    def _known(self, number: int, graph: Mapping[str, float], passes: Mask | None) -> Integers:
        segment, size = self._index.segments[number], self._sizes[number]
        places = [segment.place_of.get(memory_id, size) for memory_id in graph]
        mask = self._mask(number, np.array([p for p in places if p < size], dtype=np.int64))
        _leave_out(mask, segment, passes)
        return np.flatnonzero(mask)

    def _widened(
        self, turns: Integers, facts: Integers, passes: Sequence[Mask | None]
    ) -> tuple[Integers, Integers]:
        """Returns the hits with the turns that facts were derived from, the turns next to all these
        in the session, and the facts derived from them."""
        index = self._index
        pairs = self._pairs
        wide = self._mask(TURNS, turns)
        wide[pairs[self._mask(FACTS, facts)[pairs[:, 1]], 0]] = True
        near = np.flatnonzero(wide)
        reach = self._parameters.reach
        sessions = index.turns.meta["session"][near].tolist()
        positions = index.turns.meta["position"][near].tolist()
        adjacent: set[int] = set()
        for session, position in zip(sessions, positions, strict=True):
            if session >= 0:
                adjacent.update(
                    index.turns_by_session[session][max(position - reach, 0) : position + reach + 1]
                )
        wide[[place for place in adjacent if 0 <= place < self._sizes[TURNS]]] = True
        _leave_out(wide, index.turns, passes[TURNS])
        derived = self._mask(FACTS, facts)
        derived[pairs[wide[pairs[:, 0]], 1]] = True
        _leave_out(derived, index.facts, passes[FACTS])
        return np.flatnonzero(wide), np.flatnonzero(derived)

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
        """Marks the rows of the named speaker: said by them, derived from that, or naming them.
        None unless the query names exactly one speaker."""
        index = self._index
        speaker = index.named_speaker(frozenset(self._terms), self._language)
        if speaker is None:
            return None
        by_speaker = index.turns.meta["who"][turns] == speaker
        about = index.facts.meta["who"][facts] == speaker
        for terms in index.speaker_names(self._language)[speaker]:
            pairs = [index.facts.postings.get(term) for term in terms]
            held = [np.isin(facts, pair[0]) for pair in pairs if pair is not None]
            if len(held) == len(terms):
                about |= np.logical_and.reduce(held)
        about[links[by_speaker[links[:, 0]], 1]] = True
        return np.concatenate((by_speaker, about))


def _near(codes: Codes, query: CenteredQuery, rest: Vector) -> Vector:
    """Approximate centred cosines (n,) of all places: they select what is scored exactly."""
    products = codes.products(query.query[None, :])[0]
    cosines: Vector = (products - np.float32(query.off @ query.query)) / rest[: len(products)]
    return cosines


def _leave_out(mask: Mask, segment: Segment, passes: Mask | None) -> None:
    """Clears dead places, and those that a query may not show."""
    if passes is not None:
        mask &= passes
    elif not segment.has_no_tombstones:
        mask &= segment.alive[: len(mask)]
