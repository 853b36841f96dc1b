"""Requests and answers of recall, as plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

Legs = Literal["hybrid", "keyword", "vector", "none"]
"""Which legs took part in a search; `none` where there was nothing to search by."""

Fusion = Literal["hybrid", "rrf", "keyword", "vector"]
"""How legs are joined: their scores, by reciprocal rank, or one leg alone."""


MarkKind = Literal["corrected", "superseded", "forgotten", "expired", "pending"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Why a statement of a memory must not be read as true today.

    `kind`: a person changed it (`corrected`), a newer statement replaced it (`superseded`), it was
    taken back (`forgotten`), its end is past (`expired`), or a newer statement against it waits for
    review (`pending`). `statement` is what no longer holds, as a fact says it; empty where that is
    the memory's whole text, and for `forgotten`. `text` is what holds or is said instead, None for
    nothing. `since` is when that was said, with a zone.
    """

    kind: MarkKind
    statement: str = ""
    text: str | None = None
    since: datetime | None = None


METADATA_PASSES: Final = """list_bool_and(list_transform({wanted}, lambda pair: coalesce(
    ({memory}metadata::JSON::MAP(VARCHAR, JSON))[pair[:strpos(pair, '=') - 1]] ->> '$'
    = pair[strpos(pair, '=') + 1:], false)))"""
"""Whether a memory's own metadata has each of the `key=value` that are wanted, in SQL: a top-level
key whose text is the value, or whose number, truth or structure is so written in JSON."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question to one scope, up to `limit` results.

    Filters, applied before the search; whatever is shown passes all of them, also neighbours, what
    the intent adds and evidence: any of `types`; any of `tags`, all of `all_tags`, any of
    `categories`; `who` said it, or said what it was drawn from (case ignored); `pinned`;
    `min_importance` and more; `project` and `session_id` (empty: of none); every `key=value` of
    `metadata` (as `METADATA_PASSES` has it); told at or after `since` and before `until`. `as_of`
    leaves out what was not yet stored then; what is found has its text of then; `valid_at` what
    was so only until then. Times have a zone.

    `group`: a turn and the facts drawn from it are one result. `explain` tells the parts of each
    score. `neighbours`: turns of the session on each side, given with a result that is a turn.
    `rerank`: whether the first results are read again by a cross-encoder; None: as is set.
    `asked_at` is when the question is asked, from which its time words count (None: now);
    `min_score` the least score of a result (None: as is set). `roles`: any of these said it.
    """

    scope: str
    query: str
    limit: int = 10
    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    all_tags: tuple[str, ...] = ()
    who: str | None = None
    pinned: bool | None = None
    min_importance: float | None = None
    project: str | None = None
    session_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    as_of: datetime | None = None
    categories: tuple[str, ...] = ()
    valid_at: datetime | None = None
    group: bool = True
    explain: bool = False
    neighbours: int = 0
    rerank: bool | None = None
    asked_at: datetime | None = None
    min_score: float | None = None
    roles: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scores:
    """What a result has of its own, each 0..1 and before anything is weighed: `keyword` the share
    of the query's information that its text holds, `vector` the centred cosine, or with token
    vectors how near they are to the query's, `graph` what the
    graph gave it, `recency` and `importance`. None: that leg was off, or the memory has no
    vector."""

    keyword: float | None
    vector: float | None
    graph: float
    recency: float
    importance: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a score came about. `parts` add up to it: `keyword` and `vector` as blended, then what
    each further step added or took (`role`, `facts`, `neighbours`, `questions`, `named`, `ended`,
    `profile`, `graph`, `times`, `rerank`).
    `ranks` is the place in each leg among what was considered, from 1; None where it is no hit.
    `grouped` are the memories that this result stands for alongside itself."""

    parts: Mapping[str, float]
    ranks: Mapping[str, int | None]
    grouped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A turn `offset` places after (before: negative) a result in its session."""

    id: str
    offset: int
    content: str
    who: str
    occurred_at: datetime
    role: str = ""
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class RecallResult:
    """A memory that was found. `derived_from` are the ids of the memories that it was drawn from;
    `source_ids` the source ids of these, a turn's own for a turn. `valid_until` is until when it is
    so, None for good; `expired` tells that this is past. `role` is that of a turn's speaker, empty
    for what is no turn and where it is not known. `unlikely`: nothing much speaks for it. `marks`
    tell what of it no longer holds."""

    id: str
    content: str
    type: str
    score: float
    scores: Scores
    source: Literal["hybrid", "vector", "keyword"]
    scope: str
    who: str
    session_id: str
    source_id: str | None
    source_ids: tuple[str, ...]
    derived_from: tuple[str, ...]
    tags: tuple[str, ...]
    categories: tuple[str, ...]
    pinned: bool
    importance: float
    occurred_at: datetime
    created_at: datetime
    project: str | None = None
    valid_until: datetime | None = None
    expired: bool = False
    neighbours: tuple[Neighbour, ...] = ()
    explanation: Explanation | None = None
    role: str = ""
    unlikely: bool = False
    marks: tuple[Mark, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecallAnswer:
    """Results, best first, ties by id. `method` names what took part: the legs (`Legs`), with
    `+cosine` or `+cross-encoder` if the first results were reranked by it, with `+mmr` if for
    variety. Configured parts that did not take part are left out."""

    query: str
    method: str
    results: tuple[RecallResult, ...] = field(default=())
