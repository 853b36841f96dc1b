"""Finding memories, reading them one by one and in lists, and explaining them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from palimpsest.ops.operations.answers import StoredMemory
from palimpsest.ops.operations.operation import (
    AnyScope,
    AskedAt,
    Categories,
    Cursor,
    Doc,
    Json,
    Limit,
    MemoryId,
    MetadataFilter,
    MinScore,
    Question,
    Read,
    Roles,
    Scope,
    ScopeOfId,
    SessionId,
    Since,
    Surface,
    Tags,
    Texts,
    Types,
    Until,
    ValidAt,
    Who,
)
from palimpsest.stores.recall.query import Mark, RecallAnswer

if TYPE_CHECKING:
    from palimpsest.ops.queries.sources import Sources
    from palimpsest.stores.recall.query import Query


@dataclass(frozen=True, slots=True)
class RelatedMemory:
    """A memory that the question's intent added to the results, and why."""

    id: str
    content: str
    type: str
    who: str
    role: str
    occurred_at: datetime
    score: float
    reason: str
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Recalled(RecallAnswer):
    """The results of a recall, best first. `related` is what the question's intent adds;
    `understood`, with `explain`, how the question was read."""

    related: tuple[RelatedMemory, ...] = ()
    understood: Any = None


@dataclass(frozen=True, slots=True)
class Recall(Read[Recalled]):
    """Find memories by meaning and by words, best first, with the parts of each score.

    Whatever is shown passes all filters, also neighbours and what the question's intent adds.

    Example: palimpsest recall "what does Ana drink?" --scope support
    """

    query: Question
    scope: Scope = ""
    limit: Limit = 10
    types: Types = ()
    tags: Tags = ()
    all_tags: Annotated[Texts, Doc("with all of these tags", max_length=50, item_length=256)] = ()
    categories: Categories = ()
    metadata: MetadataFilter = ()
    who: Who = None
    roles: Roles = ()
    pinned: Annotated[bool | None, Doc("only pinned ones, or only others")] = None
    min_importance: Annotated[float | None, Doc("least importance, from 0 to 1", ge=0, le=1)] = None
    project: Annotated[str | None, Doc("of this project", max_length=256)] = None
    session_id: SessionId = None
    since: Since = None
    until: Until = None
    as_of: Annotated[
        datetime | None, Doc("texts as of then, found by the words and vectors of today")
    ] = None
    valid_at: ValidAt = None
    asked_at: AskedAt = None
    min_score: MinScore = None
    group: Annotated[bool, Doc("a fact and its turns are one result")] = True
    explain: Annotated[bool, Doc("with the parts of each score", option="--explain")] = False
    neighbours: Annotated[
        int, Doc("turns of the session around a result that is a turn, on each side", ge=0, le=20)
    ] = 0
    rerank: Annotated[
        bool | None,
        Doc("read the first results again with a cross-encoder (English); else as set"),
    ] = None

    surface: ClassVar = Surface(
        ("POST", "/api/memory/recall"), command="recall", tool="search_memory"
    )

    def as_query(self) -> Query:
        """The question as the stores take it."""
        from palimpsest.stores.recall.query import Query

        return Query(**{each.name: getattr(self, each.name) for each in fields(Query)})

    async def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.recall import recall

        return await recall(sources, self.as_query())


@dataclass(frozen=True, slots=True)
class Search(Read[RecallAnswer]):
    """Find memories by their words alone, best first; no vector takes part.

    Example: palimpsest search "coffee" --scope support
    """

    query: Annotated[
        str, Doc("words to look for", min_length=1, max_length=2_000, not_blank=True, argument=True)
    ]
    scope: Scope = ""
    limit: Limit = 10
    types: Types = ()
    roles: Roles = ()

    surface: ClassVar = Surface(("GET", "/api/memory/search"), command="search")

    def as_query(self) -> Query:
        """The question as the stores take it."""
        from palimpsest.stores.recall.query import Query

        return Query(
            self.scope,
            self.query,
            self.limit,
            tuple(self.types),
            roles=tuple(self.roles),
            group=False,
        )

    async def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.recall import search

        return await search(sources, self.as_query())


