"""Scores of every place of an index, and the best of them: the two legs of every search.

A search runs over any segments together, with statistics over just these, so its results do not
depend on how the documents are split into segments. Everything that decides an order is computed
row by row in a fixed order, never as a segment of a matrix product, whose last bits depend on how
many rows it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import simsimd
from numpy.typing import NDArray

from palimpsest.stores.index.segment import Counts, Floats, Integers, Mask, Places, Segment
from palimpsest.stores.index.vector_column import HalfVectors, Passages, Vector
from palimpsest.stores.ranking import (
    DEFAULTS,
    RankingParameters,
    bm25_impact,
    centred,
    centring_share,
    idf,
    length_norms,
)

BLOCK = 256
MANY = 10_000
"""Postings from which on copying them together costs more than a call for every term."""
TermPostings = tuple[Places, Counts]
_NOWHERE = (np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.uint16))


def keyword_sums(
    segments: Sequence[Segment],
    terms: Sequence[str],
    visible: Sequence[Mask | None],
    parameters: RankingParameters = DEFAULTS,
) -> tuple[list[Floats], float]:
    """BM25 of every place of every segment, 0 where no term occurs; and the sum of the terms' idf.

    Only visible places (None: all) count, also for the statistics, and there what is `beyond`.
    Formula: `ranking.idf` and `ranking.bm25_impact`.
    """
    sums = [np.zeros(segment.places) for segment in segments]
    counts = [_count(segment, mask) for segment, mask in zip(segments, visible, strict=True)]
    documents = sum(count for count, _ in counts)
    if not documents:
        return sums, 0.0
    average = max(sum(length for _, length in counts) / documents, 1.0)
    wanted = list(dict.fromkeys(terms))
    found = [
        _postings(segment, wanted, mask) for segment, mask in zip(segments, visible, strict=True)
    ]
    frequency = np.array([[len(places) for places, _ in held] for held in found]).sum(axis=0)
    for segment in segments:
        if segment.beyond.frequency:
            frequency += np.array([segment.beyond.frequency.get(term, 0) for term in wanted])
    idfs = idf(frequency, documents)
    weights = (parameters.k1 + 1.0) * idfs
    for segment, held, total in zip(segments, found, sums, strict=True):
        norms = length_norms(segment.lengths, average, parameters.k1, parameters.b)
        add = _add_by_term if sum(len(places) for places, _ in held) >= MANY else _add_at_once
        add(total, held, weights, norms)
    return sums, float(idfs.sum())


def _add_by_term(
    total: Floats, held: Sequence[TermPostings], weights: Floats, norms: Floats
) -> None:
    """Add what every term is worth to the places that hold it, in the order of the terms."""
    for (narrow, tf), weight in zip(held, weights.tolist(), strict=True):
        # No place stands twice in the postings of a term. Wide numbers and `take`: half the time
        # of indexing.
        places = narrow.astype(np.int64)
        impacts = bm25_impact(tf.astype(np.float64), norms.take(places), weight)
        impacts += total.take(places)
        total[places] = impacts


def _add_at_once(
    total: Floats, held: Sequence[TermPostings], weights: Floats, norms: Floats
) -> None:
    """The same to the last bit, for few postings: what costs there is each call of numpy."""
    if not held:
        return
    places = np.concatenate([places for places, _ in held])
    tf = np.concatenate([tf for _, tf in held]).astype(np.float64)
    weight = np.repeat(weights, [len(places) for places, _ in held])
    total += np.bincount(places, bm25_impact(tf, norms[places], weight), len(total))


def _postings(segment: Segment, terms: Sequence[str], mask: Mask | None) -> list[TermPostings]:
    """The visible places and counts of each term."""
    pairs = [segment.postings.get(term) or _NOWHERE for term in terms]
    if mask is None:
        return pairs
    seen = [mask[places] for places, _ in pairs]
    return [(places[s], counts[s]) for (places, counts), s in zip(pairs, seen, strict=True)]


def _count(segment: Segment, mask: Mask | None) -> tuple[int, float]:
    beyond = segment.beyond
    if mask is None:
        return segment.places + beyond.documents, segment.total_length + beyond.total_length
    count, length = np.count_nonzero(mask), segment.lengths[mask].sum()
    return int(count) + beyond.documents, float(length) + beyond.total_length


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

    def nearest(self, passages: Passages) -> Vector:
        """The centred cosine, nearly, of the nearest passage of each text that has some."""
        if not len(passages):
            return np.zeros(0, dtype=np.float32)
        products, rest = passages.codes.products(np.stack((self.query, self.off)))
        squares = 1.0 - 2.0 * rest + float(self.off @ self.off)
        cosines = (products - float(self.off @ self.query)) / np.sqrt(np.maximum(squares, 1e-6))
        best: Vector = np.maximum.reduceat(cosines, passages.starts).astype(np.float32)
        return best


def row_cosines(vectors: HalfVectors, query: Vector) -> Floats:
    """Cosines (n,) of unit vectors (n, d) to one: each row's bits are independent of the other
    rows. Zeros give 0."""
    # Products of single and half floats are exact in double precision; the sum runs along each row.
    products = np.ascontiguousarray(vectors, dtype=np.float64) * query.astype(np.float64)
    cosines: Floats = products.sum(axis=1)
    return cosines


def row_products(vectors: HalfVectors, query: Vector) -> Vector:
    """Dot products (n,) in single precision; here too each row's bits are its own."""
    if not len(vectors):
        return np.zeros(0, dtype=np.float32)
    # Not einsum, whose sums were seen to differ with where the rows lie in memory.
    found = simsimd.cdist(query[None, :], vectors.astype(np.float32), "dot")
    products: Vector = np.asarray(found)[0].astype(np.float32)
    return products


