"""A query's way through a shard, down and up once.

What is asked, when and about whom is read from its words; the pool holds what may answer
(`stores.recall.pool`); the steps of `stores.recall.ranking_steps` make results of it; these are
shown, with what the intent adds. Every part tells what it did (`Retrieval.explain`).
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, ParamSpec, Protocol, TypeVar

from palimpsest.stores.database.cursors import Readable
from palimpsest.stores.index.analysis import query_tokens
from palimpsest.stores.index.cache import IndexCache
from palimpsest.stores.index.search_plan import EVERYTHING, SearchPlan
from palimpsest.stores.index.segment import microseconds
from palimpsest.stores.index.vector_column import Vector
from palimpsest.stores.recall.answers import (
    CONSTANTS,
    Explained,
    Retrieval,
    RetrievalConstants,
    TimesUsed,
)
from palimpsest.stores.recall.asked_speaker import asked_speaker
from palimpsest.stores.recall.centring import CenteredQuery
from palimpsest.stores.recall.context import Context, assemble
from palimpsest.stores.recall.context_lines import found_pieces
from palimpsest.stores.recall.filters import VisibilityMask
from palimpsest.stores.recall.graph_boost import GraphBoost, Milliseconds, StoredGraph, graph_boost
from palimpsest.stores.recall.intent import Exemplars, classify, complexity
from palimpsest.stores.recall.marks import Marks, marks_of, marks_of_index
from palimpsest.stores.recall.pool import PoolSearch
from palimpsest.stores.recall.query import (
    METADATA_PASSES,
    Fusion,
    Legs,
    Query,
    RecallAnswer,
    RecallResult,
)
from palimpsest.stores.recall.ranking import RankingParameters
from palimpsest.stores.recall.ranking_steps import RERANK_STEPS, STEPS, Ranking, RankingContext, run
from palimpsest.stores.recall.rerank import (
    PairScoring,
    SecondLook,
    TextEmbedding,
    second_look,
    second_look_by_pairs,
)
from palimpsest.stores.recall.resident_graph import ResidentGraph
from palimpsest.stores.recall.results import readings, shown
from palimpsest.stores.recall.standing_profile import standing_profile
from palimpsest.stores.recall.strategies import Hit, Related, additions
from palimpsest.stores.recall.time_words import TimeFilter, read_times
from palimpsest.stores.recall.token_leg import PackedTokens, QueryEmbedding, token_leg
from palimpsest.stores.settings import RecallSettings, ShardOptions
from palimpsest.streams.store_port import HIDDEN

MAX_QUERY_TERMS: Final = 256
"""Distinct terms that are searched for: far more than a question has."""
SEARCH_THREADS: Final = ThreadPoolExecutor(max(2, os.cpu_count() or 1), "search")
"""No more searches at once than the machine can compute: more of them answer no more queries, and
take the interpreter from the stages (16 at once left a writer a third of its pace)."""
_WORD = re.compile(r"[^\W_]")

P = ParamSpec("P")
T = TypeVar("T")


class RecallShard(Readable, Protocol):
    """What recall needs of a shard."""

    @property
    def indexes(self) -> IndexCache: ...
    @property
    def options(self) -> ShardOptions: ...
    @property
    def packed_tokens(self) -> PackedTokens: ...


@dataclass(frozen=True, slots=True)
class _Ranked:
    """What a query found, before it is shown; no `rows` where there was nothing to search by.
    `query` is the one searched with, and `used` what the times in its words did."""

    query: Query
    method: Legs
    allowed: VisibilityMask
    rows: Ranking | None = None
    context: RankingContext | None = None
    times: TimeFilter = TimeFilter()
    used: TimesUsed = "none"

    def results(self) -> tuple[RecallResult, ...]:
        if self.rows is None or self.context is None:
            return ()
        unlikely = self.context.parameters.by_model(self.context.by_tokens).unlikely
        return shown(
            self.allowed.index, self.query, self.rows, self.allowed, self.context.now, unlikely
        )

    def readings(self) -> list[tuple[str, ...]]:
        return [] if self.rows is None else readings(self.allowed.index, self.rows)

    def looked_at_again(self, look: SecondLook, limit: int, least_score: float) -> str:
        """Take the steps of the second look; what they were, for the answer's method."""
        if self.rows is None or self.context is None or not self.rows.results:
            return ""
        context = replace(self.context, limit=limit, look=look, least_score=least_score)
        run(RERANK_STEPS, self.rows, context)
        varied = "+mmr" if self.context.settings.mmr else ""
        return (f"+{look.by}" if look.scores else "") + varied


