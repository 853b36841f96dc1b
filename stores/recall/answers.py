"""Measured constants and results of a retrieval, as plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal, TypeVar

from palimpsest.stores.ranking import DEFAULTS as RANKING
from palimpsest.stores.ranking import RankingParameters
from palimpsest.stores.recall.context import ContextSettings
from palimpsest.stores.recall.filters import VisibilityMask
from palimpsest.stores.recall.graph import LIMITS, GraphBoost, GraphBoostLimits
from palimpsest.stores.recall.intent import Complexity, Intent, IntentGuess
from palimpsest.stores.recall.query import Mark, Neighbour, RecallAnswer, RecallResult
from palimpsest.stores.recall.strategies import Related, StrategySettings
from palimpsest.stores.recall.time_words import TimeFilter

ShownT = TypeVar("ShownT", RecallResult, Neighbour, Related)
TimesUsed = Literal["none", "prefer", "filter", "widened"]


@dataclass(frozen=True, slots=True)
class RetrievalConstants:
    """Constants that are not set (`RecallSettings`) but measured or chosen. Where the times of a
    sentence are preferred, others' scores are divided by 1 + `time_bonus`, because what happened in
    May may be mentioned in June. A time filter that leaves fewer than `least_in_time` results is
    dropped, and reported as dropped.

    A context chooses among `context_limit` results, and has room for `context_neighbours` turns on
    each side of a turn."""

    ranking: RankingParameters = RANKING
    time_bonus: float = 0.25
    least_in_time: int = 1
    boost: GraphBoostLimits = LIMITS
    strategies: StrategySettings = StrategySettings()
    context: ContextSettings = ContextSettings()
    context_limit: int = 100
    context_neighbours: int = 1


CONSTANTS: Final = RetrievalConstants()


@dataclass(frozen=True, slots=True)
class Explained:
    """How a retrieval went. `times` are those that the query's words name and `times_used` their
    effect (`widened`: as a filter they left too few results); `since` and `until` are the filter
    searched with. `boost` has the entities that the query names. `reranked` reports what reranking
    did, or why it did nothing."""

    intent: IntentGuess
    complexity: Complexity
    times: TimeFilter
    times_used: TimesUsed
    since: datetime | None
    until: datetime | None
    boost: GraphBoost
    reranked: str


@dataclass(frozen=True, slots=True)
class Retrieval:
    """`related` is what the intent adds, best first; `allowed` is what the query may show, also of
    later reads."""

    answer: RecallAnswer
    related: tuple[Related, ...]
    explained: Explained
    allowed: VisibilityMask

    def shown_ids(self) -> set[str]:
        """The ids of all memories shown."""
        near = {each.id for result in self.results for each in result.neighbours}
        return near | {each.id for each in self.results} | {each.id for each in self.related}

    def corrected(
        self, marks: Mapping[str, tuple[Mark, ...]], texts: Mapping[str, str]
    ) -> Retrieval:
        """The same with these marks and earlier texts, which have no marks, both by id."""

        def changed(each: ShownT) -> ShownT:
            if each.id in texts:
                return replace(each, content=texts[each.id])
            return replace(each, marks=marks[each.id]) if each.id in marks else each

        results = tuple(
            replace(changed(result), neighbours=tuple(map(changed, result.neighbours)))
            for result in self.results
        )
        answer = replace(self.answer, results=results)
        return replace(self, answer=answer, related=tuple(map(changed, self.related)))

    @property
    def results(self) -> tuple[RecallResult, ...]:
        return self.answer.results

    @property
    def intent(self) -> Intent:
        return self.explained.intent.intent

    def explain(self) -> Mapping[str, object]:
        """Returns the parts as plain data, for JSON."""
        explained = self.explained
        return {
            "intent": explained.intent.intent,
            "intent_by": explained.intent.by,
            "intent_matched": explained.intent.matched,
            "intent_score": round(explained.intent.score, 6),
            "complexity": explained.complexity.name,
            "depth": explained.complexity.depth,
            "time_words": list(explained.times.words),
            "since": None if explained.since is None else explained.since.isoformat(),
            "until": None if explained.until is None else explained.until.isoformat(),
            "times_used": explained.times_used,
            "entities": [entity.name for entity in explained.boost.named],
            "boosted": len(explained.boost.strengths),
            "boost_timed_out": explained.boost.timed_out,
            "boost_error": explained.boost.error,
            "related": [
                {"id": each.id, "score": round(each.score, 6), "reason": each.reason}
                for each in self.related
            ],
            "reranked": explained.reranked,
        }
