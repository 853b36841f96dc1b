"""Recall: embeds the query, searches the scope's shard and reports the parts of every score."""

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
from palimpsest.streams.sensitive.detection import redacted
from palimpsest.streams.sensitive.policy import Policy

if TYPE_CHECKING:
    from palimpsest.stores.recall.answers import Retrieval, RetrievalConstants
    from palimpsest.stores.recall.query import RecallAnswer
    from palimpsest.stores.recall.retriever import Retriever
    from palimpsest.stores.recall.short_term import SessionBlock
    from palimpsest.stores.recall.token_leg import QueryEmbedding


WIDER = 3
"""Factor on the limit of a keyword search: neighbours of hits are removed from the results."""
MAX_QUESTION_CHARACTERS: Final = 10_000
"""Only the beginning of a longer query is searched: more words find no more, and slow down all
concurrent requests."""


async def recall(sources: Sources, request: Query) -> JsonValue:
    """Returns the answer in the shape of `recall --json`, with the memories added for the query's
    intent (`related`) and, for `explain`, the interpretation of the query."""
    found = await retrieved(sources, request)
    answer = _as_json(found.answer) | {"query": request.query}
    answer["related"] = [
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
        answer["understood"] = cast("JsonValue", found.explain())
    return answer


def _as_json(answer: RecallAnswer) -> JsonObject:
    dumped: JsonValue = _adapter().dump_python(answer, mode="json")
    assert isinstance(dumped, dict)
    return dumped


async def search(sources: Sources, query: Query) -> JsonObject:
    """Like `recall`, by keywords only."""
    from palimpsest.stores.recall.retriever import Retriever

    settings = sources.settings.recall.model_copy(update={"fusion": "keyword", "rerank": "off"})
    wider = replace(query, limit=query.limit * WIDER)
    found = await Retriever(sources.shard_of(query.scope), settings).retrieve(wider, None)
    hits = tuple(result for result in found.answer.results if result.scores.keyword)
    return _as_json(replace(found.answer, results=hits[: query.limit]))


async def context(
    sources: Sources, query: Query, budget: int | None = None, session_id: str | None = None
) -> JsonValue:
    """Returns the Markdown block with its size in tokens; `text` is None if nothing is known. With
    a session, it begins with the short-term memory, without the query itself, and `offers_summary`
    says whether to ask the model for a summary: not when the user asks to remember something
    permanently."""
    from palimpsest.stores.recall.intent import complexity

    searched = _bounded(query)
    retriever, embedding = await _retriever(sources, searched)
    budget = complexity(searched.query).budget if budget is None else budget
    # The session's part compares the whole query with the messages of the session.
    block, offers = await _session_part(sources, query, session_id, budget)
    shown = frozenset() if block is None else frozenset(block.ids)
    # Two tokens for the blank line between the parts.
    rest = budget if block is None else budget - block.tokens - 2
    recalled = await retriever.context(searched, embedding, rest, shown)
    parts = [part for part in (block, recalled) if part is not None]
    answer: JsonObject = {
        "query": query.query,
        "text": "\n\n".join(part.text for part in parts) or None,
        "tokens": sum(part.tokens for part in parts) + 2 * (len(parts) - 1) if parts else 0,
        "ids": {},
        "offers_summary": offers,
    }
    if parts:
        ids: JsonObject = {} if block is None else {"session": [*block.ids]}
        ids |= {section: [*each] for section, each in (recalled.ids if recalled else {}).items()}
        answer |= {"budget": budget, "ids": ids}
    return answer


async def _session_part(
    sources: Sources, query: Query, session_id: str | None, budget: int
) -> tuple[SessionBlock | None, bool]:
    """The session's part of the block, and whether to ask the model for a summary."""
    from palimpsest.ops.operations.short_term import short_term
    from palimpsest.stores.recall.context import same_words
    from palimpsest.stores.recall.short_term import session_block

    if session_id is None:
        return None, False
    kept = await asyncio.to_thread(short_term, sources, query.scope, session_id)
    if kept is not None:
        words = same_words(query.query)
        since = tuple(each for each in kept.since_summary if same_words(each.content) != words)
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
    """Retrieves the results of every recall. `bench retrieval` calls it with other constants."""
    query = _bounded(query)
    retriever, embedding = await _retriever(sources, query, constants)
    return await retriever.retrieve(query, embedding)


async def _retriever(
    sources: Sources, query: Query, constants: RetrievalConstants | None = None
) -> tuple[Retriever, QueryEmbedding | None]:
    """The retriever and the query's vectors. Exemplars are embedded when a query first needs
    them."""
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
    """The query with its text cut to the maximum length, at the end of a word if possible."""
    text = query.query.strip()
    if len(text) > MAX_QUESTION_CHARACTERS:
        text = text[: MAX_QUESTION_CHARACTERS + 1].rsplit(None, 1)[0][:MAX_QUESTION_CHARACTERS]
        return replace(query, query=text)
    return query


async def _embedding(sources: Sources, text: str) -> QueryEmbedding | None:
    from palimpsest.stores.recall.token_leg import QueryEmbedding

    model = sources.embedding
    text = redacted(
        text, Policy.of(sources.settings.pii).kinds
    )  # the model may belong to a third party
    try:
        if isinstance(model, TokenEmbeddingModel):
            found = await model.embed_query_tokens(text)
            return QueryEmbedding(found.vector, found.tokens)
        return QueryEmbedding(await model.embed_query(text))
    except ModelError:
        return None  # `method` in the answer shows that vectors were not used


@cache
def _adapter() -> TypeAdapter[RecallAnswer]:
    from palimpsest.stores.recall.query import RecallAnswer

    return TypeAdapter(RecallAnswer)