@dataclass(frozen=True, slots=True)
class ContextBlock:
    """A Markdown block for a model's prompt; `text` is None where nothing is known, `tokens` its
    size and `budget` what it was allowed. `ids` are those of the memories shown, by section.
    `offers_summary`: a model should be asked for a summary of the session, which it should not when
    it is asked to remember something for good."""

    query: str
    text: str | None
    tokens: int
    ids: dict[str, tuple[str, ...]]
    offers_summary: bool = False
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class Context(Read[ContextBlock]):
    """Collect what is known about a question, as Markdown for a model's prompt.

    A standing profile of the people that it is about, then what helps most to answer, by day.

    Example: palimpsest context "what does Ana drink?" --scope support
    """

    query: Annotated[
        str,
        Doc(
            "what the answer will be about",
            min_length=1,
            max_length=100_000,
            not_blank=True,
            argument=True,
        ),
    ]
    scope: Scope = ""
    budget: Annotated[
        int | None,
        Doc("maximum size in tokens; else by the question's complexity", ge=50, le=100_000),
    ] = None
    session_id: Annotated[
        str | None, Doc("begin with the short-term memory of this session", max_length=256)
    ] = None
    asked_at: AskedAt = None
    min_score: MinScore = None

    surface: ClassVar = Surface(
        ("POST", "/api/memory/context"), command="context", tool="get_context"
    )

    def as_query(self) -> Query:
        """The question as the stores take it."""
        from palimpsest.stores.recall.query import Query

        return Query(self.scope, self.query, asked_at=self.asked_at, min_score=self.min_score)

    async def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.recall import context

        return await context(
            sources, self.as_query(), budget=self.budget, session_id=self.session_id
        )


@dataclass(frozen=True, slots=True)
class Get(Read[StoredMemory]):
    """Show one memory with all its fields, also a forgotten one.

    Example: palimpsest get 1f0c9a52
    """

    memory_id: MemoryId
    scope: ScopeOfId = None

    surface: ClassVar = Surface(("GET", "/api/memory/{memory_id}"), command="get", routing="id")

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.memories import get

        return get(sources, self.memory_id)


@dataclass(frozen=True, slots=True)
class Located:
    """The whole id of a memory, its scope and its version."""

    id: str
    scope: str
    version: int


