"""How candidates are scored and ordered: pure functions over arrays.

Every score lies in 0..1 and depends only on the query, the memory and the statistics of its scope,
never on the other candidates in the pool or on the number requested. So the first ten are the same
whether ten or fifty are requested, and a minimum score means the same for every query of a scope.

`stores.recall.ranking_steps` defines the order of the steps.

Decision 37 has the measurements of neighbours, facts, names and the weight of the vector. The
numbers below are older: recall@10 on three LoCoMo conversations (480 questions), with MiniLM-L6
unless noted otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Vector = NDArray[np.float32]

TIE_DECIMALS = 6
"""Scores closer than this are ties: the last bits of a dot product differ between processors."""


@dataclass(frozen=True, slots=True)
class ProfileWeights:
    """Shares of the final order; only their proportions count."""

    relevance: float = 1.0
    recency: float = 0.0
    importance: float = 0.0
    frequency: float = 0.0


PROFILES: Mapping[str, ProfileWeights] = MappingProxyType(
    {"relevance": ProfileWeights(), "balanced": ProfileWeights(0.55, 0.20, 0.15, 0.10)}
)


@dataclass(frozen=True, slots=True)
class ModelParameters:
    """Parameters that are measured again for another way to compare texts."""

    alpha: float
    """Weight of the vector against the keywords."""
    unlikely: float
    """Results below are marked as unlikely: at most one in a hundred of the evidence among the
    first ten is below."""


@dataclass(frozen=True, slots=True)
class RankingParameters:
    """Parameters that are not set but measured, each with its reason; `RecallSettings` has those
    that are set."""

    k1: float = 1.2
    """BM25 term saturation: .9 and 1.2 are alike."""

    b: float = 0.4
    """BM25 length normalization. Turns are short and a longer one says more: .75 loses .003 (at
    rank 1 .010); as the only leg and without propagation .635 against .649."""

    centring: float = 1.0
    """Share of the scope's mean vector subtracted from both sides before the cosine: what all
    memories of a scope have in common distinguishes none of them. Without it .821; with e5-small
    .786 against .846."""

    centring_half: int = 20
    """Memories at which half of that share applies: the mean of a few is mostly themselves, and
    that of one would leave nothing of it. At the 400 to 700 turns measured it costs nothing."""

    least_similarity: float = 0.75
    """For token vectors: the similarity of a question with any text. From here to 1 the score rises
    from 0 to 1."""

    similarity_by_cosine: tuple[float, float] = (0.53, 0.36)
    """Slope and rest of the similarity by token vectors that is likely at a cosine of vectors, for
    what has no token vectors: a line through those of 80 questions, .03 off."""

    context_shares: tuple[tuple[int, float], ...] = ((-2, 0.85), (-1, 0.9), (2, 0.85))
    """By places before (negative) or after in the session, the share at which the words of a turn
    count as another's own where token vectors are compared: the turn before is often what it
    answers, and those two away are mostly the same speaker's (decision 82)."""

    neighbour_weights: tuple[tuple[int, float], ...] = ((-2, 0.3), (-1, 0.25), (1, 0.4), (2, 0.1))
    """By places before (negative) or after in the session, how much a turn raises another. Two
    before with .3 instead of .2: +.004 at 10 on LoCoMo, +.003 on REALTALK, -.002 on LongMemEval."""

    asking_weight: float = 1.5
    """The same for the turn before if it asks: the answer follows its question."""

    assistant_prior: float = 0.4
    """Multiplier of an assistant's statements if the question does not ask for them: eight times as
    long as people's, they are near to every question and hold 6 % of the evidence (decision 74 has
    the figures of this and the next two)."""

    assistant_pool: int = 16
    """Turns of assistants, tools and the system that are considered by their nearest passages."""

    passage_rank: int = 3
    """The result whose place that of these with the nearest passage may take; 0: none."""

    people_prior: float = 0.8
    """Multiplier of people's statements if the question asks what the assistant did."""

    question_prior: float = 0.9
    """Multiplier of a person's turn that only asks, applied after it has raised its neighbours, one
    of which is the answer (decision 81)."""

    echo_prior: float = 0.25
    """Multiplier of a turn that echoes a context block: the words there are others'. Chosen, not
    measured: no data set here has echoes."""

    only_echo_prior: float = 0.1
    """The same of a turn that says nothing else."""

    named_boost: float = 0.2
    """How much more a memory of the one person named in the query counts."""

    fact_to_turn: float = 1.0
    """Weight of a fact's score relative to its turn's own, if it raises that."""

    turn_to_fact: float = 1.0
    """Weight of a turn's score relative to its fact's own: a fact has no neighbours, so without the
    turn's share facts crowd out turns that the conversation around them supports (.781)."""

    rrf_k: float = 60.0
    """Rank constant of reciprocal rank fusion. Measured below the weighted mean of the scores
    (.741; with 10, .807)."""

    past_end_factor: float = 0.5
    """Multiplier of a temporal memory past its end. Chosen, not measured: no data set here has
    expired memories."""

    recency_half_life_days: float = 30.0
    """Age at which recency has halved. Chosen, not measured."""

    frequency_full: int = 50
    """Accesses at which frequency reaches 1. Chosen, not measured."""

    cosine_weight: float = 0.3
    """Weight of a whole content's cosine, relative to the score, in reranking."""

    cross_encoder_weight: float = 0.4
    """Weight of the cross-encoder's score, relative to the score, in reranking."""

    mmr_relevance: float = 0.7
    """Share of relevance in MMR, which is off: measured elsewhere to halve recall."""

    of_tokens: ModelParameters = ModelParameters(alpha=0.8, unlikely=0.22)
    """With token vectors. Of the evidence among the first ten 99 % has .224 and more (LongMemEval),
    .245 (LoCoMo), .257 (REALTALK); of the best results of their questions 99 % .235 and more. The
    best of questions on foreign subjects are half the time below .21 to .25, so the mark catches
    only a part of them (decision 75)."""

    of_vectors: ModelParameters = ModelParameters(alpha=0.5, unlikely=0.08)
    """With a vector a text, or none. The best scores of real questions are .08 and up (99 % .11),
    those of questions on foreign subjects .05 to .12."""

    @property
    def reach(self) -> int:
        """The distance in places of the furthest turn that another one raises."""
        return max((abs(offset) for offset, _ in self.neighbour_weights), default=0)

    @property
    def context_reach(self) -> int:
        """The distance in places of the furthest turn whose words count as another's."""
        return max((abs(offset) for offset, _ in self.context_shares), default=0)


