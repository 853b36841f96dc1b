"""Selects memories to forget: the selection's fields, the memories that match, and their
cascade."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from palimpsest.ops.errors import RequestError
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.memories import SAID_AS, SAID_BY, Recall
from palimpsest.ops.operations.notices import notices
from palimpsest.ops.operations.operation import Answer, Doc, Json, Read, Record, Surface, Texts
from palimpsest.ops.reading.rows import Row, rows, where

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources
    from palimpsest.stores.shard import Shard

MOST: Final = 200
OF_A_QUESTION: Final = 20
SCORE_SHARE: Final = 0.8
VECTOR_SHARE: Final = 0.85
"""Minimum shares of the best score and vector for a memory to match a question, too. Fitted to the
statements of tests/data/forgetting.jsonl: other facts of the same person reach a maximum of .76 and
.84, paraphrases and translations a minimum of .84 and .88."""
_COLUMNS = (
    "memory_id AS id, type, content, who, role, session_id, source_type, tags, pinned, version,"
    " occurred_at"
)

MemoryIds = Annotated[
    Texts,
    shared.ids_doc(
        "ids of memories, or their first 8 characters (whole over HTTP)", max_length=MOST
    ),
]
Cascade = Annotated[
    bool, Doc("also memories that were extracted from these alone", option="--cascade")
]
Query = Annotated[str | None, shared.text_doc("memories that match this query")]
SourceType = Annotated[str | None, Doc("with this source type", min_length=1, max_length=256)]
Limit = Annotated[
    int | None, Doc("maximum number of memories; by default 200, or 20 with a query", ge=1, le=200)
]


CRITERIA = ("query", "types", "tags", "who", "roles", "source_type", "since", "until")
"""Criteria that select memories, apart from ids."""


class Selection(Record):
    """The memories to forget: by ids, by a query, or by filters."""

    memory_ids: MemoryIds = ()
    scope: shared.Scope = ""
    query: Query = None
    types: shared.Types = ()
    tags: shared.Tags = ()
    who: shared.Who = None
    roles: shared.Roles = ()
    min_score: shared.MinScore = None
    source_type: SourceType = None
    since: shared.Since = None
    until: shared.Until = None
    limit: Limit = None
    cascade: Cascade = False

    def check_selection(self) -> None:
        """Raises RequestError if there is neither an id nor a criterion."""
        if not self.memory_ids and not any(getattr(self, name) for name in CRITERIA):
            raise RequestError(
                "nothing says what to forget; name ids, a question, or a type, tag, person, role,"
                " source type or time"
            )

    @property
    def is_by_ids(self) -> bool:
        """Whether there are only ids, so that no search is needed."""
        return bool(self.memory_ids) and not any(getattr(self, name) for name in CRITERIA)

    def selected(self) -> dict[str, Any]:
        """The fields of the selection."""
        return {each.name: getattr(self, each.name) for each in fields(Selection)}


class Candidate(Answer):
    """A memory that would be forgotten; `score` if a query found it. `drawn_from` are the memories
    whose removal would remove it; `left`: it would not go, but say this again, as another source
    does."""

    id: str
    type: str
    content: str
    who: str
    role: str
    session_id: str
    source_type: str
    tags: tuple[str, ...]
    pinned: bool
    version: int
    occurred_at: datetime
    score: float | None = None
    drawn_from: tuple[str, ...] = ()
    left: str | None = None


class HiddenText(Answer):
    """A text in which the forgotten statement would be hidden; `left` is the text still shown, None
    for nothing."""

    id: str
    content: str
    left: str | None


class ForgetPreview(Answer):
    """The memories that would be forgotten (`candidates`), and those drawn from these alone
    (`cascade`); `hides` are the texts in which they would be hidden. `more`: further memories
    match. `needs_confirmation`: `forget` requires the `confirm_token` for this many memories; it is
    for these memories at these versions. `notices`: filters that nothing in the scope can pass, and
    what was probably meant."""

    scope: str
    candidates: tuple[Candidate, ...]
    cascade: tuple[Candidate, ...]
    not_found: tuple[str, ...]
    more: bool
    needs_confirmation: bool
    confirm_token: str
    hides: tuple[HiddenText, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the candidates, for `forget`."""
        return tuple(each.id for each in self.candidates)