# What was hidden since stays hidden.
_SAID_THEN = f"""
SELECT memory_id, arg_min(content, version) FROM memory_archive
WHERE scope = ? AND archived_at > ? AND memory_id IN (SELECT unnest(?))
GROUP BY memory_id HAVING NOT bool_or(reason = '{HIDDEN}')"""


def utc_now() -> datetime:
    return datetime.now(UTC)


def monotonic_ms() -> float:
    return time.monotonic() * 1000.0


class Retriever:
    """Retrievals from one shard; may be used by any thread.

    Without `graph` nothing is boosted by it and no intent adds anything.
    `exemplars` are asked where no word tells the intent; a second look is `model`'s by cosines, and
    that of `pairs` by a cross-encoder (None: it does not take place). `clock` dates recency, what
    has ended and "last week" (a query's `asked_at` and `as_of` come before it), in the zone whose
    days are meant; `milliseconds` measures the graph's deadline.
    """

    def __init__(
        self,
        shard: RecallShard,
        settings: RecallSettings | None = None,
        graph: bool = True,
        constants: RetrievalConstants = CONSTANTS,
        exemplars: Exemplars | None = None,
        model: TextEmbedding | None = None,
        clock: Callable[[], datetime] = utc_now,
        milliseconds: Milliseconds = monotonic_ms,
        pairs: PairScoring | None = None,
    ) -> None:
        self._shard = shard
        self._settings = settings or RecallSettings()
        self._graph = graph
        self._constants = constants
        self._exemplars = exemplars
        self._model = model
        self._clock = clock
        self._milliseconds = milliseconds
        self._pairs = pairs

    def search(
        self, query: Query, embedding: QueryEmbedding | None = None, with_related: bool = True
    ) -> Retrieval:
        """The answer to a query whose text has this embedding (None: by keywords only), without
        a second look; `with_related`: and with what its intent adds. Raises ValueError for a vector
        of another length than the shard's, a limit below 1 or a time without a zone."""
        return self._marked(self._searched(query, embedding, with_related)[0], query)

    async def retrieve(
        self, query: Query, embedding: QueryEmbedding | None = None, with_related: bool = True
    ) -> Retrieval:
        """As `search`, in a thread, and with the second look where that is on.

        The first `rerank_top_n` are looked at again whatever the limit, so that the first ten are
        the same whether ten or fifty are requested.
        """
        settings = self._settings
        if query.rerank is not None:
            way = "cross-encoder" if query.rerank else "off"
            settings = settings.model_copy(update={"rerank": way})
        if settings.rerank == "off" and not settings.mmr:
            return await _in_search_thread(self.search, query, embedding, with_related)
        # What is too poor is so by the score that it has in the end.
        wider = replace(query, limit=max(query.limit, settings.rerank_top_n), min_score=0.0)
        found, ranked = await _in_search_thread(self._searched, wider, embedding, with_related)
        look = SecondLook("off")
        if settings.rerank == "cosine":
            vector = None if embedding is None else embedding.vector
            texts = [result.content for result in found.results]
            look = await second_look(vector, texts, self._model, settings)
        elif settings.rerank == "cross-encoder":
            read = ranked.readings()
            look = await second_look_by_pairs(query.query, read, self._pairs, settings)
        least = self._least_score(query)
        again = await _in_search_thread(_looked_at_again, found, ranked, look, query.limit, least)
        return await _in_search_thread(self._marked, again, query)

    async def context(
        self,
        query: Query,
        embedding: QueryEmbedding | None = None,
        budget: int | None = None,
        shown: frozenset[str] = frozenset(),
    ) -> Context | None:
        """What is known about a query as a Markdown block of at most `budget` tokens (None: as many
        as the query's complexity asks for), with the standing profile of the persons that it is
        about; None where there is neither. The memories `shown` elsewhere are left out."""
        constants = self._constants
        limited = replace(
            query,
            limit=constants.context_limit,
            neighbours=constants.context_neighbours,
            explain=False,
            group=False,
        )
        found = await self.retrieve(limited, embedding, with_related=False)
        tokens = complexity(query.query).budget if budget is None else budget

        def assembled() -> Context | None:
            now, marks = self._asked_at(query), partial(self._marks, query)
            with self._shard.reading() as reader:
                profile = standing_profile(
                    reader, query.scope, query.query, found.allowed, now, marks
                )
            pieces = found_pieces(found, self._shard.options.search.language, shown)
            return assemble(profile, pieces, tokens, constants.context)

        return await _in_search_thread(assembled)

    def _searched(
        self, query: Query, embedding: QueryEmbedding | None, with_related: bool
    ) -> tuple[Retrieval, _Ranked]:
        self._check(query, embedding)
        vector = None if embedding is None else embedding.vector
        intent = classify(query.query, vector, self._exemplars)
        effort = complexity(query.query)
        boost = self._boost(query)
        ranked = self._within_times(query, embedding, boost)
        results = ranked.results()
        explained = Explained(
            intent=intent,
            complexity=effort,
            times=ranked.times,
            times_used=ranked.used,
            since=ranked.query.since,
            until=ranked.query.until,
            entities=tuple(entity.name for entity in boost.named),
            boosted=len(boost.hits),
            timed_out=boost.timed_out,
            error=boost.error,
            reranked="off",
        )
        answer = RecallAnswer(query.query, ranked.method, results)
        found = Retrieval(answer, (), boost.named, explained, ranked.allowed)
        if with_related and self._graph and intent.intent != "general":
            found = replace(found, related=self._related(query.scope, found))
        return found, ranked

    def _marked(self, found: Retrieval, query: Query) -> Retrieval:
        """With what of it no longer holds, in the words of the requested time."""
        shown = found.shown_ids()
        marks = self._marks(query, shown)
        found = found.with_marks(marks) if marks else found
        return found if query.as_of is None else found.with_texts(self._said_then(query, shown))

    def _said_then(self, query: Query, ids: Set[str]) -> dict[str, str]:
        """Returns the texts at `as_of` of those of these memories that changed since."""
        parameters = [query.scope, query.as_of, sorted(ids)]
        with self._shard.reading() as reader:
            return dict(reader.execute(_SAID_THEN, parameters).fetchall())

    def _marks(self, query: Query, ids: Set[str]) -> Marks:
        """What of these memories no longer holds. Most scopes have nothing of the kind."""
        index = self._shard.indexes.warm(query.scope)
        if index is None:
            with self._shard.reading() as reader:
                return marks_of(reader, query.scope, ids, self._asked_at(query))
        if not index.has_changes:
            return {}
        marks = marks_of_index(self._shard, query.scope, index, self._asked_at(query))
        return {memory_id: marks[memory_id] for memory_id in ids & marks.keys()}

    def _check(self, query: Query, embedding: QueryEmbedding | None) -> None:
        dimensions = self._shard.options.dimensions
        given = [] if embedding is None else [embedding.vector]
        if embedding is not None and embedding.tokens is not None:
            given.append(embedding.tokens)
        for vectors in given:
            if vectors.shape[-1:] != (dimensions,):
                raise ValueError(
                    f"the query's vector has the shape {vectors.shape}; the stored ones have"
                    f" {dimensions} numbers: embed the query with the model that is in use"
                )
        if query.limit < 1:
            raise ValueError(f"the limit must be 1 or more, not {query.limit}")
        for name in ("since", "until", "as_of", "asked_at"):
            time = getattr(query, name)
            if time is not None and time.tzinfo is None:
                raise ValueError(f"{name} needs a time zone, for example 2026-03-01T00:00:00Z")

    def _least_score(self, query: Query) -> float:
        requested, as_set = query.min_score, self._settings.min_score
        return (as_set or 0.0) if requested is None else requested

    def _asked_at(self, query: Query) -> datetime:
        """Returns the time of the question: `asked_at`, else `as_of`, else now."""
        return query.asked_at or query.as_of or self._clock()

    def _boost(self, query: Query) -> GraphBoost:
        if not self._graph:
            return GraphBoost()
        boosted = partial(
            graph_boost,
            query=query.query,
            clock=self._milliseconds,
            settings=self._settings,
            language=self._shard.options.search.language,
            limits=self._constants.boost,
        )
        index = self._shard.indexes.warm(query.scope)
        if index is not None:
            return boosted(ResidentGraph(index))
        with self._shard.reading() as reader:
            return boosted(StoredGraph(reader, query.scope))

    def _within_times(
        self, query: Query, embedding: QueryEmbedding | None, boost: GraphBoost
    ) -> _Ranked:
        """What is found with the times of the query's words as they are to be used."""
        settings = self._settings
        times = TimeFilter()
        # Explicit time filters replace the times in the query's words.
        if settings.time_words != "off" and query.since is None and query.until is None:
            times = read_times(query.query, self._asked_at(query))
        if not times:
            return self._ranked(query, query.query, embedding, boost)
        if settings.time_words == "prefer" and not times.strict:
            ranked = self._ranked(query, query.query, embedding, boost, times)
            return replace(ranked, times=times, used="prefer")
        timed = replace(query, since=times.since, until=times.until)
        # Words that became a filter are not looked for in texts, unless they are all there is.
        text = times.rest if _WORD.search(times.rest) else query.query
        ranked = self._ranked(timed, text, embedding, boost)
        if ranked.rows is not None and len(ranked.rows.results) >= self._constants.least_in_time:
            return replace(ranked, times=times, used="filter")
        ranked = self._ranked(query, query.query, embedding, boost)
        return replace(ranked, times=times, used="widened")

    def _ranked(
        self,
        query: Query,
        text: str,
        embedding: QueryEmbedding | None,
        boost: GraphBoost,
        times: TimeFilter | None = None,
    ) -> _Ranked:
        """The results for these words: the pool, and all steps of the ranking."""
        settings, options = self._settings, self._shard.options
        language, parameters = options.search.language, self._constants.ranking
        terms = query_tokens(text, language)[:MAX_QUERY_TERMS]
        vector = None if embedding is None else embedding.vector
        index = self._shard.indexes.search(
            search_plan_of(query, terms, vector, boost.strengths, settings, parameters)
        )
        if not text.strip():
            return _Ranked(query, "none", VisibilityMask.by(index, query))
        tokens = token_leg(
            options.embedding_model, embedding, self._shard.packed_tokens, parameters
        )
        search = PoolSearch(index, query, terms, vector, language, settings, parameters, tokens)
        method = _method(bool(terms), search.has_vectors, settings.fusion)
        rows, allowed = search.pool(boost.strengths)
        context = RankingContext(
            index=index,
            limit=query.limit,
            now=microseconds(self._asked_at(query)),
            settings=settings,
            parameters=parameters,
            group=query.group,
            graph=boost.strengths,
            times=times,
            time_bonus=self._constants.time_bonus,
            by_tokens=search.is_by_tokens,
            least_score=self._least_score(query),
            asked=asked_speaker(query.query),
        )
        run(STEPS, rows, context)
        return _Ranked(query, method, allowed, rows, context)

    def _related(self, scope: str, found: Retrieval) -> tuple[Related, ...]:
        explained = found.explained
        hits = [Hit(each.id, each.score) for each in found.results if not each.unlikely]
        index = self._shard.indexes.warm(scope)
        resident = None if index is None else ResidentGraph(index)
        with self._shard.reading() as reader:
            return additions(
                reader,
                scope,
                explained.intent.intent,
                hits,
                found.named,
                explained.complexity.depth,
                self._constants.strategies,
                found.allowed,
                resident,
            )