DEFAULTS: Final = RankingParameters()


# Keyword leg


def idf(document_frequency: Floats | float, documents: int) -> Floats:
    """ln(1 + (N - df + 0.5) / (df + 0.5)), never negative: Robertson and Zaragoza, "The
    Probabilistic Relevance Framework: BM25 and Beyond" (2009), with 1 added."""
    df = np.asarray(document_frequency, dtype=np.float64)
    return np.asarray(np.log(1.0 + (documents - df + 0.5) / (df + 0.5)))


def length_norms(
    lengths: Floats, average_length: float, k1: float = DEFAULTS.k1, b: float = DEFAULTS.b
) -> Floats:
    """How much documents of `lengths` (n,) in terms hold against a term: k1 x (1 - b + b x length
    / average), same source as `idf`."""
    relative = lengths / average_length if average_length > 0 else np.ones_like(lengths)
    return k1 * (1.0 - b + b * relative)


def bm25_impact(counts: Floats, norms: Floats, weight: Floats | float) -> Floats:
    """Returns what terms add to the BM25 scores of the documents that contain them.

    `counts` (n,) occurrences, `norms` (n,) of `length_norms`, `weight` idf x (k1 + 1), of one term
    or (n,). weight x tf / (tf + norm), same source as `idf`."""
    impacts = counts / (counts + norms)
    impacts *= weight
    return impacts


