"""What happens to the scores of a query, step by step, over one table of rows.

`STEPS` are all steps in order, from the scores of the two legs to the results; `RERANK_STEPS`
follow once the scores of reranking are known. A row is a memory of the pool, and what each step
adds to its score is kept under the step's name, so that the parts of a score add up to it. A new
step is a function here and its place in the list; formulas and their measured parameters are in
`stores.ranking`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from palimpsest.schemas.echoes import OPEN, spoken
from palimpsest.schemas.memory_texts import refers_to_speaker
from palimpsest.schemas.normal_forms import statement_key
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.segment import Floats, Integers, Mask, Segment, microseconds
from palimpsest.stores.ranking import (
    DEFAULTS,
    PROFILES,
    TIE_DECIMALS,
    ModelParameters,
    RankingParameters,
    frequency,
    past_end,
    preferring,
    profile,
    propagate_between,
    propagate_to_neighbours,
    recency,
    reciprocal_rank_fusion,
    top,
)
from palimpsest.stores.recall.intent import RequestedSpeaker
from palimpsest.stores.recall.rerank import Rerank, mmr, reranked
from palimpsest.stores.recall.time_words import TimeFilter, tells_time
from palimpsest.stores.settings import RecallSettings

BOOST_POOL: Final = 50
"""Results considered for a boost: up to this limit, the first ten do not depend on the limit."""
REPRESENTATIVE_SHARE: Final = 0.8
"""Minimum share of its turn's own score for a fact to be shown in its place. Chosen, not measured:
the score of the result is the turn's in either case."""
LEAST_WORDS: Final = 3
LEAST_BYTES: Final = 24
"""Either is enough for a text to be the same statement as another: some scripts have no spaces."""
LONGEST_STATEMENT: Final = 4_000
"""Characters. A longer text says the same as its exact repeat by the same person on the same day
only: reading hundreds of thousands of characters word by word would hold up every other caller."""
DAY: Final = 86_400_000_000.0
"""Microseconds."""


@dataclass(slots=True)
class Ranking:
    """The memories of a pool as rows, turns first; every array is (n,). A leg that is off is None;
    a memory without a vector is NaN in `vector`. `links` (m, 2) are the places of a turn among the
    turns and of a fact among the facts. `of_named` marks the rows of the one speaker whom the query
    names (None: it names none, or several)."""

    ids: list[str]
    turns: int
    meta: NDArray[np.void]
    keyword: Floats | None
    vector: Floats | None
    graph: Floats
    of_named: Mask | None
    links: Integers
    questions: Mask
    """The turns that ask something."""
    nearby: Mapping[int, Sequence[str]]
    """By offset in the session, the id of the turn that far from each turn; empty if there is none,
    or it may not be shown."""
    of_assistant: Mask | None = None
    """Turns of assistants, and memories derived only from such turns; None if none speaks."""
    only_questions: Mask | None = None
    """Turns of people that only ask; None if that is not known."""
    echoes: Mask | None = None
    """Turns that echo a context block; None if none does."""
    only_echoes: Mask | None = None
    """Those of them that say nothing else."""
    tells_time: Mask | None = None
    """Memories whose text tells a time; None if the query does not ask for one."""
    passage: Floats | None = None
    """Of some turns that no person said the score of the passage nearest to the query; else NaN."""
    scores: Floats = field(init=False)
    own: Floats = field(init=False)
    """The score by its own text alone."""
    recency: Floats = field(init=False)
    parts: dict[str, Floats] = field(default_factory=dict)
    """What each step added, by its name; NaN for a row that the step left alone."""
    results: list[int] = field(default_factory=list)
    """From `group` on: the rows that stand for results, best first, their scores to six digits."""
    groups: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Of each result the rows that it stands for, the one whose text is shown first."""

    repeats: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Of each result the rows of later ones that say the same in nearly the same words."""
    statements: dict[int, object] = field(default_factory=dict)
    """What two steps compare results by (`_statements`), as far as it is known."""

    def __post_init__(self) -> None:
        self.scores = self.own = np.zeros(len(self.ids))

    def rescore(self, name: str, scores: Floats) -> None:
        """Sets new scores of all rows, and records the differences."""
        self.parts[name] = scores - self.scores
        self.scores = scores

    def rescore_results(self, name: str, scores: Mapping[int, float]) -> None:
        """Sets new scores of results, limited to 1, and records the differences."""
        added = np.full(len(self.ids), np.nan)
        for row, score in scores.items():
            given = round(min(score, 1.0), TIE_DECIMALS)
            if given != self.scores[row]:
                added[row] = given - self.scores[row]
                self.scores[row] = given
        self.parts[name] = added

    def order(self) -> None:
        """The results by their scores, ties by id."""
        self.results.sort(key=lambda row: (-self.scores[row], self.shown_id(row)))

    def shown_id(self, result: int) -> str:
        """The id of the memory whose text a result shows."""
        return self.ids[self.groups[result][0]]