class PreviewForget(Selection, Read[ForgetPreview]):
    """Show the memories that would be forgotten, with the token that confirms it.

    The token is for exactly these memories at these versions, with `cascade` also for those that
    would be removed with them. `hard`: the memories that would be erased, including forgotten ones.
    """

    hard: Annotated[bool, Doc("preview an erasure")] = False

    surface: ClassVar = Surface(("POST", "/api/memory/forget/preview"), permission="forget")

    def validate(self) -> None:
        self.check_selection()

    async def read(self, sources: Sources) -> Json:
        import asyncio

        limit = self.limit or (MOST if self.query is None else OF_A_QUESTION)
        scores: dict[str, float] = {}
        if self.query is not None:
            scores = await _chosen(sources, self, self.query, limit)
        return await asyncio.to_thread(_preview, sources, self, limit, scores)


async def _chosen(
    sources: Sources, request: PreviewForget, text: str, limit: int
) -> dict[str, float]:
    """The scores of the memories that a question means. With `min_score`, all that reach it;
    otherwise those with its identifiers; otherwise, among those with its names, those about as near
    as the nearest."""
    import asyncio

    from palimpsest.stores.database.analysis import STOP_WORDS, algorithm

    names = ("scope", "types", "tags", "who", "roles", "min_score", "since", "until")
    filters = {name: getattr(request, name) for name in names}
    answer = await Recall(text, limit=MOST, group=False, **filters).read(sources)
    found = answer["results"]
    scores = {row["id"]: row["score"] for row in found}
    if request.min_score is not None:
        return scores
    texts = await asyncio.to_thread(_texts, sources, request)
    ignored = STOP_WORDS.get(algorithm(sources.settings.search.language), frozenset())
    chosen = _meant(text, texts, [row for row in found if not row["unlikely"]], ignored)
    best = sorted(chosen, key=lambda key: (-scores.get(key, 0.0), key))
    return {key: scores.get(key, 0.0) for key in best[: limit + 1]}


def _meant(
    question: str, texts: Mapping[str, str], found: Sequence[Row], ignored: frozenset[str]
) -> set[str]:
    """The ids of the texts that a question means; `found` is what a recall found likely."""
    from palimpsest.streams.sensitive.identifiers import (
        alike,
        asked,
        has_case,
        having_words,
        identifiers,
        identifiers_asked,
        naming,
    )

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
                if not named.ids or row["id"] in named.ids or not has_case(row["content"])
            ]
            # those about as near as the nearest, by score or by vector
            scores = {row["id"]: row["score"] for row in pool}
            vectors = {row["id"]: row["scores"]["vector"] or 0.0 for row in pool}
            best, nearest = max(scores.values(), default=0.0), max(vectors.values(), default=0.0)
            chosen = {
                key
                for key, score in scores.items()
                if score >= SCORE_SHARE * best or vectors[key] >= max(VECTOR_SHARE * nearest, 0.01)
            }
        chosen -= alike(about, texts)
    kinds = identifiers_asked(question, [texts[key] for key in sorted(chosen & texts.keys())])
    return chosen | _having(kinds, texts)


def _having(patterns: Sequence[re.Pattern[str]], texts: Mapping[str, str]) -> set[str]:
    return {key for key, text in texts.items() if any(each.search(text) for each in patterns)}


def _texts(sources: Sources, request: PreviewForget) -> dict[str, str]:
    """The texts of all memories that could be forgotten, each with its speaker."""
    found = rows(
        sources.shard_of(request.scope),
        "SELECT memory_id, concat_ws(': ', nullif(who, ''), content) AS text FROM memory_rows"
        f" WHERE scope = ? AND {_left(request)}",
        [request.scope],
    )
    return {row["memory_id"]: row["text"] for row in found}


