"""The memories that a query considers, as arrays: the hits of both legs and what stands by them.

The pool does not depend on how many results are asked for, so the first ten are the same whether
ten or fifty are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stores.part import Codes, Floats, Integers, Mask, Part, mean_vector
from stores.ranking import RankingParameters, centred, centring_share, keyword_coverage
from stores.recall_filter import both, existing, wanted
from stores.recall_types import Fusion, Query
from stores.scope_index import ScopeIndex
from stores.scoring import at_least_best, best_of_parts, keyword_sums, masked, row_products
from stores.vector_column import Vector

TURNS, FACTS = 0, 1


@dataclass(frozen=True, slots=True)
class Members:
    """Memories of one part in the pool, all arrays (n,). A leg that is off is None; a memory
    without a vector is NaN in `vector`."""

    ids: list[str]
    keyword: Floats | None
    vector: Floats | None
    graph: Floats
    is_wanted: Mask
    is_hit: Mask
    of_named: Mask
    meta: np.typing.NDArray[np.void]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Pool:
    """Turns and all else, `links` (m, 2) pairs of a turn's and a fact's place in them, and
    whether the query names one speaker."""

    turns: Members
    facts: Members
    links: Integers
    names_speaker: bool


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
        parameters: RankingParameters,
        language: str,
    ) -> None:
        self._index = index
        self._query = query
        self._terms = terms
        self._parameters = parameters
        self._language = language
        with index.lock:
            self._sizes = [part.places for part in index.parts]
            self._side = None if vector is None else self._centre(vector)
            codes = [part.codes for part in index.parts]
            rest = [] if self._side is None else self._rest_lengths()
        # The long part of the work, done while others may change the index.
        self._near = (
            None
            if self._side is None
            else [_cosines(c, self._side, r) for c, r in zip(codes, rest, strict=True)]
        )

    @property
    def has_vectors(self) -> bool:
        return self._side is not None

    def pool(self, fusion: Fusion, graph: Mapping[str, float]) -> Pool:
        """All that is considered, scored by both legs."""
        index = self._index
        with index.lock:
            pairs = index.pairs
            if self._sizes != [part.places for part in index.parts]:
                known = (pairs[:, 0] < self._sizes[TURNS]) & (pairs[:, 1] < self._sizes[FACTS])
                pairs = pairs[known]
            self._pairs = pairs
            exists = [
                existing(part, self._query, size)
                for part, size in zip(index.parts, self._sizes, strict=True)
            ]
            wants = [
                wanted(index, part, self._query, size)
                for part, size in zip(index.parts, self._sizes, strict=True)
            ]
            sums, query_idf = self._keyword(fusion)
            hits = self._hits(
                fusion, sums, [both(e, w) for e, w in zip(exists, wants, strict=True)]
            )
            boosted = [self._known(part, graph) for part in (TURNS, FACTS)]
            turns, facts = self._widened(
                np.union1d(hits[TURNS], boosted[TURNS]),
                np.union1d(hits[FACTS], boosted[FACTS]),
                exists,
            )
            speaker = index.named_speaker(frozenset(self._terms), self._language)
            links = self._links(turns, facts)
            said = self._of_named(speaker, turns, facts, links)
            members = [
                self._members(
                    part, places, sums, query_idf, wants[part], hits[part], said[part], graph
                )
                for part, places in ((TURNS, turns), (FACTS, facts))
            ]
        return Pool(members[TURNS], members[FACTS], links, speaker is not None)

    def _centre(self, vector: Vector) -> _Side | None:
        """None where nothing in the scope has a vector."""
        mean, count = mean_vector(self._index.parts)
        if not count:
            return None
        share = centring_share(count, self._parameters.centring, self._parameters.centring_half)
        return _Side(centred(vector, mean, share), (np.float32(share) * mean).astype(np.float32))

    def _rest_lengths(self) -> list[Vector]:
        assert self._side is not None
        return [self._index.rest_lengths(number, self._side.off) for number in (TURNS, FACTS)]

    def _keyword(self, fusion: Fusion) -> tuple[list[Floats], float]:
        if fusion == "vector" and self.has_vectors:
            return [np.zeros(size) for size in self._sizes], 0.0
        parts = self._index.parts
        alive = [None if part.is_full_of_life else part.alive for part in parts]
        sums, query_idf = keyword_sums(
            parts, self._terms, alive, self._parameters.k1, self._parameters.b
        )
        # A document that came meanwhile counts in the statistics, and is not yet found.
        return [found[:size] for found, size in zip(sums, self._sizes, strict=True)], query_idf

    def _hits(
        self, fusion: Fusion, sums: Sequence[Floats], visible: Sequence[Mask | None]
    ) -> list[Integers]:
        """The best of each leg over both parts, ascending."""
        legs: list[Sequence[np.typing.NDArray[np.floating]]] = [sums]
        if self._near is not None and fusion != "keyword":
            legs.append(self._near)
        found = [np.zeros(0, dtype=np.int64) for _ in self._sizes]
        for leg in legs:
            seen = [masked(scores, mask) for scores, mask in zip(leg, visible, strict=True)]
            best = self._best(seen)
            found = [np.union1d(a, b) for a, b in zip(found, best, strict=True)]
        return found

    def _best(self, leg: Sequence[np.typing.NDArray[np.floating]]) -> list[Integers]:
        count = self._parameters.pool
        places = [at_least_best(scores, count) for scores in leg]
        scores = [s[p].astype(np.float64) for s, p in zip(leg, places, strict=True)]
        return best_of_parts(self._index.parts, places, scores, count)

    def _known(self, number: int, graph: Mapping[str, float]) -> Integers:
        part = self._index.parts[number]
        places = {part.place_of.get(memory_id, self._sizes[number]) for memory_id in graph}
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

    def _of_named(
        self, speaker: int | None, turns: Integers, facts: Integers, links: Integers
    ) -> tuple[Mask, Mask]:
        """Which places are the named speaker's: said by them, drawn from that, or naming them."""
        index = self._index
        if speaker is None:
            return np.ones(len(turns), dtype=np.bool_), np.ones(len(facts), dtype=np.bool_)
        said = index.turns.meta["who"][turns] == speaker
        about = index.facts.meta["who"][facts] == speaker
        naming = np.ones(len(facts), dtype=np.bool_)
        for term in index.name_terms(speaker, self._language):
            pair = index.facts.postings.get(term)
            naming &= np.isin(facts, pair[0]) if pair is not None else False
        about |= naming
        about[links[said[links[:, 0]], 1]] = True
        return said, about

    def _members(
        self,
        number: int,
        places: Integers,
        sums: Sequence[Floats],
        query_idf: float,
        want: Mask | None,
        hits: Integers,
        of_named: Mask,
        graph: Mapping[str, float],
    ) -> Members:
        part = self._index.parts[number]
        ids = [part.ids[place] for place in places.tolist()]
        vector = None
        if self._side is not None:
            vector = np.clip(self._side.cosines(part.vectors[places]), 0.0, 1.0)
            vector[~part.has_vector[places]] = np.nan
        return Members(
            ids=ids,
            keyword=keyword_coverage(sums[number][places], query_idf) if self._terms else None,
            vector=vector,
            graph=_graph_hits(ids, graph),
            is_wanted=np.ones(len(ids), dtype=np.bool_) if want is None else want[places],
            is_hit=np.isin(places, hits),
            of_named=of_named,
            meta=part.meta[places],
        )


def _graph_hits(ids: Sequence[str], graph: Mapping[str, float]) -> Floats:
    if not graph:
        return np.zeros(len(ids))
    return np.array([graph.get(memory_id, 0.0) for memory_id in ids], dtype=np.float64)


def _cosines(codes: Codes, side: _Side, rest: Vector) -> Vector:
    """Centred cosines (n,) of all places, nearly right: they choose what is scored exactly."""
    products = codes.products(side.query[None, :])[0]
    cosines: Vector = (products - np.float32(side.off @ side.query)) / rest[: len(products)]
    return cosines


def _leave_out(mask: Mask, part: Part, exists: Mask | None) -> None:
    """Drop the dead, and what a query must not know of."""
    if exists is not None:
        mask &= exists
    elif not part.is_full_of_life:
        mask &= part.alive[: len(mask)]