def keyword_coverage(bm25: Floats, query_idf: float) -> Floats:
    """Returns the share of the query's information that a document contains, 0..1.

    `bm25` (n,) sums; `query_idf` the sum of `idf` over the distinct terms of the query, including
    those that occur nowhere (df 0). A document of average length with each term once has 1."""
    if query_idf <= 0.0:
        return np.zeros_like(bm25)
    return np.clip(bm25 / query_idf, 0.0, 1.0)


# Vector leg


def centring_share(
    documents: int, centring: float = DEFAULTS.centring, half: int = DEFAULTS.centring_half
) -> float:
    """Returns the share of the mean to subtract in a scope with this number of vectors."""
    return centring * documents / (documents + half)


def centred(vectors: Vector, mean: Vector, share: float = DEFAULTS.centring) -> Vector:
    """Vectors (n, d) or (d,) less a share of the scope's mean vector (d,), at unit length; what is
    nothing but the mean becomes zeros. Mu and Viswanath, "All-but-the-Top" (2018), step one."""
    rest = vectors - np.float32(share) * mean
    norms = np.linalg.norm(rest, axis=-1, keepdims=True)
    unit: Vector = np.divide(rest, norms, out=np.zeros_like(rest), where=norms > 1e-6)
    return unit


# Fusion


def reciprocal_rank_fusion(
    legs: Sequence[Floats], ids: Sequence[str], k: float = DEFAULTS.rrf_k
) -> Floats:
    """sum of 1 / (k + rank) over the legs, as a share of the most that can be had (0..1).

    Each leg (n,) in the order of `ids`; a score of 0 or less, or NaN, is no hit of that leg.
    Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion" (2009).
    """
    fused = np.zeros(len(ids))
    for leg in legs:
        scores = np.nan_to_num(leg)
        order = top(scores, ids, len(ids))
        ranks = np.empty(len(ids))
        ranks[order] = np.arange(1, len(ids) + 1)
        fused += np.where(scores > 0.0, 1.0 / (k + ranks), 0.0)
    return fused / (len(legs) / (k + 1.0))


# Neighbours


def propagate_to_neighbours(
    scores: Floats,
    sessions: Integers,
    positions: Integers,
    asks: Mask,
    weights: Sequence[tuple[int, float]] = DEFAULTS.neighbour_weights,
    asking_weight: float = DEFAULTS.asking_weight,
) -> Floats:
    """Returns each score (n,) raised by neighbouring turns with higher scores, to 1 at most.

    score + sum of w / (1 + w) x max(0, neighbour - score); `weights` are w by the neighbour's
    place, `asking_weight` that of the turn before where it `asks` (n,). `sessions` (n,) are
    numbers, below 0 for none; `positions` (n,) places in the session. Neighbours that are not among
    the rows raise nothing, so fetch those within reach of each hit first. Rows may come in any
    order; a (session, position) should occur once."""
    raised = scores.astype(np.float64, copy=True)
    rows = np.flatnonzero(sessions >= 0)
    if not len(rows) or not weights:
        return raised
    reach = max(abs(offset) for offset, _ in weights)
    # Gaps wider than the reach keep sessions apart on one number line.
    span = int(positions[rows].max()) - int(positions[rows].min()) + reach + 1
    session_places = np.unique(sessions[rows], return_inverse=True)[1]
    keys = session_places * span + (positions[rows] - positions[rows].min())
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    for offset, weight in weights:
        found = np.minimum(np.searchsorted(ordered, keys + offset), len(ordered) - 1)
        there = ordered[found] == keys + offset
        here, other = rows[there], rows[order[found[there]]]
        share = np.full(len(here), weight)
        if offset == -1:
            share[asks[other]] = asking_weight
        raised[here] += share / (1.0 + share) * np.maximum(scores[other] - scores[here], 0.0)
    return np.minimum(raised, 1.0)


