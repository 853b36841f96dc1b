"""Recall: embeds the query, searches the scope's shard and reports the parts of every score."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Final, cast

from pydantic import JsonValue, TypeAdapter

from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.sql.values import plain
from palimpsest.schemas.echoes import marked
from palimpsest.schemas.envelope import local_time
from palimpsest.schemas.normal_forms import statement_key
from palimpsest.schemas.rows.sessions import ShortTermRow
from palimpsest.stores.database.tables import select
from palimpsest.stores.recall.marks import marks_of
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.short_term import KeptTurn, ShortTerm, within
from palimpsest.stores.shard import Shard
from palimpsest.streams.fading import DAY, shown_importance
from palimpsest.streams.models.base import EmbeddingModel, ModelError, TokenEmbeddingModel
from palimpsest.streams.rules.explicit_intent import asks_to_remember
from palimpsest.streams.sensitive.detection import redacted
from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.settings import ShortTermSettings
from palimpsest.streams.text.hiding import PLACEHOLDER

if TYPE_CHECKING:
    from palimpsest.stores.recall.answers import Retrieval, RetrievalConstants
    from palimpsest.stores.recall.query import RecallAnswer
    from palimpsest.stores.recall.retriever import Retriever
    from palimpsest.stores.recall.short_term import SessionBlock
    from palimpsest.stores.recall.token_leg import QueryEmbedding

WIDER = 3
"""Factor on the limit of a keyword search: neighbours of hits are removed from the results."""
MAX_QUESTION_CHARACTERS: Final = 10_000
"""Of a longer query only the part that asks is read, and no more than this: more words find no
more, and slow down all concurrent requests."""


async def recall(sources: Sources, request: Query) -> JsonObject:
    """Returns the answer in the shape of `recall --json`, with the memories added for the query's
    intent (`related`), where others were left (`why_not`) and, for `explain`, the interpretation
    of the query."""
    query = _bounded(request)
    retriever, embedding = await _retriever(sources, query)
    found = await retriever.retrieve(query, embedding)
    answer = _as_json(_weighed(sources, found.answer)) | {"query": request.query}
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
    if request.why_not:
        # Forgotten memories and those of other scopes are told apart by nothing.
        reasons = await retriever.why_not(query, embedding, found)
        answer["why_not"] = [plain(asdict(each)) for each in reasons]
    if request.explain:
        answer["understood"] = cast("JsonValue", found.explain())
    return answer


def _weighed(sources: Sources, answer: RecallAnswer) -> RecallAnswer:
    """The answer with the importance of each result as it is shown now."""
    rate, now = sources.settings.decay.importance_rate, sources.now()
    results = []
    for each in answer.results:
        days = (now - (each.last_accessed or each.created_at)) / DAY
        shown = shown_importance(each.importance, rate, each.pinned, days)
        results.append(replace(each, shown_importance=round(shown, 3)))
    return replace(answer, results=tuple(results))


def _as_json(answer: RecallAnswer) -> JsonObject:
    dumped: JsonValue = _adapter().dump_python(answer, mode="json")
    assert isinstance(dumped, dict)
    return dumped


async def search(sources: Sources, query: Query) -> JsonObject:
    """Like `recall`, by keywords only."""
    from palimpsest.stores.recall.retriever import Retriever

    settings = sources.settings.recall.model_copy(update={"fusion": "keyword", "rerank": "off"})
    wider = replace(_bounded(query), limit=query.limit * WIDER)
    space = sources.shard_of(query.scope).space
    found = await Retriever(space, settings).retrieve(wider, None)
    hits = tuple(result for result in found.answer.results if result.scores.keyword)
    answer = replace(found.answer, query=query.query, results=hits[: query.limit])
    return _as_json(_weighed(sources, answer))


async def context(
    sources: Sources,
    query: Query,
    budget: int | None = None,
    session_id: str | None = None,
    explain: bool = False,
) -> JsonValue:
    """Returns the Markdown block between the marks by which an echo of it is recognized, with its
    size in tokens; `text` is None if nothing is known. With a session, it begins with the
    short-term memory, without the query itself, and `offers_summary` says whether to ask the model
    for a summary: not when the user asks to remember something permanently. `explain`: with the
    `lines` of the block."""
    from palimpsest.stores.recall.context import estimate_tokens
    from palimpsest.stores.recall.intent import complexity

    searched = _bounded(query)
    retriever, embedding = await _retriever(sources, searched)
    budget = complexity(searched.query).budget if budget is None else budget
    # The session's part compares the whole query with the messages of the session.
    room = budget - estimate_tokens(marked(""))
    block, offers = await _session_part(sources, query, session_id, room)
    shown = frozenset() if block is None else frozenset(block.ids)
    # Two tokens for the blank line between the parts.
    rest = room if block is None else room - block.tokens - 2
    recalled = await retriever.context(searched, embedding, rest, shown)
    parts = [part for part in (block, recalled) if part is not None]
    text = marked("\n\n".join(part.text for part in parts)) if parts else None
    answer: JsonObject = {
        "query": query.query,
        "text": text,
        "tokens": 0 if text is None else estimate_tokens(text),
        "ids": {},
        "offers_summary": offers,
    }
    if parts:
        ids: JsonObject = {} if block is None else {"session": [*block.ids]}
        ids |= {section: [*each] for section, each in (recalled.ids if recalled else {}).items()}
        answer |= {"budget": budget, "ids": ids}
    if text is not None and explain:
        # A mark begins and ends the block, and a blank line divides its parts.
        line_ids = [each for part in parts for each in ((), *part.line_ids)] + [()]
        lines = zip(text.split("\n"), line_ids, strict=True)
        answer["lines"] = [
            {"text": line, "tokens": estimate_tokens(line), "memory_ids": [*ids_of]}
            for line, ids_of in lines
        ]
    return answer


async def _session_part(
    sources: Sources, query: Query, session_id: str | None, budget: int
) -> tuple[SessionBlock | None, bool]:
    """The session's part of the block, and whether to ask the model for a summary."""
    from palimpsest.ops.operations.recalling import short_term
    from palimpsest.stores.recall.short_term import session_block

    if session_id is None:
        return None, False
    kept = await asyncio.to_thread(short_term, sources, query.scope, session_id)
    if kept is not None:
        words = statement_key(query.query)
        since = tuple(each for each in kept.since_summary if statement_key(each.content) != words)
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

    question = query.question
    # One vector space for the whole search: the shard may change to another meanwhile.
    space = sources.shard_of(query.scope).space
    model = sources.embeddings.searching(space.options.embedding_model)
    embedding = await _embedding(sources, model, question)
    exemplars = None
    settings = sources.settings
    by_exemplars = settings.recall.intent == "exemplars"
    if by_exemplars and embedding is not None and by_keyword(question).intent == "general":
        exemplars = await sources.exemplars.of(model)
    retriever = Retriever(
        space,
        settings.recall,
        settings.graph.enabled,
        constants or CONSTANTS,
        exemplars,
        model,
        pairs=sources.cross_encoder,
    )
    return retriever, embedding


