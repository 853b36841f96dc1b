"""Measured constants and results of a retrieval, as plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal, TypeVar

from palimpsest.stores.recall.context import ContextSettings
from palimpsest.stores.recall.filters import VisibilityMask
from palimpsest.stores.recall.graph import LIMITS, GraphBoostLimits, NamedEntity
from palimpsest.stores.recall.intent import Complexity, Intent, IntentGuess
from palimpsest.stores.recall.query import Mark, Neighbour, RecallAnswer, RecallResult
from palimpsest.stores.recall.ranking import DEFAULTS as RANKING
from palimpsest.stores.recall.ranking import RankingParameters
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
    searched with. `entities` are named in the query; they `boosted` that many memories, unless the
    boost timed out (`timed_out`) or failed (`error`). `reranked` reports what reranking did, or why
    it did nothing."""

    intent: IntentGuess
    complexity: Complexity
    times: TimeFilter
    times_used: TimesUsed
    since: datetime | None
    until: datetime | None
    entities: tuple[str, ...]
    boosted: int
    timed_out: bool
    error: str | None
    reranked: str


@dataclass(frozen=True, slots=True)
class Retrieval:
    """`related` is what the intent adds, best first; `named` are the entities that the query names;
    `allowed` is what the query may show, also of later reads. `marks` has the marks of the memories
    shown and of those that they were derived from, by id."""

    answer: RecallAnswer
    related: tuple[Related, ...]
    named: tuple[NamedEntity, ...]
    explained: Explained
    allowed: VisibilityMask
    marks: Mapping[str, tuple[Mark, ...]] = field(default_factory=dict)

    def shown_ids(self) -> set[str]:
        """The ids of all memories shown, and of those that they were derived from."""
        ids = {each.id for each in self.related}
        for result in self.results:
            ids.update((result.id, *result.derived_from, *(n.id for n in result.neighbours)))
        return ids

    def with_marks(self, marks: Mapping[str, tuple[Mark, ...]]) -> Retrieval:
        """The same with these marks, by id."""
        if not marks:
            return self
        results = tuple(
            replace(
                result,
                marks=marks.get(result.id, ()),
                neighbours=tuple(
                    replace(near, marks=marks.get(near.id, ())) for near in result.neighbours
                ),
            )
            for result in self.results
        )
        related = tuple(replace(each, marks=marks.get(each.id, ())) for each in self.related)
        answer = replace(self.answer, results=results)
        return replace(self, answer=answer, related=related, marks=marks)

    def with_texts(self, texts: Mapping[str, str]) -> Retrieval:
        """Returns the retrieval with the earlier texts of these memories, by id, without marks."""
        if not texts:
            return self

        def earlier(each: ShownT) -> ShownT:
            text = texts.get(each.id)
            return each if text is None else replace(each, content=text, marks=())

        results = tuple(
            replace(earlier(result), neighbours=tuple(map(earlier, result.neighbours)))
            for result in self.results
        )
        answer = replace(self.answer, results=results)
        return replace(self, answer=answer, related=tuple(map(earlier, self.related)))

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
            "entities": list(explained.entities),
            "boosted": explained.boosted,
            "boost_timed_out": explained.timed_out,
            "boost_error": explained.error,
            "related": [
                {"id": each.id, "score": round(each.score, 6), "reason": each.reason}
                for each in self.related
            ],
            "reranked": explained.reranked,
        }
