"""Recall: embed the question, search the scope's shard, tell the parts of every score."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue, TypeAdapter

from palimpsest.ops.queries.requests import ContextRequest, RecallRequest, RequestError
from palimpsest.ops.queries.sources import Sources
from palimpsest.stores.recall.query import Query
from palimpsest.streams.models.base import ModelError, Vector

if TYPE_CHECKING:
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.stores.recall.query import RecallAnswer
    from palimpsest.stores.recall.retriever import Retrieval, RetrievalSettings, Retriever


async def recall(sources: Sources, request: RecallRequest) -> JsonValue:
    """The answer in the shape of `recall --json`, with what the question's intent adds (`related`)
    and, for `explain`, how the question was understood. Raises RequestError for what cannot be
    asked."""
    found = await retrieved(sources, request, retrieval_settings(sources.settings))
    told: JsonValue = _adapter().dump_python(found.answer, mode="json")
    assert isinstance(told, dict)
    told["related"] = [
        {
            "id": each.id,
            "content": each.content,
            "type": each.type,
            "who": each.who,
            "occurred_at": each.occurred_at.isoformat(),
            "score": round(each.score, 6),
            "reason": each.reason,
        }
        for each in found.related
    ]
    if request.explain:
        told["understood"] = cast("JsonValue", found.explain())
    return told


async def context(sources: Sources, request: ContextRequest) -> JsonValue:
    """The Markdown block with its size in tokens; `text` is None where nothing matches."""
    query = Query(request.scope, request.text)
    retriever, vector = await _retriever(sources, query, retrieval_settings(sources.settings))
    made = await retriever.context(query, vector, request.budget)
    if made is None:
        return {"query": request.text, "text": None, "tokens": 0, "ids": {}}
    return {
        "query": request.text,
        "text": made.text,
        "tokens": made.tokens,
        "budget": made.budget,
        "ids": {section: list(ids) for section, ids in made.ids.items()},
    }


async def retrieved(sources: Sources, query: Query, settings: RetrievalSettings) -> Retrieval:
    """What every recall comes from, also what `bench retrieval` measures. Raises RequestError for
    what cannot be asked."""
    retriever, vector = await _retriever(sources, query, settings)
    return await retriever.retrieve(query, vector)


async def _retriever(
    sources: Sources, query: Query, settings: RetrievalSettings
) -> tuple[Retriever, Vector | None]:
    """With the question's vector. The exemplars are embedded when a question first needs them."""
    from palimpsest.stores.recall.intent import by_keyword
    from palimpsest.stores.recall.retriever import Retriever

    vector = await _vector(sources, query.scope, query.text)
    exemplars = None
    by_exemplars = sources.settings.recall.intent == "exemplars"
    if by_exemplars and vector is not None and by_keyword(query.text).intent == "general":
        exemplars = await sources.exemplars.of(sources.embedding)
    shard = sources.shard_of(query.scope)
    return Retriever(shard, settings, exemplars=exemplars, model=sources.embedding), vector


def retrieval_settings(settings: Settings) -> RetrievalSettings:
    """How retrieval goes, as set."""
    from palimpsest.stores.recall.graph_boost import GraphBoostSettings
    from palimpsest.stores.recall.ranking import PROFILES, RankingParameters
    from palimpsest.stores.recall.rerank import RerankSettings
    from palimpsest.stores.recall.retriever import RetrievalSettings

    chosen, graph = settings.recall, settings.graph
    return RetrievalSettings(
        fusion=chosen.fusion,
        ranking=RankingParameters(
            alpha=chosen.alpha, pool=chosen.pool, weights=PROFILES[chosen.profile]
        ),
        time_words=chosen.time_words,
        use_strategies=graph.enabled,
        boost=GraphBoostSettings(
            enabled=graph.enabled and chosen.graph_weight > 0.0,
            weight=chosen.graph_weight,
            timeout_ms=chosen.graph_timeout_ms,
        ),
        rerank=RerankSettings(
            method=chosen.rerank,
            top_n=chosen.rerank_top_n,
            timeout_ms=chosen.rerank_timeout_ms,
            mmr=chosen.mmr,
        ),
    )


async def _vector(sources: Sources, scope: str, text: str) -> Vector | None:
    if not scope.strip():
        raise RequestError("the scope is empty; name the memory space to search (--scope)")
    if not text.strip():
        raise RequestError("the question is empty")
    try:
        return await sources.embedding.embed_query(text)
    except ModelError:
        return None  # the answer's method tells that vectors did not take part


@cache
def _adapter() -> TypeAdapter[RecallAnswer]:
    from palimpsest.stores.recall.query import RecallAnswer

    return TypeAdapter(RecallAnswer)