def _looked_at_again(
    found: Retrieval, ranked: _Ranked, look: SecondLook, limit: int, least_score: float
) -> Retrieval:
    method = found.answer.method + ranked.looked_at_again(look, limit, least_score)
    answer = replace(found.answer, method=method, results=ranked.results())
    return replace(found, answer=answer, explained=replace(found.explained, reranked=look.reason))


async def _in_search_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    work = partial(call, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(SEARCH_THREADS, work)


def _method(has_terms: bool, has_vectors: bool, fusion: Fusion) -> Legs:
    if fusion == "keyword":
        has_vectors = has_vectors and not has_terms
    if fusion == "vector":
        has_terms = has_terms and not has_vectors
    if has_terms and has_vectors:
        return "hybrid"
    return "keyword" if has_terms else "vector" if has_vectors else "none"


# What a query needs of a scope that is not resident. Its filters are here a condition on stored
# rows, which chooses what is looked at; what is shown passes a VisibilityMask in any case.

_SAID_BY: Final = (
    "({0} OR m.memory_id IN (SELECT e.source_id FROM memory_edges e"
    " JOIN memory_rows t ON t.memory_id = e.target_id WHERE e.scope = $scope"
    " AND e.relation_type = 'derived_from' AND {1}))"
)
_WHO: Final = "lower({}.who) = lower($who)"
_ROLE: Final = "list_contains(list_transform($roles, lambda role: lower(role)), lower({}.role))"
_CONDITIONS: Final = {
    "types": "list_contains($types, m.type)",
    "who": _SAID_BY.format(_WHO.format("m"), _WHO.format("t")),
    "roles": _SAID_BY.format(_ROLE.format("m"), _ROLE.format("t")),
    "session_id": "m.session_id = $session_id",
    "project": "coalesce(m.project, '') = $project",
    "pinned": "m.pinned = $pinned",
    "min_importance": "m.importance >= $min_importance",
    "since": "m.occurred_at >= $since",
    "until": "m.occurred_at < $until",
    "tags": "list_has_any(m.tags, $tags)",
    "all_tags": "list_has_all(m.tags, $all_tags)",
    "categories": "list_has_any(m.categories, $categories)",
    "metadata": METADATA_PASSES.format(wanted="$metadata", memory="m."),
    "valid_at": "(m.valid_until IS NULL OR m.valid_until > $valid_at)",
    "as_of": "m.created_at <= $as_of",
}


def search_plan_of(
    query: Query,
    terms: Sequence[str],
    vector: Vector | None,
    ids: Collection[str],
    settings: RecallSettings,
    parameters: RankingParameters,
) -> SearchPlan:
    """For a search by these terms and this vector, which `ids` are found by, too."""
    passes, values = _passing(query)

    def side(mean: Vector, count: int) -> CenteredQuery:
        assert vector is not None
        return CenteredQuery.of(vector, mean, count, parameters)

    return SearchPlan(
        query.scope,
        terms=terms,
        vector=vector,
        centred=side,
        count=max(settings.pool, query.limit),
        ids=ids,
        # What is said near the furthest of them counts as its own.
        reach=parameters.reach + parameters.context_reach + query.neighbours,
        passes=passes,
        values=values,
        k1=parameters.k1,
        b=parameters.b,
    )


def _passing(query: Query) -> tuple[str, Mapping[str, object]]:
    """As `stores.index.search_plan.SearchPlan` has `passes` and `values`."""
    given = {name: getattr(query, name) for name in _CONDITIONS}
    values = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value is not None and value != ()
    }
    return " AND ".join(_CONDITIONS[name] for name in values) or EVERYTHING, values
