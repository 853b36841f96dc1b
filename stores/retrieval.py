"""Retrieval as a whole: what is asked, when, about whom; then recall, what belongs to it, context.

intent -> time filters -> graph boost -> `Recall.search` -> strategies -> a second look, if that is
on -> context. Every part tells what it did (`Retrieval.explain`).
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final, ParamSpec, Protocol, TypeVar

import numpy as np

from stores.context import Context, Line, Section, assemble
from stores.graph_boost import GraphBoost, Milliseconds, NamedEntity, graph_boost
from stores.intent import Complexity, Exemplars, IntentGuess, Vector, classify, complexity
from stores.recall import Recall, RecallShard, utc_now
from stores.recall_filter import Allowed
from stores.recall_types import Query, RecallAnswer, RecallResult
from stores.rerank import Reranked, TextEmbedding, mmr, rerank
from stores.retrieval_rows import profile_lines, read_related, said, source_lines
from stores.retrieval_types import (
    Explained,
    Related,
    Retrieval,
    RetrievalSettings,
    TimesUsed,
)
from stores.strategies import Hit, additions
from stores.time_words import TimeFilter, read_times

__all__ = ["Retrieval", "RetrievalSettings", "Retriever"]


FAVOUR_POOL = 50
"""Results among which some are favoured: the first ten do not depend on the limit up to this."""

_WORD = re.compile(r"[^\W_]")


class Searcher(Protocol):
    """`stores.recall.Recall`, as far as it is needed here."""

    def search(
        self, query: Query, vector: Vector | None = None, graph: Mapping[str, float] = ...
    ) -> RecallAnswer: ...


SEARCH_THREADS: Final = ThreadPoolExecutor(max(2, os.cpu_count() or 1), "search")
"""No more searches at once than the machine can compute: more of them answer no more queries, and
take the interpreter from the stages (16 at once left a writer a third of its pace)."""


P = ParamSpec("P")
T = TypeVar("T")


async def _in_search_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    work = partial(call, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(SEARCH_THREADS, work)


def monotonic_ms() -> float:
    return time.monotonic() * 1000.0


class Retriever:
    """Retrievals from one shard; may be used by any thread.

    `exemplars` are asked where no word tells the intent, and `model` makes the vectors of a second
    look (None: neither takes place); `clock` tells
    what "last week" is reckoned from (a query's `as_of` comes before it), in the zone whose days
    are meant; `milliseconds` measures the graph's deadline.
    """

    def __init__(
        self,
        shard: RecallShard,
        settings: RetrievalSettings | None = None,
        recall: Searcher | None = None,
        exemplars: Exemplars | None = None,
        model: TextEmbedding | None = None,
        clock: Callable[[], datetime] = utc_now,
        milliseconds: Milliseconds = monotonic_ms,
    ) -> None:
        self._shard = shard
        self._settings = settings or RetrievalSettings()
        # The graph's hits enter recall's pool; what they are worth is decided here, by their score.
        chosen = self._settings
        self._recall = recall or Recall(shard, chosen.ranking, chosen.fusion, 0.0, clock)
        self._exemplars = exemplars
        self._model = model
        self._clock = clock
        self._milliseconds = milliseconds

    def search(self, query: Query, vector: Vector | None = None) -> Retrieval:
        """A retrieval without the second look. Raises what `Recall.search` raises."""
        intent = classify(query.text, vector, self._exemplars)
        effort = complexity(query.text)
        boost = self._boost(query)
        answer, timed, times, used = self._within_times(query, vector, boost)
        related = self._related(timed, intent, effort, answer, boost.named)
        explained = Explained(
            intent=intent,
            complexity=effort,
            times=times,
            times_used=used,
            since=timed.since,
            until=timed.until,
            entities=tuple(entity.name for entity in boost.named),
            boosted=len(boost.hits),
            timed_out=boost.timed_out,
            error=boost.error,
            reranked="off",
        )
        return Retrieval(answer, related, boost.named, explained)

    async def retrieve(self, query: Query, vector: Vector | None = None) -> Retrieval:
        """A retrieval with the second look, where that is on. The search runs in a thread.

        The first `top_n` are looked at again whatever the limit, so that the first ten are the
        same whether ten or fifty are asked for.
        """
        settings = self._settings.rerank
        if settings.method == "off" and not settings.mmr:
            return await _in_search_thread(self.search, query, vector)
        wider = replace(query, limit=max(query.limit, settings.top_n))
        found = await _in_search_thread(self.search, wider, vector)
        results = found.answer.results
        second = await rerank(
            vector,
            [result.score for result in results],
            [result.content for result in results],
            self._model,
            settings,
        )
        ordered = _ordered(results, second)
        method = found.answer.method
        if second.applied:
            method += f"+{second.reason}"
        if settings.mmr and ordered:
            ordered = await _in_search_thread(self._varied, query.scope, ordered)
            method += "+mmr"
        answer = replace(found.answer, method=method, results=tuple(ordered[: query.limit]))
        return replace(
            found, answer=answer, explained=replace(found.explained, reranked=second.reason)
        )

    async def context(
        self, query: Query, vector: Vector | None = None, budget: int | None = None
    ) -> Context | None:
        """What is known about a query as a Markdown block of at most `budget` tokens; None when
        nothing matches. Limit and budget are those of the query's complexity, but for a budget
        that is given. A turn is shown with the turns beside it."""
        effort = complexity(query.text)
        asked = replace(
            query, limit=effort.limit, neighbours=self._settings.context_neighbours, explain=False
        )
        found = await self.retrieve(asked, vector)
        if not found.results and not found.related:
            return None
        return await _in_search_thread(
            self.assembled, query, found, effort.budget if budget is None else budget
        )

    def assembled(self, query: Query, found: Retrieval, budget: int) -> Context | None:
        """The context of what a query found. Facts are what was drawn from turns or written by
        someone; the timeline holds the turns that were found, those beside them and those that the
        intent adds; evidence are the turns that the facts were drawn from."""
        ids = [result.id for result in found.results]
        scope, told = query.scope, found.explained
        timed = replace(query, since=told.since, until=told.until)
        allowed = Allowed.by(self._shard.indexes.get(scope), timed)
        with self._shard.reading() as reader:
            profiles = profile_lines(
                reader, scope, found.named, ids, self._settings.context_profiles
            )
            evidence = source_lines(reader, scope, found.results, allowed)
        sections: dict[Section, list[Line]] = {
            "facts": [],
            "entities": profiles,
            "timeline": [],
            "evidence": evidence,
        }
        for result in found.results:
            sections[_section(result.type)] += _result_lines(result)
        for related in found.related:
            sections[_section(related.type)].append(_related_line(related))
        return assemble(sections, budget, self._settings.context)

    # --- the parts --------------------------------------------------------------------------

    def _boost(self, query: Query) -> GraphBoost:
        language = self._shard.options.search.language
        with self._shard.reading() as reader:
            return graph_boost(
                reader, query.scope, query.text, self._milliseconds, self._settings.boost, language
            )

    def _within_times(
        self, query: Query, vector: Vector | None, boost: GraphBoost
    ) -> tuple[RecallAnswer, Query, TimeFilter, TimesUsed]:
        """The answer, the query with the times searched in, the times read and what they did."""
        settings = self._settings
        times = TimeFilter()
        # Who gives times as filters has said what is meant.
        if settings.time_words != "off" and query.since is None and query.until is None:
            times = read_times(query.text, query.as_of or self._clock())
        if not times:
            return self._recalled(query, vector, boost), query, times, "none"
        if settings.time_words == "prefer" and not times.strict:
            return self._recalled(query, vector, boost, times), query, times, "prefer"
        timed = replace(query, since=times.since, until=times.until)
        # Words that became a filter are not looked for in texts, unless they are all there is.
        asked = replace(timed, text=times.rest) if _WORD.search(times.rest) else timed
        answer = self._recalled(asked, vector, boost)
        if len(answer.results) >= settings.least_in_time:
            return replace(answer, query=query.text), timed, times, "filter"
        return self._recalled(query, vector, boost), query, times, "widened"

    def _recalled(
        self,
        query: Query,
        vector: Vector | None,
        boost: GraphBoost,
        times: TimeFilter | None = None,
    ) -> RecallAnswer:
        """Recall's answer with what the graph supports and what was told then favoured."""
        if not boost.hits and times is None:
            return self._recall.search(query, vector)
        wider = replace(query, limit=max(query.limit, FAVOUR_POOL))
        answer = self._recall.search(wider, vector, boost.strengths)
        strengths, weight = boost.strengths, self._settings.boost.weight
        results = scaled(answer.results, "graph", lambda r: 1.0 + weight * _strength(r, strengths))
        if times is not None:
            bonus = 1.0 + self._settings.time_bonus
            results = scaled(
                results, "times", lambda r: 1.0 if _told_then(r, times) else 1.0 / bonus
            )
        return replace(answer, results=tuple(results[: query.limit]))

    def _related(
        self,
        query: Query,
        intent: IntentGuess,
        effort: Complexity,
        answer: RecallAnswer,
        named: Sequence[NamedEntity],
    ) -> tuple[Related, ...]:
        if not self._settings.use_strategies or intent.intent == "general":
            return ()
        hits = [Hit(result.id, result.score) for result in answer.results]
        allowed = Allowed.by(self._shard.indexes.get(query.scope), query)
        with self._shard.reading() as reader:
            found = additions(
                reader,
                query.scope,
                intent.intent,
                hits,
                named,
                effort.depth,
                self._settings.strategies,
                allowed,
            )
            return read_related(reader, query.scope, found)

    def _varied(self, scope: str, results: list[RecallResult]) -> list[RecallResult]:
        """The first `top_n` in the order of MMR; those without a vector are unlike all others."""
        settings = self._settings.rerank
        first = results[: settings.top_n]
        index = self._shard.indexes.get(scope)
        vectors = np.zeros((len(first), self._shard.options.dimensions), dtype=np.float32)
        with index.lock:
            for place, result in enumerate(first):
                for part in index.parts:
                    there = part.place_of.get(result.id)
                    if there is not None:
                        vectors[place] = part.vectors[there]
        order = mmr([result.score for result in first], vectors, settings.mmr_relevance)
        return [*(first[place] for place in order), *results[settings.top_n :]]


# --- favouring ------------------------------------------------------------------------------


def scaled(
    results: Sequence[RecallResult], part: str, factor: Callable[[RecallResult], float]
) -> list[RecallResult]:
    """The results with their scores multiplied (at most 1), in their new order, ties by id. Where
    scores are explained, what that adds or takes is the part of this name."""
    changed = [_rescored(result, result.score * factor(result), part) for result in results]
    return sorted(changed, key=lambda result: (-result.score, result.id))


def _rescored(result: RecallResult, score: float, part: str) -> RecallResult:
    """The result with another score, at most 1; what that adds or takes is the part."""
    score = round(min(score, 1.0), 6)
    if score == result.score:
        return result
    told = result.explanation
    if told is not None:
        difference = told.parts.get(part, 0.0) + score - result.score
        told = replace(told, parts={**told.parts, part: round(difference, 9)})
    return replace(result, score=score, explanation=told)


def _ordered(results: Sequence[RecallResult], second: Reranked) -> list[RecallResult]:
    """The results in their new order, with the scores that it comes from."""
    score_of = dict(enumerate(second.scores))
    return [
        _rescored(results[place], score_of.get(place, results[place].score), "rerank")
        for place in second.order
    ]


def _strength(result: RecallResult, strengths: Mapping[str, float]) -> float:
    """What the graph gives a result or the turns that it was drawn from."""
    return max(strengths.get(memory_id, 0.0) for memory_id in (result.id, *result.derived_from))


def _told_then(result: RecallResult, times: TimeFilter) -> bool:
    at = result.occurred_at
    return (times.since is None or at >= times.since) and (times.until is None or at < times.until)


# --- lines ----------------------------------------------------------------------------------


def _result_lines(result: RecallResult) -> list[Line]:
    """A result, and of a turn also those beside it."""
    if result.type != "episodic":
        return [Line(result.id, result.content, result.occurred_at)]
    own = Line(result.id, said(result.who, result.content), result.occurred_at)
    beside = [Line(n.id, said(n.who, n.content), n.occurred_at) for n in result.neighbours]
    return [own, *beside]


def _section(memory_type: str) -> Section:
    return "timeline" if memory_type == "episodic" else "facts"


def _related_line(related: Related) -> Line:
    who = related.who if related.type == "episodic" else ""
    return Line(related.id, said(who, related.content), related.occurred_at)
