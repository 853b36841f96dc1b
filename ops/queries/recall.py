"""Recall: embed the question, search the scope's shard, tell the parts of every score."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue, TypeAdapter

from palimpsest.ops.queries.requests import (
    ContextRequest,
    JsonObject,
    RecallRequest,
    RequestError,
    SearchRequest,
)
from palimpsest.ops.queries.sources import Sources
from palimpsest.stores.recall.query import Query
from palimpsest.streams.models.base import ModelError, TokenEmbeddingModel
from palimpsest.streams.sensitive.detection import redacted
from palimpsest.streams.sensitive.policy import Policy

if TYPE_CHECKING:
    from palimpsest.stores.recall.answers import Retrieval, RetrievalConstants
    from palimpsest.stores.recall.query import RecallAnswer
    from palimpsest.stores.recall.retriever import Retriever
    from palimpsest.stores.recall.token_leg import QueryEmbedding


WIDER = 3
"""How many more than asked for are looked at by words alone: neighbours of hits are left out."""


async def recall(sources: Sources, request: RecallRequest) -> JsonValue:
    """The answer in the shape of `recall --json`, with what the question's intent adds (`related`)
    and, for `explain`, how the question was understood. Raises RequestError for what cannot be
    asked."""
    found = await retrieved(sources, request)
    told = _told(found.answer)
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


def _told(answer: RecallAnswer) -> JsonObject:
    told: JsonValue = _adapter().dump_python(answer, mode="json")
    assert isinstance(told, dict)
    return told


async def search(sources: Sources, request: SearchRequest) -> JsonObject:
    """As a recall, by keywords alone. Raises RequestError for what cannot be asked."""
    from palimpsest.stores.recall.retriever import Retriever

    query = Query(request.scope, request.text, request.limit * WIDER, request.types, group=False)
    _check(query.scope, query.text)
    settings = sources.settings.recall.model_copy(update={"fusion": "keyword", "rerank": "off"})
    found = await Retriever(sources.shard_of(query.scope), settings).retrieve(query, None)
    hits = tuple(result for result in found.answer.results if result.scores.keyword)
    return _told(replace(found.answer, results=hits[: request.limit]))


async def context(sources: Sources, request: ContextRequest) -> JsonValue:
    """The Markdown block with its size in tokens; `text` is None where nothing matches."""
    query = Query(request.scope, request.text)
    retriever, embedding = await _retriever(sources, query)
    made = await retriever.context(query, embedding, request.budget)
    if made is None:
        return {"query": request.text, "text": None, "tokens": 0, "ids": {}}
    return {
        "query": request.text,
        "text": made.text,
        "tokens": made.tokens,
        "budget": made.budget,
        "ids": {section: list(ids) for section, ids in made.ids.items()},
    }


async def retrieved(
    sources: Sources, query: Query, constants: RetrievalConstants | None = None
) -> Retrieval:
    """What every recall comes from, also what `bench retrieval` measures, which tries other
    constants. Raises RequestError for
    what cannot be asked."""
    retriever, embedding = await _retriever(sources, query, constants)
    return await retriever.retrieve(query, embedding)


async def _retriever(
    sources: Sources, query: Query, constants: RetrievalConstants | None = None
) -> tuple[Retriever, QueryEmbedding | None]:
    """With the question's vectors. The exemplars are embedded when a question first needs them."""
    from palimpsest.stores.recall.answers import CONSTANTS
    from palimpsest.stores.recall.intent import by_keyword
    from palimpsest.stores.recall.retriever import Retriever

    embedding = await _embedding(sources, query.scope, query.text)
    exemplars = None
    settings = sources.settings
    by_exemplars = settings.recall.intent == "exemplars"
    if by_exemplars and embedding is not None and by_keyword(query.text).intent == "general":
        exemplars = await sources.exemplars.of(sources.embedding)
    retriever = Retriever(
        sources.shard_of(query.scope),
        settings.recall,
        settings.graph.enabled,
        constants or CONSTANTS,
        exemplars,
        sources.embedding,
        pairs=sources.cross_encoder,
    )
    return retriever, embedding


def _check(scope: str, text: str) -> None:
    if not scope.strip():
        raise RequestError("the scope is empty; name the memory space to search (--scope)")
    if not text.strip():
        raise RequestError("the question is empty")


async def _embedding(sources: Sources, scope: str, text: str) -> QueryEmbedding | None:
    from palimpsest.stores.recall.token_leg import QueryEmbedding

    _check(scope, text)
    model = sources.embedding
    text = redacted(text, Policy.of(sources.settings.pii).kinds)  # the model may be another's
    try:
        if isinstance(model, TokenEmbeddingModel):
            found = await model.embed_query_tokens(text)
            return QueryEmbedding(found.vector, found.tokens)
        return QueryEmbedding(await model.embed_query(text))
    except ModelError:
        return None  # the answer's method tells that vectors did not take part


@cache
def _adapter() -> TypeAdapter[RecallAnswer]:
    from palimpsest.stores.recall.query import RecallAnswer

    return TypeAdapter(RecallAnswer)
