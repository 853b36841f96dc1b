"""Runs a query over a scope of a shard.

The query's intent, times and entities are read from its words; the pool holds the candidates
(`stores.recall.pool`); the steps of `stores.recall.ranking_steps` make results of them; these are
shown, with what the intent adds. Every part reports what it did (`Retrieval.explain`). The scope is
fetched once: its index, or where it is stored if it is too large, and then only the candidates come
from another place.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, ParamSpec, Protocol, TypeVar

from palimpsest.stores.database.analysis import query_tokens
from palimpsest.stores.database.cursors import Readable
from palimpsest.stores.index.cache import IndexCache
from palimpsest.stores.index.passages import turn_text
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.segment import microseconds
from palimpsest.stores.index.stored_scopes import StoredScope
from palimpsest.stores.recall.answers import (
    CONSTANTS,
    Explained,
    Retrieval,
    RetrievalConstants,
    TimesUsed,
)
from palimpsest.stores.recall.context import Context, assemble
from palimpsest.stores.recall.context_lines import found_pieces
from palimpsest.stores.recall.filters import VisibilityMask, failed_filters
from palimpsest.stores.recall.graph import GraphBoost, Milliseconds, graph_boost
from palimpsest.stores.recall.intent import Exemplars, classify, complexity, requested_speaker
from palimpsest.stores.recall.marks import marks_in
from palimpsest.stores.recall.pool import PoolSearch, search_plan
from palimpsest.stores.recall.query import (
    Absence,
    Fusion,
    Legs,
    Query,
    RecallAnswer,
    RecallResult,
    WhyNot,
)
from palimpsest.stores.recall.ranking_steps import RERANK_STEPS, STEPS, Ranking, RankingContext, run
from palimpsest.stores.recall.rerank import (
    PairScoring,
    Rerank,
    TextEmbedding,
    rerank_by_cosines,
    rerank_by_pairs,
)
from palimpsest.stores.recall.results import place_of, readings, shown, text_of
from palimpsest.stores.recall.standing_profile import StandingProfile
from palimpsest.stores.recall.strategies import additions
from palimpsest.stores.recall.time_words import TimeFilter, read_times
from palimpsest.stores.recall.token_leg import (
    PackedTokens,
    PackedTurns,
    QueryEmbedding,
    TokenCounts,
    TokenLeg,
    token_leg,
)
from palimpsest.stores.settings import RecallSettings, ShardOptions
from palimpsest.streams.store_port import HIDDEN

MAX_QUERY_TERMS: Final = 256
"""Maximum number of terms searched for: far more than a question has."""
SEARCH_THREADS: Final = ThreadPoolExecutor(max(2, os.cpu_count() or 1), "search")
"""No more concurrent searches than processors: more would answer no more queries, and take the
interpreter from the stages (16 left a writer a third of its throughput)."""
_WORD = re.compile(r"[^\W_]")

P = ParamSpec("P")
T = TypeVar("T")
Scope = ScopeIndex | StoredScope


class RecallShard(Readable, Protocol):
    """What recall needs of a shard."""

    @property
    def indexes(self) -> IndexCache: ...
    @property
    def options(self) -> ShardOptions: ...
    @property
    def packed_tokens(self) -> PackedTokens: ...
    @property
    def packed_turns(self) -> PackedTurns: ...
    @property
    def read_passages(self) -> Callable[[ScopeIndex], None]: ...


@dataclass(frozen=True, slots=True)
class _Ranked:
    """What a query found, before it is shown; no `rows` if there was nothing to search by.
    `allowed` has the query searched with; `used` is the effect of the times in its words."""

    method: Legs
    allowed: VisibilityMask
    rows: Ranking | None = None
    context: RankingContext | None = None
    times: TimeFilter = TimeFilter()
    used: TimesUsed = "none"

    def results(self) -> tuple[RecallResult, ...]:
        if self.rows is None or self.context is None:
            return ()
        return shown(self.rows, self.context, self.allowed)

    def reranked(self, rerank: Rerank, limit: int, min_score: float) -> str:
        """Runs the steps of reranking; returns their names for the answer's method."""
        if self.rows is None or self.context is None or not self.rows.results:
            return ""
        context = replace(self.context, limit=limit, rerank=rerank, min_score=min_score)
        run(RERANK_STEPS, self.rows, context)
        varied = "+mmr" if self.context.settings.mmr else ""
        return (f"+{rerank.by}" if rerank.scores else "") + varied


