"""From a pool to an order: the steps of `stores.ranking` over turns and facts together.

Every step's effect on every score is kept, so that the parts of a score add up to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stores.part import Floats, Integers, Mask
from stores.ranking import (
    TIE_DECIMALS,
    RankingParameters,
    blend,
    favour_named,
    frequency,
    lend_between,
    lend_to_neighbours,
    past_end,
    profile,
    recency,
    reciprocal_rank_fusion,
    top,
    worth_showing,
)
from stores.recall_pool import Members, Pool
from stores.recall_types import Fusion

FACE_SHARE = 0.8
"""Share of its turn's own score that a fact needs to be shown in its place. Chosen, not measured:
the score of the result is the turn's either way."""

_NONE: Integers = np.zeros(0, dtype=np.int64)

DAY = 86_400_000_000.0
"""Microseconds."""


@dataclass(slots=True)
class Ranked:
    """Every memory of the pool, turns first: `scores` (n,) and what each step added to them."""

    ids: list[str]
    turns: int
    scores: Floats
    keyword: Floats | None
    vector: Floats | None
    graph: Floats
    recency: Floats
    importance: Floats
    shown: Mask
    is_hit: Mask
    own: Floats
    """The score by its own text alone."""
    steps: dict[str, Floats] = field(default_factory=dict)

    def step(self, name: str, scores: Floats) -> None:
        """Take new scores, noting what they differ by."""
        self.steps[name] = scores - self.scores
        self.scores = scores


def rank(
    pool: Pool, parameters: RankingParameters, fusion: Fusion, graph_weight: float, now: int
) -> Ranked:
    """Score the pool. `now` is in microseconds since 1970; `graph_weight` is what a full hit of
    the graph adds."""
    ranked = _start(pool, parameters, fusion, now)
    turns, facts = pool.turns, pool.facts
    lent = lend_between(
        ranked.scores[: len(turns)],
        ranked.scores[len(turns) :],
        pool.links,
        parameters.fact_to_turn,
        parameters.turn_to_fact,
    )
    ranked.step("facts", np.concatenate(lent))
    beside = lend_to_neighbours(
        ranked.scores[: len(turns)],
        turns.meta["session"].astype(np.int64),
        turns.meta["position"].astype(np.int64),
        parameters.neighbour_weights,
    )
    ranked.step("neighbours", np.concatenate((beside, ranked.scores[len(turns) :])))
    if pool.names_speaker:
        named = np.concatenate((turns.of_named, facts.of_named))
        ranked.step("named", favour_named(ranked.scores, named, parameters.named_boost))
    if ranked.graph.any():
        ranked.step("graph", np.minimum(ranked.scores + graph_weight * ranked.graph, 1.0))
    _finish(pool, ranked, parameters, now)
    return ranked


def _start(pool: Pool, parameters: RankingParameters, fusion: Fusion, now: int) -> Ranked:
    both = (pool.turns, pool.facts)
    keyword = _joined([members.keyword for members in both])
    vector = _joined([members.vector for members in both])
    if fusion == "keyword" and keyword is not None:
        vector = None
    if fusion == "vector" and vector is not None:
        keyword = None
    ids = pool.turns.ids + pool.facts.ids
    occurred = _column(both, "occurred")
    ranked = Ranked(
        ids=ids,
        turns=len(pool.turns),
        scores=np.zeros(len(ids)),
        keyword=keyword,
        vector=vector,
        graph=np.concatenate([members.graph for members in both]),
        recency=recency((now - occurred) / DAY, parameters.recency_half_life_days),
        importance=_column(both, "importance").astype(np.float64),
        shown=np.concatenate([members.is_wanted for members in both]),
        is_hit=np.concatenate([members.is_hit for members in both]),
        own=np.zeros(len(ids)),
    )
    legs = [leg for leg in (keyword, vector) if leg is not None]
    if not legs:
        ranked.shown[:] = False
    elif fusion == "rrf" and len(legs) == 2:
        ranked.step("rrf", reciprocal_rank_fusion(legs, ids, k=parameters.rrf_k))
    else:
        share = 1.0 if keyword is None else 0.0 if vector is None else parameters.alpha
        if keyword is not None:
            ranked.step("keyword", (1.0 - share) * np.nan_to_num(keyword))
        if vector is not None:
            ranked.step("vector", ranked.scores + share * np.nan_to_num(vector))
        # The same as `blend`, one leg after the other, so that each leg's part can be told.
        assert np.allclose(ranked.scores, blend(vector, keyword, parameters.alpha))
    ranked.own = ranked.scores
    return ranked