@dataclass(frozen=True, slots=True)
class RankingContext:
    """The input of the steps besides the rows. `now` is in microseconds since 1970; `graph` are
    strengths, 0..1 by memory id; `times` are those that the query prefers; `rerank` the scores of
    the first results. `by_tokens`: whether the vector leg compared token vectors. Results below
    `min_score` are left out. `speaker`: whose statements the question asks for."""

    index: ScopeIndex
    limit: int
    now: int
    settings: RecallSettings = RecallSettings()
    parameters: RankingParameters = DEFAULTS
    group: bool = True
    graph: Mapping[str, float] = field(default_factory=dict)
    times: TimeFilter | None = None
    time_bonus: float = 0.0
    rerank: Rerank = Rerank("off")
    by_tokens: bool = False
    min_score: float = 0.0
    speaker: RequestedSpeaker = "people"
    outdated: Callable[[Set[str]], Set[str]] = lambda ids: frozenset()
    """Which of these memories have statements that no longer hold."""

    @property
    def by_model(self) -> ModelParameters:
        return self.parameters.of_tokens if self.by_tokens else self.parameters.of_vectors

    @property
    def alpha(self) -> float:
        return self.by_model.alpha if self.settings.alpha is None else self.settings.alpha


Step = Callable[[Ranking, RankingContext], None]


# --- every memory of the pool -----------------------------------------------------------------


def fuse_legs(rows: Ranking, context: RankingContext) -> None:
    """Parts `keyword` and `vector`: alpha x vector + (1 - alpha) x keyword, or the one leg that
    there is; `rrf`: by the ranks in both. A memory without a vector has 0 there, so that one poor
    score never passes two good ones; its keyword counts as without token vectors."""
    fusion = context.settings.fusion
    if fusion == "keyword" and rows.keyword is not None:
        rows.vector = None
    if fusion == "vector" and rows.vector is not None:
        rows.keyword = None
    keyword, vector, parameters = rows.keyword, rows.vector, context.parameters
    if fusion == "rrf" and keyword is not None and vector is not None:
        rows.rescore("rrf", reciprocal_rank_fusion((keyword, vector), rows.ids, k=parameters.rrf_k))
    else:
        share = 1.0 if keyword is None else 0.0 if vector is None else context.alpha
        if keyword is not None:
            rest = np.full(len(keyword), 1.0 - share)
            if vector is not None and context.settings.alpha is None:
                rest[np.isnan(vector)] = 1.0 - parameters.of_vectors.alpha
            rows.rescore("keyword", rest * np.nan_to_num(keyword))
        if vector is not None:
            rows.rescore("vector", rows.scores + share * np.nan_to_num(vector))
    rows.own = rows.scores


def weigh_speakers(rows: Ranking, context: RankingContext) -> None:
    """Part `role`: statements of an assistant seldom answer, unless the question asks for them."""
    if rows.of_assistant is not None:
        speaker, parameters = context.speaker, context.parameters
        by_assistant = parameters.assistant_prior if speaker == "people" else 1.0
        by_people = parameters.people_prior if speaker == "assistant" else 1.0
        priors = np.where(rows.of_assistant, by_assistant, by_people)
        rows.rescore("role", rows.scores * priors)


