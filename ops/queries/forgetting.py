"""What forgetting would forget: candidates, what would go with them, and the token for them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from pydantic import JsonValue

from palimpsest.ops.queries.errors import RequestError
from palimpsest.ops.queries.memories import SAID_AS, SAID_BY
from palimpsest.ops.queries.recall import recall
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.selection import PreviewSelection
from palimpsest.ops.queries.sources import Sources, rows
from palimpsest.schemas.document_rows import DOCUMENT_CHUNK
from palimpsest.schemas.identity import erase_token, forget_token
from palimpsest.stores.database.derivations import by_memory, said_by, sources_of
from palimpsest.stores.index.analysis import STOP_WORDS, algorithm
from palimpsest.stores.recall.query import Query
from palimpsest.stores.shard import Shard
from palimpsest.streams.apply.cascade import drawn_from_nothing_else
from palimpsest.streams.apply.hiding import hidden_text
from palimpsest.streams.normalize import FORGOTTEN_UNCONFIRMED
from palimpsest.streams.store_port import Load, Loaded
from palimpsest.streams.text.identifiers import (
    alike,
    asked,
    has_case,
    having_words,
    identifiers,
    identifiers_asked,
    naming,
)

MOST: Final = 200
OF_A_QUESTION: Final = 20
SCORE_SHARE: Final = 0.8
VECTOR_SHARE: Final = 0.85
"""Of the best, above which something is meant by a question, too. Fitted to the statements of
tests/data/forgetting.jsonl: other facts of the same person reach .76 and .84 at most, the same in
other words or another language .84 and .88 at least."""
_COLUMNS = (
    "memory_id AS id, type, content, who, role, session_id, source_type, tags, pinned, version,"
    " occurred_at"
)


async def preview(sources: Sources, request: PreviewSelection) -> JsonObject:
    """`candidates` (with `score` for a question), `cascade` (what was drawn from nothing else),
    `not_found` ids, `more` where further ones match, and the `confirm_token`, which
    `needs_confirmation` says whether to give back. `hides` are the texts in which what is
    forgotten would be hidden, each with what is `left` of it (null: nothing). Raises RequestError
    for a request without any criterion."""
    limit = _checked(request)
    scores: dict[str, float] = {}
    if request.query is not None:
        scores = await _chosen(sources, request, request.query, limit)
    return await asyncio.to_thread(_preview, sources, request, limit, scores)


def count(sources: Sources, scope: str) -> JsonObject:
    """How many memories a scope holds, forgotten ones too, with the token to erase them."""
    [found] = rows(
        sources.shard_of(scope),
        "SELECT count(*) AS memories FROM memory_rows WHERE scope = ? AND content_hash <> ''",
        [scope],
    )
    memories = int(str(found["memories"]))
    return {"scope": scope, "memories": memories, "confirm_token": erase_token(scope, memories)}


def _checked(request: PreviewSelection) -> int:
    request.check_selection()
    limit = request.limit or (MOST if request.query is None else OF_A_QUESTION)
    if not 1 <= limit <= MOST or len(request.memory_ids) > MOST:
        raise RequestError(f"from 1 to {MOST} memories can be forgotten at once")
    return limit


async def _chosen(
    sources: Sources, request: PreviewSelection, text: str, limit: int
) -> dict[str, float]:
    """The scores of what a question means. With a least score all that reach it; else what has the
    identifiers that it gives; else, of what has its names, what is about as near to it as the
    nearest."""
    answer = await recall(
        sources,
        Query(
            scope=request.scope,
            query=text,
            limit=MOST,
            types=tuple(request.types),
            tags=tuple(request.tags),
            who=request.who,
            roles=tuple(request.roles),
            min_score=request.min_score,
            since=request.since,
            until=request.until,
            group=False,
        ),
    )
    found = cast("dict[str, list[JsonObject]]", answer)["results"]
    scores = {str(row["id"]): float(str(row["score"])) for row in found}
    if request.min_score is not None:
        return scores
    texts = await asyncio.to_thread(_texts, sources, request)
    ignored = STOP_WORDS.get(algorithm(sources.settings.search.language), frozenset())
    chosen = _meant(text, texts, [row for row in found if not row["unlikely"]], ignored)
    best = sorted(chosen, key=lambda key: (-scores.get(key, 0.0), key))
    return {key: scores.get(key, 0.0) for key in best[: limit + 1]}


def _meant(
    question: str, texts: Mapping[str, str], found: Sequence[JsonObject], ignored: frozenset[str]
) -> set[str]:
    """The ids of the texts that a question means; `found` is what a recall found likely."""
    chosen = _having(identifiers(question), texts)
    if not chosen:
        about, is_all, is_thing = asked(question)
        named = naming(about, texts, ignored)
        whole = having_words(named.rest, {key: texts[key] for key in named.ids or texts})
        is_exact = is_all or (is_thing and (bool(named.ids) or len(named.rest) > 1))
        if (whole and is_exact) or (named.ids and not named.rest):
            chosen = whole
        else:
            pool = [
                row
                for row in found
                if not named.ids or row["id"] in named.ids or not has_case(str(row["content"]))
            ]
            chosen = _nearest(pool)
        chosen -= alike(about, texts)
    kinds = identifiers_asked(question, [texts[key] for key in sorted(chosen & texts.keys())])
    return chosen | _having(kinds, texts)


def _having(patterns: Sequence[re.Pattern[str]], texts: Mapping[str, str]) -> set[str]:
    return {key for key, text in texts.items() if any(each.search(text) for each in patterns)}


def _nearest(found: Sequence[JsonObject]) -> set[str]:
    """What is about as near as the nearest, by its score or by its vector."""
    scores = {str(row["id"]): float(str(row["score"])) for row in found}
    vectors = {
        str(row["id"]): float(str(cast("JsonObject", row["scores"])["vector"] or 0.0))
        for row in found
    }
    best, nearest = max(scores.values(), default=0.0), max(vectors.values(), default=0.0)
    return {
        key
        for key, score in scores.items()
        if score >= SCORE_SHARE * best or vectors[key] >= max(VECTOR_SHARE * nearest, 0.01)
    }


def _texts(sources: Sources, request: PreviewSelection) -> dict[str, str]:
    """All that could be forgotten, each with who said it."""
    found = rows(
        sources.shard_of(request.scope),
        "SELECT memory_id, concat_ws(': ', nullif(who, ''), content) AS text FROM memory_rows"
        f" WHERE scope = ? AND {_left(request)}",
        [request.scope],
    )
    return {str(row["memory_id"]): str(row["text"]) for row in found}


def _preview(
    sources: Sources, request: PreviewSelection, limit: int, scores: Mapping[str, float]
) -> JsonObject:
    shard = sources.shard_of(request.scope)
    found = _matching(shard, request, limit, scores)
    more = len(found) > limit
    found = found[:limit]
    for row in found:
        row["score"] = scores.get(str(row["id"]))
    ids = [str(row["id"]) for row in found]
    along = _cascade(shard, request.scope, ids, _left(request))
    forgotten = [*found, *along] if request.cascade else found
    versions = {str(row["id"]): int(str(row["version"])) for row in forgotten}
    return {
        "scope": request.scope,
        "candidates": [*found],
        "cascade": [*along],
        "hides": [] if request.hard else _hides(shard, request.scope, [*versions]),
        "not_found": [key for key in request.memory_ids if key not in ids],
        "more": more,
        "needs_confirmation": more or len(found) > FORGOTTEN_UNCONFIRMED,
        "confirm_token": forget_token(request.scope, versions),
    }


def _hides(shard: Shard, scope: str, ids: Sequence[str]) -> list[JsonValue]:
    """The texts that these were drawn from, and that would be changed."""
    unit = shard.unit()
    loaded = unit.answer(Load(scope, sources_of=tuple(ids)))
    assert isinstance(loaded, Loaded)
    hidden: list[JsonValue] = []
    for source_id, source in sorted(loaded.sources.items()):
        if source.row.is_deleted or source_id in ids or source.row.type == DOCUMENT_CHUNK:
            continue
        forgotten = {each.memory_id for each in source.statements if each.is_forgotten}
        left = hidden_text(source, forgotten | set(ids)).text
        if left != source.row.content:
            row = source.row
            hidden.append({"id": source_id, "content": row.content, "left": left or None})
    return hidden


def _matching(
    shard: Shard, request: PreviewSelection, limit: int, scores: Mapping[str, float]
) -> list[JsonObject]:
    """One more than the limit, where there are so many."""
    given: list[tuple[str, object]] = [
        ("memory_id IN (SELECT unnest(?))", list(request.memory_ids) or None),
        ("memory_id IN (SELECT unnest(?))", None if request.query is None else list(scores)),
        ("type IN (SELECT unnest(?))", list(request.types) or None),
        ("list_has_any(tags, ?)", list(request.tags) or None),
        (SAID_BY, request.who),
        (SAID_AS, list(request.roles) or None),
        ("source_type = ?", request.source_type),
        ("occurred_at >= ?", request.since),
        ("occurred_at < ?", request.until),
    ]
    conditions, values = ["scope = ?", _left(request)], [cast("object", request.scope)]
    for condition, value in given:
        if value is not None:
            conditions.append(condition)
            values += [value] * condition.count("?")
    found = rows(
        shard,
        f"SELECT {_COLUMNS} FROM memory_rows WHERE {' AND '.join(conditions)}"
        f" ORDER BY occurred_at DESC, created_at DESC, memory_id LIMIT {limit + 1}",
        values,
    )
    return sorted(found, key=lambda row: -scores.get(str(row["id"]), 0.0))


def _left(request: PreviewSelection) -> str:
    """The condition on memories that may be forgotten still."""
    return "content_hash <> ''" if request.hard else "NOT is_deleted"


def _cascade(shard: Shard, scope: str, ids: Sequence[str], left: str) -> list[JsonObject]:
    """What would go with these, each with its sources in `drawn_from`."""
    sources: dict[str, tuple[str, ...]] = {}
    asked: set[str] = set()
    frontier = set(ids)
    with shard.reading() as reader:
        while frontier:
            asked |= frontier
            sources.update(by_memory(*sources_of(reader, scope, said_by(reader, scope, frontier))))
            frontier = sources.keys() - asked
    named = {*ids, *sources, *(source for known in sources.values() for source in known)}
    known = {str(row["id"]): row for row in _rows_of(shard, scope, named, left)}
    going = drawn_from_nothing_else(ids, sources, known.keys())
    return [known[key] | {"drawn_from": [*sources[key]]} for key in going]


def _rows_of(shard: Shard, scope: str, ids: Iterable[str], left: str) -> list[JsonObject]:
    return rows(
        shard,
        f"SELECT {_COLUMNS} FROM memory_rows WHERE scope = ? AND {left}"
        " AND memory_id IN (SELECT unnest(?))",
        [scope, sorted(ids)],
    )
