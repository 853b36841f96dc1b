"""Requests and answers of recall, as plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

Legs = Literal["hybrid", "keyword", "vector", "none"]
"""The legs that took part in a search; `none` if there was nothing to search by."""

Fusion = Literal["hybrid", "rrf", "keyword", "vector"]
"""How the legs are combined: by their scores, by reciprocal rank, or one leg alone."""


Absence = Literal[
    "inactive", "filtered", "not_considered", "returned", "grouped", "min_score", "limit"
]
"""Where a recall left a memory (`WhyNot`)."""

MarkKind = Literal["corrected", "superseded", "forgotten", "expired", "pending"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Why a statement of a memory must not be read as true today.

    `kind`: a person changed it (`corrected`), a newer statement replaced it (`superseded`), it was
    taken back (`forgotten`), its end is past (`expired`), or a newer statement against it waits for
    review (`pending`). `statement` is what no longer holds, as a fact says it; empty where that is
    the memory's whole text, and for `forgotten`. `text` is what holds or is said instead, None for
    nothing. `since` is when that was said, by the clock of who said it where that is known.
    """

    kind: MarkKind
    statement: str = ""
    text: str | None = None
    since: datetime | None = None


def described(mark: Mark) -> str:
    """Returns the mark in words, to follow the text."""
    since = "" if mark.since is None else f" since {mark.since.date()}"
    # The sentences stand within one.
    statement, text = mark.statement.rstrip("."), (mark.text or "").rstrip(".")
    match mark.kind:
        case "pending":
            instead = f", instead of: {statement}" if statement else ""
            return f"(a newer statement waits for review: {text}{instead})"
        case "expired":
            until = "" if mark.since is None else f"until {mark.since.astimezone(UTC).date()}; "
            return f"({until}over now{f': {statement}' if statement else ''})"
        case "forgotten":
            return "(partly forgotten)"
    if not statement:
        return f"(no longer so{since}{f': {text}' if text else ''})"
    if not text:
        return f"(no longer: {statement};{since or ' taken back'})"
    return f"(no longer: {statement};{since or ' now'}: {text})"


def in_words(marks: Sequence[Mark]) -> str:
    return " ".join(map(described, marks))


def with_marks(text: str, marks: Sequence[Mark]) -> str:
    """Returns the text with its marks in words."""
    return f"{text} {in_words(marks)}" if marks else text


IS_PENDING: Final = """o.event = 'blocked' AND NOT starts_with(h.content, '[erased ')
    AND NOT EXISTS (FROM memory_rows s WHERE s.memory_id = h.turn_memory_id AND s.is_deleted)"""
"""SQL: whether the change `h`, with the outcome `o` of its fact, waits for a person. Nobody can
approve one whose source was forgotten or erased, and it is not shown until that is recovered."""

METADATA_PASSES: Final = """list_bool_and(list_transform({wanted}, lambda pair: coalesce(
    ({memory}metadata::JSON::MAP(VARCHAR, JSON))[pair[:strpos(pair, '=') - 1]] ->> '$'
    = pair[strpos(pair, '=') + 1:], false)))"""
"""Whether a memory's own metadata has each requested `key=value`, in SQL: a top-level key whose
text is the value, or whose number, boolean or structure has this form in JSON."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question to one scope, up to `limit` results.

    The filters (`stores.recall.filters`) apply to the search and to everything shown, also to
    neighbours, what the intent adds and evidence: any of `types`; any of `tags`, all of `all_tags`,
    any of `categories`; said by `who`, or derived from something said by them (ignoring case);
    `pinned`; at least `min_importance`, as which a pinned one counts 1; `project` and `session_id`
    (empty: without one); every `key=value` of `metadata` (as in `METADATA_PASSES`); stated at or
    after `since` and before `until`. `as_of` leaves out what was not yet stored then, and the
    results have their texts of then; `valid_at` leaves out what ended by then. Times have a
    zone.

    `group`: a turn and the facts derived from it are one result. `explain` adds the parts of each
    score. `neighbours`: number of turns of the session on each side, returned with a result that is
    a turn. `rerank`: whether a cross-encoder reranks the first results (None: as configured).
    `asked_at` is the time of the question, to which its time words are relative (None: now);
    `min_score` the minimum score of a result (None: as configured). `roles`: said by any of these.
    `why_not`: the memories whose place or absence is to be explained.
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
    why_not: tuple[str, ...] = ()

    @property
    def question(self) -> str:
        """The part of `query` that asks."""
        # The operations' catalogue has this class, and loads no more than the standard library.
        from palimpsest.stores.recall.question import question_of

        return question_of(self.query)


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a result by itself, each 0..1 and unweighted: `keyword` the share of the
    query's information that its text contains, `vector` the centred cosine or the similarity of
    token vectors, `graph` the boost, `recency` and `importance`. None: that leg was off, or the
    memory has no vector."""

    keyword: float | None
    vector: float | None
    graph: float
    recency: float
    importance: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The origin of a score. `parts` add up to it: `keyword` and `vector` as blended, then what
    each further step added or took (`role`, `echoes`, `facts`, `neighbours`, `questions`,
    `named`, `when`, `ended`, `profile`, `passage`, `graph`, `times`, `rerank`).
    `ranks` is the place in each leg among what was considered, from 1; None if it is no hit.
    `grouped` are the other memories that this result represents."""

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
    """A memory that was found. `derived_from` are the ids of the memories that it was derived from;
    `source_ids` the source ids of these, a turn's own for a turn. `valid_until` is its end, None if
    it has none; `expired`: the end is past. `role` is that of a turn's speaker, empty if it is not
    a turn or the role is unknown. `unlikely`: the score is low. `marks` say which of its statements
    no longer hold. `repeats` are the ids of memories that say the same in nearly the same words and
    are left out for it; `source_ids` has those of such turns, too."""

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
    repeats: tuple[str, ...] = ()
    last_accessed: datetime | None = None
    shown_importance: float | None = None


@dataclass(frozen=True, slots=True)
class RecallAnswer:
    """Results, best first, ties by id. `method` names the parts used: the legs (`Legs`), with
    `+cosine` or `+cross-encoder` if the first results were reranked by it, with `+mmr` if for
    variety. Configured parts that did not take part are left out. `notices`: filters that nothing
    in the scope can pass, and what was probably meant."""

    query: str
    method: str
    results: tuple[RecallResult, ...] = field(default=())
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Where a recall left a memory, by the first `reason` that applies. `inactive`: it is
    forgotten, or not of this scope; `filtered`: it does not pass these `filters` (`since` and
    `until` also by the times in the query's words); `not_considered`: no leg had it among its best,
    and it is near none of those; `returned`; `grouped`: the returned result `shown_by` represents
    it; `min_score`: its score is too low; `limit`: its rank is. `content` is its text of today,
    None if it is inactive.

    `rank` (from 1), `score`, `scores` and `explanation` are before reranking, and those of the
    result that represents it; a memory that was not considered has those that it would have had."""

    id: str
    reason: Absence
    content: str | None = None
    rank: int | None = None
    score: float | None = None
    scores: Scores | None = None
    explanation: Explanation | None = None
    shown_by: str | None = None
    filters: tuple[str, ...] = ()