def lower_echoes(rows: Ranking, context: RankingContext) -> None:
    """Part `echoes`: what a turn echoes is found in its own place."""
    if rows.echoes is not None and rows.only_echoes is not None:
        priors = np.where(rows.echoes, context.parameters.echo_prior, 1.0)
        priors[rows.only_echoes] = context.parameters.only_echo_prior
        rows.rescore("echoes", rows.scores * priors)


def propagate_facts(rows: Ranking, context: RankingContext) -> None:
    """Part `facts`: between turns and the facts derived from them."""
    turns, parameters = rows.turns, context.parameters
    both = propagate_between(
        rows.scores[:turns],
        rows.scores[turns:],
        rows.links,
        parameters.fact_to_turn,
        parameters.turn_to_fact,
    )
    rows.rescore("facts", np.concatenate(both))


def propagate_neighbours(rows: Ranking, context: RankingContext) -> None:
    """Part `neighbours`: from higher-scored turns next to a turn in its session. A question raises
    the assistant's answer only if the query may ask for it."""
    turns, parameters = rows.turns, context.parameters
    propagated = propagate_to_neighbours(
        rows.scores[:turns],
        rows.meta["session"][:turns].astype(np.int64),
        rows.meta["position"][:turns].astype(np.int64),
        rows.questions,
        parameters.neighbour_weights,
        parameters.asking_weight,
    )
    if rows.of_assistant is not None and context.speaker == "people":
        propagated = np.where(rows.of_assistant[:turns], rows.scores[:turns], propagated)
    rows.rescore("neighbours", np.concatenate((propagated, rows.scores[turns:])))


def lower_questions(rows: Ranking, context: RankingContext) -> None:
    """Part `questions`: a turn that only asks is no answer, unless the assistant's is requested."""
    if rows.only_questions is not None and context.speaker != "assistant":
        prior = context.parameters.question_prior
        lowered = np.where(rows.only_questions, rows.scores * prior, rows.scores)
        rows.rescore("questions", lowered)


def boost_speaker(rows: Ranking, context: RankingContext) -> None:
    """Part `named`: memories of the one person whom the query names."""
    if rows.of_named is not None:
        boost = context.parameters.named_boost
        rows.rescore("named", preferring(rows.scores, rows.of_named, boost))


def prefer_told_times(rows: Ranking, context: RankingContext) -> None:
    """Part `when`: memories that tell a time, where the query asks when."""
    if rows.tells_time is not None:
        weight = context.settings.when_weight
        rows.rescore("when", preferring(rows.scores, rows.tells_time, weight))


def lower_ended(rows: Ranking, context: RankingContext) -> None:
    """Part `ended`: memories whose end is past."""
    ended = rows.meta["ends"] <= context.now
    if ended.any():
        rows.rescore("ended", past_end(rows.scores, ended, context.parameters.past_end_factor))


def weigh_profile(rows: Ranking, context: RankingContext) -> None:
    """Part `profile`: relevance combined with recency, importance and frequency, if so set."""
    parameters = context.parameters
    weights, meta = PROFILES[context.settings.profile], rows.meta
    age = (context.now - meta["occurred"]) / DAY
    rows.recency = recency(age, parameters.recency_half_life_days)
    if weights.recency or weights.importance or weights.frequency:
        often = frequency(meta["accesses"], parameters.frequency_full)
        important = np.maximum(meta["importance"], meta["pinned"])
        scores = profile(rows.scores, rows.recency, important, often, weights)
        # What matches nothing is not found for being new.
        rows.rescore("profile", np.where(rows.scores > 0.0, scores, 0.0))


def lift_passage(rows: Ranking, context: RankingContext) -> None:
    """Part `passage`: of the turns that no person said, the one whose passage is nearest to the
    query counts without the prior of its role where no more than one result is nearer, but never
    passes the best results."""
    rank = context.parameters.passage_rank
    if rows.passage is None or not rank or np.isnan(rows.passage).all():
        return
    nearest = np.nan_to_num(rows.passage)
    best = top(nearest, rows.ids, 1)[0]
    own = context.alpha * nearest[best]
    if rows.keyword is not None:
        own += (1.0 - context.alpha) * rows.keyword[best]
    heads = np.ones(len(rows.ids), dtype=np.bool_)
    heads[best] = False
    if context.group:
        heads[_grouped_facts(rows)[1]] = False
    others = np.sort(rows.scores[heads])[::-1]
    below, above = (others[n] if n < len(others) else 0.0 for n in (rank - 1, rank - 2))
    if own > max(others[1:2], default=0.0):
        scores = rows.scores.copy()
        scores[best] = max(scores[best], min(own, (below + above) / 2.0))
        rows.rescore("passage", scores)