def _preview(
    sources: Sources, request: PreviewForget, limit: int, scores: Mapping[str, float]
) -> Row:
    from palimpsest.schemas.identity import forget_token
    from palimpsest.streams.normalize import FORGOTTEN_UNCONFIRMED

    shard = sources.shard_of(request.scope)
    found = _matching(shard, request, limit, scores)
    more = len(found) > limit
    found = found[:limit]
    for row in found:
        row["score"] = scores.get(row["id"])
    ids = [row["id"] for row in found]
    along = _cascade(shard, request.scope, ids, _left(request))
    forgotten = [*found, *along] if request.cascade else found
    versions = {row["id"]: row["version"] for row in forgotten}
    hidden = [row["id"] for row in forgotten if row.get("left") is None]
    return {
        "scope": request.scope,
        "candidates": found,
        "cascade": along,
        "hides": [] if request.hard else _hides(shard, request.scope, hidden),
        "not_found": [key for key in request.memory_ids if key not in ids],
        "more": more,
        "needs_confirmation": more or len(found) > FORGOTTEN_UNCONFIRMED,
        "confirm_token": forget_token(request.scope, versions),
        "notices": notices(sources, request, None if request.hard else False),
    }


def _hides(shard: Shard, scope: str, ids: Sequence[str]) -> list[Row]:
    """The texts that these were extracted from and that would change."""
    from palimpsest.schemas.rows.memories import DOCUMENT_CHUNK
    from palimpsest.streams.apply.forget import hidden_text
    from palimpsest.streams.store_port import Load, Loaded

    unit = shard.unit()
    loaded = unit.answer(Load(scope, sources_of=tuple(ids)))
    assert isinstance(loaded, Loaded)
    hidden = []
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
    shard: Shard, request: PreviewForget, limit: int, scores: Mapping[str, float]
) -> list[Row]:
    """The matching memories, one more than the limit if there are more."""
    condition, values = where(
        [
            ("scope = ?", request.scope),
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
    )
    found = rows(
        shard,
        f"SELECT {_COLUMNS} FROM memory_rows WHERE {condition} AND {_left(request)}"
        f" ORDER BY occurred_at DESC, created_at DESC, memory_id LIMIT {limit + 1}",
        values,
    )
    return sorted(found, key=lambda row: -scores.get(row["id"], 0.0))


def _left(request: PreviewForget) -> str:
    """The SQL condition on memories that can still be forgotten."""
    return "content_hash <> ''" if request.hard else "NOT is_deleted"


def _cascade(shard: Shard, scope: str, ids: Sequence[str], left: str) -> list[Row]:
    """The memories that would be removed with these, each with its sources in `drawn_from`, or
    would say again what another source still says (`left`)."""
    from palimpsest.stores.database.derivations import (
        answers_of,
        by_memory,
        of_present_text,
        said_by,
        sources_of,
    )
    from palimpsest.streams.apply.forget import drawn_from_nothing_else, still_said
    from palimpsest.streams.store_port import Load, Loaded

    sources: dict[str, tuple[str, ...]] = {}
    visited: set[str] = set()
    frontier = set(ids)
    with shard.reading() as reader:
        while frontier:
            visited |= frontier
            drawn, stated = sources_of(reader, scope, said_by(reader, scope, frontier))
            found = by_memory(drawn, stated)
            texts = reader.execute(
                "SELECT memory_id, content FROM memory_rows WHERE memory_id IN (SELECT unnest(?))",
                [[*found]],
            ).fetchall()
            sources.update(of_present_text(found, stated, dict(texts)))
            frontier = sources.keys() - visited
        answers = answers_of(reader, scope, sources)
    named = {*ids, *sources, *(source for known in sources.values() for source in known)}
    these = (
        f"SELECT {_COLUMNS} FROM memory_rows WHERE scope = ? AND {left}"
        " AND memory_id IN (SELECT unnest(?))"
    )
    known = {row["id"]: row for row in rows(shard, these, [scope, sorted(named)])}
    going = drawn_from_nothing_else(ids, sources, known.keys(), answers)
    unit, changed = shard.unit(), tuple(key for key in going if known[key]["version"] > 1)
    loaded = unit.answer(Load(scope, memory_ids=changed, sources_of=changed, states_of=changed))
    assert isinstance(loaded, Loaded)
    back = {
        key: row
        for key, row in still_said(loaded, {*ids, *going}).items()
        if not loaded.memories[key].is_deleted
    }
    hashes = tuple(row.content_hash for row in back.values())
    same = unit.answer(Load(scope, content_hashes=hashes))
    assert isinstance(same, Loaded)
    again = {
        key: row.content
        for key, row in back.items()
        if same.by_hash.get(row.content_hash, row).memory_id == key
    }
    return [known[key] | {"drawn_from": [*sources[key]], "left": again.get(key)} for key in going]
