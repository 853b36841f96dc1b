"""Recall: embed the question, search the scope's shard, tell the parts of every score."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from pydantic import JsonValue, TypeAdapter

from palimpsest.ops.operations.rows import plain
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.sources import Sources
from palimpsest.stores.recall.query import Query
from palimpsest.streams.models.base import ModelError, TokenEmbeddingModel
from palimpsest.streams.rules.explicit_intent import asks_to_remember
from palimpsest.streams.runtime.offload import computed
from palimpsest.streams.sensitive.detection import redacted
from palimpsest.streams.sensitive.policy import Policy

if TYPE_CHECKING:
    from palimpsest.stores.recall.answers import Retrieval, RetrievalConstants
    from palimpsest.stores.recall.query import RecallAnswer
    from palimpsest.stores.recall.retriever import Retriever
    from palimpsest.stores.recall.short_term import SessionBlock
    from palimpsest.stores.recall.token_leg import QueryEmbedding


WIDER = 3
"""How many more than asked for are looked at by words alone: neighbours of hits are left out."""
MAX_QUESTION_CHARACTERS: Final = 10_000
"""A longer question is searched by its beginning: more words find no more, and cost everybody who
asks at the same time."""


async def recall(sources: Sources, request: Query) -> JsonValue:
    """The answer in the shape of `recall --json`, with what the question's intent adds (`related`)
    and, for `explain`, how the question was understood."""
    found = await retrieved(sources, request)
    told = await computed(_told, found.answer) | {"query": request.query}
    told["related"] = [
        {
            "id": each.id,
            "content": each.content,
            "type": each.type,
            "who": each.who,
            "role": each.role,
            "occurred_at": each.occurred_at.isoformat(),
            "score": round(each.score, 6),
            "reason": each.reason,
            "marks": [plain(asdict(mark)) for mark in each.marks],
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


async def search(sources: Sources, query: Query) -> JsonObject:
    """As a recall, by keywords alone."""
    from palimpsest.stores.recall.retriever import Retriever

    settings = sources.settings.recall.model_copy(update={"fusion": "keyword", "rerank": "off"})
    wider = replace(query, limit=query.limit * WIDER)
    found = await Retriever(sources.shard_of(query.scope), settings).retrieve(wider, None)
    hits = tuple(result for result in found.answer.results if result.scores.keyword)
    return _told(replace(found.answer, results=hits[: query.limit]))


async def context(
    sources: Sources, query: Query, budget: int | None = None, session_id: str | None = None
) -> JsonValue:
    """The Markdown block with its size in tokens; `text` is None where nothing is known. With a
    session it begins with what is kept of it, without the message that is asked, and
    `offers_summary` tells whether a model should be asked for a summary: not when it is asked to
    remember something for good."""
    from palimpsest.stores.recall.intent import complexity

    asked, query = query.query, _bounded(query)
    retriever, embedding = await _retriever(sources, query)
    budget = complexity(query.query).budget if budget is None else budget
    block, offers = await _session_part(sources, query, session_id, budget)
    shown = frozenset() if block is None else frozenset(block.ids)
    # With a blank line between the two.
    rest = budget if block is None else budget - block.tokens - 2
    made = await retriever.context(query, embedding, rest, shown)
    parts = [part for part in (block, made) if part is not None]
    told: JsonObject = {
        "query": asked,
        "text": "\n\n".join(part.text for part in parts) or None,
        "tokens": sum(part.tokens for part in parts) + 2 * (len(parts) - 1) if parts else 0,
        "ids": {},
        "offers_summary": offers,
    }
    if parts:
        ids: JsonObject = {} if block is None else {"session": [*block.ids]}
        ids |= {section: [*each] for section, each in (made.ids if made else {}).items()}
        told |= {"budget": budget, "ids": ids}
    return told


async def _session_part(
    sources: Sources, query: Query, session_id: str | None, budget: int
) -> tuple[SessionBlock | None, bool]:
    """The part about the session, and whether a model should be asked for a summary."""
    from palimpsest.ops.operations.short_term import short_term
    from palimpsest.stores.recall.context import same_words
    from palimpsest.stores.recall.short_term import session_block

    if session_id is None:
        return None, False
    kept = await asyncio.to_thread(short_term, sources, query.scope, session_id)
    if kept is not None:
        asked = same_words(query.query)
        since = tuple(each for each in kept.since_summary if same_words(each.content) != asked)
        kept = replace(kept, since_summary=since)
    settings, intent = sources.settings.short_term, sources.settings.intent
    offers = not (kept is not None and kept.explicit_intent) and not asks_to_remember(
        query.query, (*intent.phrases, *intent.more_phrases)
    )
    allowed = int(budget * settings.context_share)
    return session_block(kept, settings.nudge if offers else "", allowed), offers


async def retrieved(
    sources: Sources, query: Query, constants: RetrievalConstants | None = None
) -> Retrieval:
    """What every recall comes from, also what `bench retrieval` measures, which tries other
    constants."""
    query = _bounded(query)
    retriever, embedding = await _retriever(sources, query, constants)
    return await retriever.retrieve(query, embedding)


async def _retriever(
    sources: Sources, query: Query, constants: RetrievalConstants | None = None
) -> tuple[Retriever, QueryEmbedding | None]:
    """With the question's vectors. The exemplars are embedded when a question first needs them."""
    from palimpsest.stores.recall.answers import CONSTANTS
    from palimpsest.stores.recall.intent import by_keyword
    from palimpsest.stores.recall.retriever import Retriever

    embedding = await _embedding(sources, query.query)
    exemplars = None
    settings = sources.settings
    by_exemplars = settings.recall.intent == "exemplars"
    if by_exemplars and embedding is not None and by_keyword(query.query).intent == "general":
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


def _bounded(query: Query) -> Query:
    """The query with what is searched by of its question, to the end of a word where it has one."""
    text = query.query.strip()
    if len(text) > MAX_QUESTION_CHARACTERS:
        text = text[: MAX_QUESTION_CHARACTERS + 1].rsplit(None, 1)[0][:MAX_QUESTION_CHARACTERS]
        return replace(query, query=text)
    return query


async def _embedding(sources: Sources, text: str) -> QueryEmbedding | None:
    from palimpsest.stores.recall.token_leg import QueryEmbedding

    model = sources.embedding
    kinds = Policy.of(sources.settings.pii).kinds
    text = await computed(redacted, text, kinds)  # the model may be another's
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