@dataclass(frozen=True, slots=True)
class Locate(Read[Located]):
    """Find the scope of a memory, which an operation about it needs."""

    memory_id: MemoryId

    surface: ClassVar = Surface(routing="id")

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.memories import scope_of

        return scope_of(sources, self.memory_id)


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """Memories, newest first; `next_cursor` is the `cursor` of the page after, None on the last."""

    memories: tuple[StoredMemory, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class List(Read[MemoryPage]):
    """List memories, newest first, page by page.

    Example: palimpsest list --scope support --types preference
    """

    scope: AnyScope = None
    types: Types = ()
    session_id: SessionId = None
    who: Who = None
    roles: Roles = ()
    categories: Categories = ()
    metadata: MetadataFilter = ()
    temporal: Annotated[
        bool | None,
        Doc("only what ends by itself, or only all else", option="--temporal/--persistent"),
    ] = None
    valid_at: ValidAt = None
    deleted: Annotated[bool, Doc("forgotten ones instead", option="--deleted")] = False
    memory_ids: Annotated[
        Texts, Doc("only these, by whole ids", max_length=500, item_length=64)
    ] = ()
    limit: Limit = 20
    cursor: Cursor = None

    surface: ClassVar = Surface(("GET", "/api/memories"), command="list")

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.memories import list_memories

        return list_memories(
            sources,
            scope=self.scope,
            types=self.types,
            session_id=self.session_id,
            who=self.who,
            roles=self.roles,
            categories=self.categories,
            metadata=tuple(self.metadata),
            temporal=self.temporal,
            valid_at=self.valid_at,
            deleted=self.deleted,
            memory_ids=self.memory_ids,
            limit=self.limit,
            after=self.cursor,
        )

    def merge(self, answers: Sequence[Json]) -> Json:
        from palimpsest.ops.queries.memories import NEWEST
        from palimpsest.ops.queries.pages import paged

        return paged(answers, self.limit, "memories", NEWEST)


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """Something that happened to a memory, and by whom."""

    event_id: str
    event: str
    old_content: str | None
    new_content: str | None
    changed_by: str
    actor_type: str
    reason: str
    metadata: dict[str, Any]
    session_id: str
    correlation_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class MemoryHistory:
    """What happened to a memory, in order."""

    id: str
    events: tuple[AuditEvent, ...]


@dataclass(frozen=True, slots=True)
class History(Read[MemoryHistory]):
    """Show everything that happened to a memory, in order.

    Example: palimpsest history 1f0c9a52
    """

    memory_id: MemoryId
    scope: ScopeOfId = None
    limit: Annotated[int, Doc("maximum number of events", ge=1, le=1_000)] = 200

    surface: ClassVar = Surface(
        ("GET", "/api/memory/{memory_id}/history"),
        command="history",
        panel="Explain and review",
        routing="id",
    )

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.provenance import history

        return history(sources, self.memory_id, self.limit)


@dataclass(frozen=True, slots=True)
class Provenance:
    """A memory with all that led to it: the turns that it was drawn from (`derived_from`; of a
    turn, the `facts` drawn from it), its states before, newest first, what was decided about it
    with the candidates seen and the outcome, the entities that it names, and its events."""

    memory: StoredMemory
    derived_from: tuple[StoredMemory, ...]
    facts: tuple[StoredMemory, ...]
    before: tuple[dict[str, Any], ...]
    decisions: tuple[dict[str, Any], ...]
    entities: tuple[dict[str, Any], ...]
    history: tuple[AuditEvent, ...]


@dataclass(frozen=True, slots=True)
class Explain(Read[Provenance]):
    """Explain a memory: the turns it came from, what it was before, what was decided and why.

    Example: palimpsest explain 1f0c9a52
    """

    memory_id: MemoryId
    scope: ScopeOfId = None

    surface: ClassVar = Surface(
        ("GET", "/api/memory/{memory_id}/explain"),
        command="explain",
        panel="Explain and review",
        routing="id",
        tool="explain_fact",
    )

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.provenance import explain

        return explain(sources, self.memory_id)


@dataclass(frozen=True, slots=True)
class Memories:
    """Memories in the order that was asked for."""

    memories: tuple[StoredMemory, ...]


@dataclass(frozen=True, slots=True)
class Weak(Read[Memories]):
    """List memories that rest on little and that no one confirmed, the least certain first.

    `palimpsest confirm` settles one that is right, `correct` or `forget` one that is not.

    Example: palimpsest weak --scope support
    """

    scope: Scope = ""
    below: Annotated[float, Doc("of a confidence under this", ge=0, le=1)] = 0.8
    limit: Limit = 20

    surface: ClassVar = Surface(
        ("GET", "/api/weak"),
        tag="overviews",
        command="weak",
        panel="Explain and review",
        tool="weak_facts",
    )

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.memories import weak

        return weak(sources, self.scope, self.below, self.limit)


@dataclass(frozen=True, slots=True)
class MemoryVector:
    """The vector of a memory, by the model in use."""

    id: str
    scope: str
    model: str
    dimensions: int
    content_hash: str
    vector: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class VectorPage:
    """Vectors, by the ids of their memories; `next_cursor` is None on the last page."""

    embeddings: tuple[MemoryVector, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Embeddings(Read[VectorPage]):
    """Read the vectors of a scope's active memories, page by page."""

    scope: Scope = ""
    memory_ids: Annotated[
        Texts,
        Doc("only these, also forgotten ones, by whole ids", max_length=500, item_length=64),
    ] = ()
    limit: Limit = 500
    cursor: Cursor = None

    surface: ClassVar = Surface(overview=True)

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.embeddings import embeddings

        return embeddings(sources, self.scope, self.memory_ids, self.limit, self.cursor)