def propagate_between(
    turns: Floats,
    facts: Floats,
    links: Integers,
    fact_to_turn: float = DEFAULTS.fact_to_turn,
    turn_to_fact: float = DEFAULTS.turn_to_fact,
) -> tuple[Floats, Floats]:
    """Scores of turns (t,) and facts (f,) after each has been propagated to the other.

    `links` (m, 2) pairs of turn and fact places. Turn: (own + w x its best fact) / (1 + w) where
    that is more than its own. Fact: (own + w x its best turn) / (1 + w). A fact without a turn
    keeps its own. For a turn and its facts shown as one result, take the turn's score.
    """
    if not len(links):
        return turns.astype(np.float64, copy=True), facts.astype(np.float64, copy=True)
    turn_places, fact_places = links[:, 0], links[:, 1]
    best_fact = np.full(len(turns), -np.inf)
    best_turn = np.full(len(facts), -np.inf)
    np.maximum.at(best_fact, turn_places, facts[fact_places])
    np.maximum.at(best_turn, fact_places, turns[turn_places])
    # Without a partner a score is its own partner: the mean of both is itself.
    best_fact = np.where(np.isfinite(best_fact), best_fact, turns)
    best_turn = np.where(np.isfinite(best_turn), best_turn, facts)
    raised = np.maximum(turns, (turns + fact_to_turn * best_fact) / (1.0 + fact_to_turn))
    return raised, (facts + turn_to_fact * best_turn) / (1.0 + turn_to_fact)


def preferring(scores: Floats, preferred: Mask, boost: float) -> Floats:
    """Scores (n,) where the query makes some memories more likely, as those of the one person whom
    it names. `preferred` (n,) keep their score, the others get score / (1 + boost), which orders as
    boosting would and stays in 0..1."""
    return np.where(preferred, scores, scores / (1.0 + boost))


# The final order


def past_end(scores: Floats, has_ended: Mask, factor: float = DEFAULTS.past_end_factor) -> Floats:
    """Scores (n,) with those of temporal memories past their end multiplied by `factor`."""
    return np.where(has_ended, scores * factor, scores)


def recency(age_days: Floats, half_life_days: float = DEFAULTS.recency_half_life_days) -> Floats:
    """0.5 ** (age / half-life), 1 for what is new or dated in the future."""
    return np.asarray(np.exp2(-np.maximum(age_days, 0.0) / half_life_days))


def frequency(accesses: Integers, full: int = DEFAULTS.frequency_full) -> Floats:
    """ln(1 + accesses) / ln(1 + full), limited to 1: the first accesses count most."""
    known: Floats = np.log1p(np.maximum(accesses, 0).astype(np.float64)) / np.log1p(full)
    return np.minimum(known, 1.0)


def profile(
    relevance: Floats, recent: Floats, important: Floats, frequent: Floats, weights: ProfileWeights
) -> Floats:
    """The weighted mean of four scores (n,), each 0..1. Raises ValueError unless the weights are
    non-negative and one is positive."""
    shares = (weights.relevance, weights.recency, weights.importance, weights.frequency)
    if min(shares) < 0.0 or sum(shares) <= 0.0:
        raise ValueError(f"profile weights must be >= 0 and not all 0, got {weights}")
    parts = zip(shares, (relevance, recent, important, frequent), strict=True)
    total = np.zeros(len(relevance))
    for share, part in parts:
        total += share * part
    return total / sum(shares)


def top(scores: Floats, ids: Sequence[str], k: int) -> Integers:
    """Places of the k best (fewer if there are fewer), best first, ties by id.

    Raises ValueError for a NaN: a missing score must be decided on, not sorted.
    """
    if np.isnan(scores).any():
        raise ValueError("a score is NaN")
    rounded = np.round(scores, TIE_DECIMALS)
    places = np.arange(len(rounded))
    if 0 < k < len(rounded):
        least = np.partition(rounded, len(rounded) - k)[len(rounded) - k]
        places = np.flatnonzero(rounded >= least)
    ranked = sorted(places.tolist(), key=lambda place: (-rounded[place], ids[place]))
    return np.asarray(ranked[: max(k, 0)], dtype=np.int64)