def _finish(pool: Pool, ranked: Ranked, parameters: RankingParameters, now: int) -> None:
    both = (pool.turns, pool.facts)
    ended = _column(both, "ends") <= now
    if ended.any():
        ranked.step("ended", past_end(ranked.scores, ended, parameters.past_end_factor))
    weights = parameters.weights
    if weights.recency or weights.importance or weights.frequency:
        often = frequency(_column(both, "accesses").astype(np.int64), parameters.frequency_full)
        scores = profile(ranked.scores, ranked.recency, ranked.importance, often, weights)
        # What matches nothing is not found for being new.
        ranked.step("profile", np.where(ranked.scores > 0.0, scores, 0.0))
    enough = worth_showing(ranked.scores, parameters.min_score, parameters.answer_floor)
    ranked.shown &= enough & (ranked.scores > 0.0)


def leg_ranks(leg: Floats | None, ids: Sequence[str]) -> list[int | None]:
    """Place of each memory in a leg, from 1; None where it is no hit of it."""
    if leg is None:
        return [None] * len(ids)
    scores = np.nan_to_num(leg)
    ranks: list[int | None] = [None] * len(ids)
    for rank_, place in enumerate(top(scores, ids, len(ids)).tolist(), start=1):
        if scores[place] > 0.0:
            ranks[place] = rank_
    return ranks


@dataclass(frozen=True, slots=True)
class Chosen:
    """A result before its row is read: the memory whose text is shown, the score, and the other
    memories that it stands for, as places in the ranking."""

    face: int
    score: float
    others: tuple[int, ...] = ()


def choose(pool: Pool, ranked: Ranked, limit: int, group: bool) -> list[Chosen]:
    """The best results, best first, ties by id.

    Grouped, a turn and the facts drawn from it that are hits themselves are one, with the turn's
    score. The best fact's text is shown, unless it says much less of what was asked than the turn
    does. A fact of several turns goes with the best of them.
    """
    heads = ranked.shown.copy()
    turns, facts = _joined_facts(pool, ranked) if group else (_NONE, _NONE)
    heads[facts] = False
    places = np.flatnonzero(heads)
    ids = [ranked.ids[place] for place in places.tolist()]
    best = places[top(ranked.scores[places], ids, limit)]
    return [
        _faced(ranked, head, facts[turns == head].tolist() if group else [])
        for head in best.tolist()
    ]


def _joined_facts(pool: Pool, ranked: Ranked) -> tuple[Integers, Integers]:
    """Facts that go with a turn of theirs, each once, and that turn: places in the ranking."""
    turns, facts = pool.links[:, 0], ranked.turns + pool.links[:, 1]
    joined = ranked.shown[turns] & ranked.shown[facts] & ranked.is_hit[facts]
    turns, facts = turns[joined], facts[joined]
    # The best turn of each fact first, equal ones by id: places differ after a restart.
    ids = np.array([ranked.ids[turn] for turn in turns.tolist()], dtype=np.str_)
    order = np.lexsort((ids, -np.round(ranked.scores[turns], TIE_DECIMALS), facts))
    turns, facts = turns[order], facts[order]
    first = np.ones(len(facts), dtype=np.bool_)
    first[1:] = facts[1:] != facts[:-1]
    return turns[first], facts[first]


def _faced(ranked: Ranked, head: int, facts: list[int]) -> Chosen:
    facts.sort(key=lambda fact: (-round(float(ranked.own[fact]), TIE_DECIMALS), ranked.ids[fact]))
    speaks = bool(facts) and ranked.own[facts[0]] >= FACE_SHARE * ranked.own[head]
    face = facts[0] if speaks else head
    others = tuple(member for member in (head, *facts) if member != face)
    return Chosen(face, float(ranked.scores[head]), others)


def _joined(legs: Sequence[Floats | None]) -> Floats | None:
    there = [leg for leg in legs if leg is not None]
    return np.concatenate(there) if there else None


def _column(both: Sequence[Members], name: str) -> np.ndarray:
    return np.concatenate([members.meta[name] for members in both])