# --- the results ------------------------------------------------------------------------------


def group(rows: Ranking, context: RankingContext) -> None:
    """Makes results of the best rows, ties by id.

    Grouped, a turn and the facts derived from it are one result, with the turn's score. It shows
    the text of the best fact, unless that covers much less of the query than the turn. A fact of
    several turns is grouped with the best of them. Results that repeat others do not count.
    """
    nothing = np.zeros(0, dtype=np.int64)
    turns, facts = _grouped_facts(rows) if context.group else (nothing, nothing)
    heads = np.ones(len(rows.ids), dtype=np.bool_)
    heads[facts] = False
    places = np.flatnonzero(heads)
    ids = [rows.ids[place] for place in places.tolist()]
    boosted = bool(context.graph) or context.times is not None
    count = max(context.limit, BOOST_POOL) if boosted else context.limit
    taken = count
    while True:
        rows.results = places[top(rows.scores[places], ids, taken)].tolist()
        for head in (row for row in rows.results if row not in rows.groups):
            rows.scores[head] = round(float(rows.scores[head]), TIE_DECIMALS)
            own = facts[turns == head].tolist()
            own.sort(key=lambda fact: (-round(float(rows.own[fact]), TIE_DECIMALS), rows.ids[fact]))
            covers = bool(own) and rows.own[own[0]] >= REPRESENTATIVE_SHARE * rows.own[head]
            # The one whose text is shown first.
            rows.groups[head] = (own[0], head, *own[1:]) if covers else (head, *own)
        if not context.group or len(rows.results) == len(places):
            return
        if len(set(_statements(rows, context).values())) >= count:
            return
        taken *= 2


def boost_graph(rows: Ranking, context: RankingContext) -> None:
    """Part `graph`: memories that the graph supports, themselves or by a turn that they were
    derived from."""
    if not context.graph:
        return
    strengths, derived_from = context.graph, context.index.derived_from
    scores = {}
    with context.index.lock:
        for row in rows.results:
            shown = rows.shown_id(row)
            reached = (strengths.get(each, 0.0) for each in (shown, *derived_from.get(shown, ())))
            scores[row] = float(rows.scores[row]) * (
                1.0 + context.settings.graph_weight * max(reached)
            )
    rows.rescore_results("graph", scores)
    if rows.graph.any():
        rows.parts["graph"] = np.nan_to_num(rows.parts["graph"])
    rows.order()


def boost_times(rows: Ranking, context: RankingContext) -> None:
    """Part `times`: memories dated in the times that the query names; the others are lowered."""
    times = context.times
    if times is None:
        return
    bonus = 1.0 + context.time_bonus
    since = None if times.since is None else microseconds(times.since)
    until = None if times.until is None else microseconds(times.until)
    scores = {}
    for row in rows.results:
        occurred = int(rows.meta["occurred"][rows.groups[row][0]])
        then = (since is None or occurred >= since) and (until is None or occurred < until)
        scores[row] = float(rows.scores[row]) * (1.0 if then else 1.0 / bonus)
    rows.rescore_results("times", scores)
    rows.order()


def collapse_repeats(rows: Ranking, context: RankingContext) -> None:
    """Leaves one of the results that say the same in nearly the same words, the best, unless one
    holds and the other no longer does."""
    if not context.group:
        return
    said = _statements(rows, context)
    often = Counter(said.values())
    alike = {rows.shown_id(row) for row, key in said.items() if often[key] > 1}
    outdated = context.outdated(alike) if alike else frozenset()
    first: dict[tuple[object, bool], int] = {}
    for row in rows.results:
        head = first.setdefault((said[row], rows.shown_id(row) in outdated), row)
        if head != row:
            rows.repeats[head] = (*rows.repeats.get(head, ()), row)
    later = set(chain.from_iterable(rows.repeats.values()))
    rows.results = [row for row in rows.results if row not in later]