def _bounded(query: Query) -> Query:
    """The query with its text cut to the maximum length, to what asks in it or else at the end of a
    word if possible."""
    if len(query.query.strip()) <= MAX_QUESTION_CHARACTERS:
        return query
    text = query.question.strip()
    if len(text) > MAX_QUESTION_CHARACTERS:
        text = text[: MAX_QUESTION_CHARACTERS + 1].rsplit(None, 1)[0][:MAX_QUESTION_CHARACTERS]
    return replace(query, query=text)


async def _embedding(sources: Sources, model: EmbeddingModel, text: str) -> QueryEmbedding | None:
    from palimpsest.stores.recall.token_leg import QueryEmbedding

    text = redacted(
        text, Policy.of(sources.settings.pii).kinds
    )  # the model may belong to a third party
    call = sources.embeddings.breaker_of(model.model).call
    try:
        if isinstance(model, TokenEmbeddingModel):
            found = await call(partial(model.embed_query_tokens, text))
            return QueryEmbedding(found.vector, found.tokens, model.token_counts)
        return QueryEmbedding(await call(partial(model.embed_query, text)))
    except ModelError:
        return None  # `method` in the answer shows that vectors were not used


@cache
def _adapter() -> TypeAdapter[RecallAnswer]:
    from palimpsest.stores.recall.query import RecallAnswer

    return TypeAdapter(RecallAnswer)


# ---- short-term memory ----
def short_term(sources: Sources, scope: str, session_id: str) -> ShortTerm | None:
    """Returns the unexpired short-term memory of a session."""
    settings, shard = sources.settings.short_term, sources.shard_of(scope)
    return short_term_of(shard, settings, sources.now(), scope, session_id)


def short_term_of(
    shard: Shard,
    settings: ShortTermSettings,
    at: datetime,
    scope: str,
    session_id: str,
    marked: bool = True,
) -> ShortTerm | None:
    """Returns the short-term memory that is unexpired at a time. Texts come from the turns' current
    memories. Forgotten turns are left out, and so is a summary written after a turn that is
    forgotten in whole or in part. `marked`: with the marks of the turns."""
    with shard.reading() as reader:
        found = select(reader, ShortTermRow, "scope = ? AND session_id = ?", [scope, session_id])
        row = found[0].left_at(at) if found else None
        if row is None:
            return None
        texts = reader.execute(
            "SELECT memory_id, who, content, occurred_at, coalesce(utc_offset_minutes, 0)"
            " FROM memory_rows"
            " WHERE scope = ? AND NOT is_deleted AND memory_id IN (SELECT unnest(?))",
            [scope, list(row.turns)],
        ).fetchall()
        marks = marks_of(reader, scope, row.turns, at) if marked else {}
    known = {
        key: KeptTurn(key, who, content, local_time(said_at, zone), marks.get(key, ()))
        for key, who, content, said_at, zone in texts
    }
    position = -1
    if row.summarized_through in row.turns:
        position = row.turns.index(row.summarized_through)
    rests_on = row.turns[: position + 1]
    is_whole = all(turn in known and PLACEHOLDER not in known[turn].content for turn in rests_on)
    turns = [known[turn] for turn in row.turns if turn in known]
    later = [known[turn] for turn in row.turns[position + 1 :] if turn in known]
    kept = ShortTerm(
        turns=within(turns, settings.turns, settings.characters),
        turns_expire_at=row.turns_expire_at,
        explicit_intent=row.explicit_intent,
        since_summary=within(later, settings.turns, settings.characters),
    )
    if row.summary is not None and is_whole:
        kept = replace(
            kept,
            summary=row.summary,
            summary_by=row.summary_by,
            summary_at=row.summary_at,
            summary_expires_at=row.summary_expires_at,
        )
    return kept if kept.turns or kept.summary is not None else None