def at_least_best(scores: NDArray[np.floating], count: int) -> Integers:
    """Places of all positive scores that are no worse than the `count`-th best: `count` or more
    where there are so many, ties included."""
    if count <= 0 or not len(scores):
        return np.zeros(0, dtype=np.int64)
    # A score that at least `count` places reach: the `count`-th best of the blocks' best ones. One
    # pass that the processor does in blocks is ten times faster than a partition of all.
    floor = -np.inf
    blocks = len(scores) // BLOCK
    if blocks > count:
        best = scores[: blocks * BLOCK].reshape(blocks, BLOCK).max(axis=1)
        floor = float(np.partition(best, blocks - count)[blocks - count])
    chosen = np.flatnonzero((scores >= floor) & (scores > 0.0))
    if len(chosen) > count:
        values = scores[chosen]
        least = np.partition(values, len(values) - count)[len(values) - count]
        chosen = chosen[values >= least]
    return chosen


def best_of_segments(
    segments: Sequence[Segment], places: Sequence[Integers], scores: Sequence[Floats], count: int
) -> list[Integers]:
    """The `count` best of some places of all segments together, ties by id; per segment, ascending.

    `scores[n]` belong to `places[n]`.
    """
    if sum(map(len, places)) <= count:
        return [np.sort(found) for found in places]
    every = np.concatenate(scores)
    least = np.partition(every, len(every) - count)[len(every) - count]
    better = int(np.count_nonzero(every > least))
    tied = sorted(
        (segments[number].ids[place], number, int(place))
        for number, found in enumerate(places)
        for place in found[scores[number] == least]
    )
    chosen = [found[scores[number] > least].tolist() for number, found in enumerate(places)]
    for _, number, place in tied[: count - better]:
        chosen[number].append(place)
    return [np.array(sorted(found), dtype=np.int64) for found in chosen]


def best_of_legs(
    segments: Sequence[Segment],
    legs: Sequence[Sequence[NDArray[np.floating]]],
    visible: Sequence[Mask | None],
    count: int,
) -> list[Integers]:
    """The visible places (None: all) that are among the `count` best of any leg over all segments
    together; per segment, ascending. Of a leg only positive scores count."""
    found = [np.zeros(0, dtype=np.int64) for _ in segments]
    for leg in legs:
        seen = [s if m is None else np.where(m, s, 0.0) for s, m in zip(leg, visible, strict=True)]
        places = [at_least_best(scores, count) for scores in seen]
        scores = [s[p].astype(np.float64) for s, p in zip(seen, places, strict=True)]
        best = best_of_segments(segments, places, scores, count)
        found = [np.union1d(a, b) for a, b in zip(found, best, strict=True)]
    return found