def limit_results(rows: Ranking, context: RankingContext) -> None:
    """Cuts at the minimum score and the limit. Only now: the first ten are the same whether ten or
    fifty are requested."""
    if context.min_score > 0.0:
        rows.results = [row for row in rows.results if rows.scores[row] >= context.min_score]
    del rows.results[context.limit :]


def rerank_first(rows: Ranking, context: RankingContext) -> None:
    """Part `rerank`: the first results, by the scores of reranking as well."""
    rerank, parameters = context.rerank, context.parameters
    if not rerank.scores:
        return
    by_pairs = rerank.by == "cross-encoder"
    weight = parameters.cross_encoder_weight if by_pairs else parameters.cosine_weight
    order, given = reranked(rows.scores[rows.results].tolist(), rerank.scores, weight)
    rows.rescore_results("rerank", dict(zip(rows.results, given, strict=False)))
    rows.results = [rows.results[place] for place in order]


def vary(rows: Ranking, context: RankingContext) -> None:
    """Orders the first results by MMR; those without a vector are unlike all others."""
    if not context.settings.mmr:
        return
    first = rows.results[: context.settings.rerank_top_n]
    vectors = context.index.vectors_of([rows.shown_id(row) for row in first])
    order = mmr(rows.scores[first].tolist(), vectors, context.parameters.mmr_relevance)
    rows.results[: len(first)] = [first[place] for place in order]


STEPS: Final[tuple[Step, ...]] = (
    fuse_legs,
    weigh_speakers,
    lower_echoes,
    propagate_facts,
    propagate_neighbours,
    lower_questions,
    boost_speaker,
    prefer_told_times,
    lower_ended,
    weigh_profile,
    lift_passage,
    group,
    boost_graph,
    boost_times,
    collapse_repeats,
    limit_results,
)
RERANK_STEPS: Final[tuple[Step, ...]] = (rerank_first, vary, limit_results)


def run(steps: Sequence[Step], rows: Ranking, context: RankingContext) -> None:
    for step in steps:
        step(rows, context)


def _grouped_facts(rows: Ranking) -> tuple[Integers, Integers]:
    """The facts that are grouped with a turn, each once, and that turn: (turns, facts) as rows."""
    turns, facts = rows.links[:, 0], rows.turns + rows.links[:, 1]
    # The best turn of each fact first, equal ones by id: places differ after a restart.
    ids = np.array([rows.ids[turn] for turn in turns.tolist()], dtype=np.str_)
    order = np.lexsort((ids, -np.round(rows.scores[turns], TIE_DECIMALS), facts))
    turns, facts = turns[order], facts[order]
    first = np.ones(len(facts), dtype=np.bool_)
    first[1:] = facts[1:] != facts[:-1]
    return turns[first], facts[first]


def _statements(rows: Ranking, context: RankingContext) -> dict[int, object]:
    """By result, what is equal for those that say the same: words with who says them, if they speak
    of that person, and with their day, if they tell a time as "yesterday". Few words are never the
    same: a "yes" answers what was asked. Of echoes alone one is as good as another."""
    index, known = context.index, rows.statements
    with index.lock:
        for row in rows.results:
            if row not in known:
                found = index.find(rows.shown_id(row))
                known[row] = row if found is None else _statement(index, *found, row, context.now)
    return {row: known[row] for row in rows.results}


def _statement(index: ScopeIndex, segment: Segment, place: int, row: int, now: int) -> object:
    text = segment.contents[place]
    said = spoken(text)
    if text and not said:
        return OPEN
    is_long = len(said) > LONGEST_STATEMENT
    words = said if is_long else statement_key(said)
    if words.count(" ") + 1 < LEAST_WORDS and len(words.encode()) < LEAST_BYTES:
        return row
    who = (segment.name(place, "who"), segment.name(place, "role"))
    day = index.said_at(segment, place).date() if is_long or tells_time(said) else None
    has_ended = bool(segment.meta[place]["ends"] <= now)
    return words, who if is_long or refers_to_speaker(said) else None, day, has_ended