# The texts at a time of what changed since; what was hidden since stays hidden.
_EARLIER_TEXTS = f"""
SELECT memory_id, arg_min(content, version) FROM archived_states
WHERE scope = ? AND archived_at > ? AND memory_id IN (SELECT unnest(?))
GROUP BY memory_id HAVING NOT bool_or(reason = '{HIDDEN}')"""


def utc_now() -> datetime:
    return datetime.now(UTC)


def monotonic_ms() -> float:
    return time.monotonic() * 1000.0


@dataclass(frozen=True, slots=True)
class Retriever:
    """Retrievals from one shard; may be used by any thread.

    Without `graph` it boosts nothing and no intent adds anything. `exemplars` decide the intent if
    no word does; reranking uses the cosines of `model` or the cross-encoder `pairs` (None: no
    reranking). `clock` is the present for recency, ends and "last week" (a query's `asked_at` and
    `as_of` take precedence), in the zone whose days are meant; `milliseconds` measures the graph's
    deadline.
    """

    shard: RecallShard
    settings: RecallSettings = RecallSettings()
    graph: bool = True
    constants: RetrievalConstants = CONSTANTS
    exemplars: Exemplars | None = None
    model: TextEmbedding | None = None
    clock: Callable[[], datetime] = utc_now
    milliseconds: Milliseconds = monotonic_ms
    pairs: PairScoring | None = None

    def search(
        self, query: Query, embedding: QueryEmbedding | None = None, with_related: bool = True
    ) -> Retrieval:
        """Returns the answer to a query with this embedding (None: by keywords only), without
        reranking; `with_related`: with what its intent adds. Raises ValueError for a vector of
        another length than the shard's, a limit below 1 or a time without a zone."""
        return self._marked(self._searched(query, embedding, with_related)[0], query)

    async def retrieve(
        self, query: Query, embedding: QueryEmbedding | None = None, with_related: bool = True
    ) -> Retrieval:
        """Like `search`, in a thread, and with reranking if that is on.

        It reranks the first `rerank_top_n` whatever the limit, so that the first ten are the same
        whether ten or fifty are requested.
        """
        settings = self.settings
        if query.rerank is not None:
            method = "cross-encoder" if query.rerank else "off"
            settings = settings.model_copy(update={"rerank": method})
        if settings.rerank == "off" and not settings.mmr:
            return await _in_search_thread(self.search, query, embedding, with_related)
        # The minimum applies to the final score.
        wider = replace(query, limit=max(query.limit, settings.rerank_top_n), min_score=0.0)
        found, ranked = await _in_search_thread(self._searched, wider, embedding, with_related)
        rerank = Rerank("off")
        if settings.rerank == "cosine":
            vector = None if embedding is None else embedding.vector
            texts = [result.content for result in found.results]
            rerank = await rerank_by_cosines(vector, texts, self.model, settings)
        elif settings.rerank == "cross-encoder":
            read = [] if ranked.rows is None else readings(ranked.rows, ranked.allowed.index)
            rerank = await rerank_by_pairs(query.question, read, self.pairs, settings)
        least = self._min_score(query)
        again = await _in_search_thread(_reranked, found, ranked, rerank, query.limit, least)
        return await _in_search_thread(self._marked, again, query)

    async def context(
        self,
        query: Query,
        embedding: QueryEmbedding | None = None,
        budget: int | None = None,
        shown: frozenset[str] = frozenset(),
    ) -> Context | None:
        """Returns what is known about a query as a Markdown block of up to `budget` tokens (None:
        by the query's complexity), with the standing profile of the persons that it is about; None
        if there is neither. The memories `shown` elsewhere are left out."""
        constants = self.constants
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
            now, index = self._present(query), found.allowed.index
            marks = partial(marks_in, self.shard, query.scope, index, now=now)
            named = [entity.entity_id for entity in found.explained.boost.named]
            with self.shard.reading() as reader:
                profile = StandingProfile(reader, found.allowed, now, marks).of(named)
            options = self.shard.options
            pieces = found_pieces(found, options.search.language, shown)
            leg = token_leg(
                options.embedding_model,
                embedding,
                self.shard.packed_tokens,
                self.shard.packed_turns,
                constants.ranking,
            )
            if leg and embedding and embedding.token_counts:
                nearest = partial(_nearest_sentence, leg, embedding.token_counts, index)
                pieces = replace(pieces, nearest=nearest)
            return assemble(profile, pieces, tokens, constants.context)

        return await _in_search_thread(assembled)

    async def why_not(
        self, query: Query, embedding: QueryEmbedding | None, found: Retrieval
    ) -> tuple[WhyNot, ...]:
        """Explains where the retrieval of this query left each memory of `why_not`, in order."""
        wanted = replace(query, min_score=0.0, explain=True)
        explain = partial(self._why_not, wanted, embedding, found, self._min_score(query))
        return await _in_search_thread(lambda: tuple(map(explain, query.why_not)))

    def _why_not(
        self,
        query: Query,
        embedding: QueryEmbedding | None,
        found: Retrieval,
        min_score: float,
        memory_id: str,
    ) -> WhyNot:
        scope = self.shard.indexes.scope(query.scope)
        boost = self._boost(scope, query)
        ranked = self._within_times(scope, query, embedding, boost, whole=True)
        failed = failed_filters(ranked.allowed, memory_id)
        if failed is None:
            return WhyNot(memory_id, "inactive")
        text = text_of(ranked.allowed.including([memory_id]).index, memory_id)
        if failed:
            return WhyNot(memory_id, "filtered", text, filters=failed)
        is_considered = ranked.rows is not None and memory_id in ranked.rows.ids
        if not is_considered:
            # What the graph boosts, if only by 0, is considered, with the scores of both legs.
            boost = replace(boost, strengths={**boost.strengths, memory_id: 0.0})
            ranked = self._within_times(scope, query, embedding, boost, whole=True)
        place = place_of(memory_id, ranked.results())
        if place is None:
            return WhyNot(memory_id, "inactive" if is_considered else "not_considered", text)
        rank, head = place
        is_own = head.id == memory_id
        reason: Absence = "min_score" if head.score < min_score else "limit"
        if not is_considered:
            reason = "not_considered"
        elif any(each.id == head.id for each in found.results):
            reason = "returned" if is_own else "grouped"
        shown_by = None if is_own else head.id
        return WhyNot(
            memory_id, reason, text, rank, head.score, head.scores, head.explanation, shown_by
        )

    def _searched(
        self, query: Query, embedding: QueryEmbedding | None, with_related: bool
    ) -> tuple[Retrieval, _Ranked]:
        self._check(query, embedding)
        vector = None if embedding is None else embedding.vector
        intent = classify(query.question, vector, self.exemplars)
        effort = complexity(query.question)
        scope = self.shard.indexes.scope(query.scope)
        boost = self._boost(scope, query)
        ranked = self._within_times(scope, query, embedding, boost)
        results = ranked.results()
        explained = Explained(
            intent=intent,
            complexity=effort,
            times=ranked.times,
            times_used=ranked.used,
            since=ranked.allowed.query.since,
            until=ranked.allowed.query.until,
            boost=boost,
            reranked="off",
        )
        answer = RecallAnswer(query.query, ranked.method, results)
        found = Retrieval(answer, (), explained, ranked.allowed)
        if with_related and self.graph and intent.intent != "general":
            with self.shard.reading() as reader:
                related = additions(
                    reader,
                    scope.graph,
                    intent.intent,
                    {each.id: each.score for each in found.results if not each.unlikely},
                    boost.named,
                    effort.depth,
                    ranked.allowed,
                    self.constants.strategies,
                )
            found = replace(found, related=related)
        return found, ranked

    def _marked(self, found: Retrieval, query: Query) -> Retrieval:
        """Adds the marks of what no longer holds, and for `as_of` the texts of that time."""
        ids, index, texts = found.shown_ids(), found.allowed.index, {}
        marks = marks_in(self.shard, query.scope, index, ids, self._present(query))
        if query.as_of is not None:
            parameters = [query.scope, query.as_of, sorted(ids)]
            with self.shard.reading() as reader:
                texts = dict(reader.execute(_EARLIER_TEXTS, parameters).fetchall())
        return found.corrected(marks, texts) if marks or texts else found

    def _check(self, query: Query, embedding: QueryEmbedding | None) -> None:
        dimensions = self.shard.options.dimensions
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

    def _min_score(self, query: Query) -> float:
        requested, configured = query.min_score, self.settings.min_score
        return (configured or 0.0) if requested is None else requested

    def _present(self, query: Query) -> datetime:
        """Returns the time of the question: `asked_at`, else `as_of`, else now."""
        return query.asked_at or query.as_of or self.clock()

    def _boost(self, scope: Scope, query: Query) -> GraphBoost:
        if not self.graph:
            return GraphBoost()
        return graph_boost(
            scope.graph,
            query.question,
            self.milliseconds,
            self.settings,
            self.shard.options.search.language,
            self.constants.boost,
        )

    def _within_times(
        self,
        scope: Scope,
        query: Query,
        embedding: QueryEmbedding | None,
        boost: GraphBoost,
        whole: bool = False,
    ) -> _Ranked:
        """Ranks with the times in the query's words as a preference or a filter."""
        settings = self.settings
        rank = partial(self._ranked, scope, embedding=embedding, boost=boost, whole=whole)
        times = TimeFilter()
        # Explicit time filters replace the times in the query's words.
        if settings.time_words != "off" and query.since is None and query.until is None:
            times = read_times(query.question, self._present(query))
        if not times:
            return rank(query, query.question)
        if settings.time_words == "prefer" and not times.strict:
            ranked = rank(query, query.question, times=times)
            return replace(ranked, times=times, used="prefer")
        timed = replace(query, since=times.since, until=times.until)
        # Words used as a filter are not searched for, unless there are no others.
        text = times.rest if _WORD.search(times.rest) else query.question
        ranked = rank(timed, text)
        if ranked.rows is not None and len(ranked.rows.results) >= self.constants.least_in_time:
            return replace(ranked, times=times, used="filter")
        ranked = rank(query, query.question)
        return replace(ranked, times=times, used="widened")

    def _ranked(
        self,
        scope: Scope,
        query: Query,
        text: str,
        embedding: QueryEmbedding | None,
        boost: GraphBoost,
        times: TimeFilter | None = None,
        whole: bool = False,
    ) -> _Ranked:
        """Ranks the results for these words; `whole`: all of the pool, whatever the limit."""
        settings, options = self.settings, self.shard.options
        language, parameters = options.search.language, self.constants.ranking
        terms = query_tokens(text, language)[:MAX_QUERY_TERMS]
        vector = None if embedding is None else embedding.vector
        plan = search_plan(query, terms, vector, boost.strengths, settings, parameters)
        index = scope.search(plan)
        if not text.strip():
            return _Ranked("none", VisibilityMask.by(index, query))
        if vector is not None and index.is_whole:  # else it holds the pool of this question alone
            self.shard.read_passages(index)
        tokens = token_leg(
            options.embedding_model,
            embedding,
            self.shard.packed_tokens,
            self.shard.packed_turns,
            parameters,
        )
        search = PoolSearch(index, query, plan, language, settings, tokens)
        method = _method(bool(terms), search.has_vectors, settings.fusion)
        rows, allowed = search.pool(boost.strengths)
        context = RankingContext(
            index=index,
            limit=len(rows.ids) if whole else query.limit,
            now=microseconds(self._present(query)),
            settings=settings,
            parameters=parameters,
            group=query.group,
            graph=boost.strengths,
            times=times,
            time_bonus=self.constants.time_bonus,
            by_tokens=search.is_by_tokens,
            min_score=self._min_score(query),
            speaker=requested_speaker(query.question),
            outdated=lambda ids: marks_in(
                self.shard, query.scope, index, ids, self._present(query)
            ).keys(),
        )
        run(STEPS, rows, context)
        return _Ranked(method, allowed, rows, context)


def _nearest_sentence(
    leg: TokenLeg, counts: TokenCounts, index: ScopeIndex, memory_id: str, sentences: Sequence[str]
) -> int | None:
    with index.lock:
        found = index.find(memory_id)
        text = None if found is None else turn_text(*found)
    return None if text is None else leg.nearest_sentence(counts, text, sentences)


def _reranked(
    found: Retrieval, ranked: _Ranked, rerank: Rerank, limit: int, min_score: float
) -> Retrieval:
    method = found.answer.method + ranked.reranked(rerank, limit, min_score)
    answer = replace(found.answer, method=method, results=ranked.results())
    return replace(found, answer=answer, explained=replace(found.explained, reranked=rerank.reason))


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
