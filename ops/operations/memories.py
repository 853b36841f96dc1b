"""Finding memories, and reading them one by one and in lists."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from palimpsest.ops.errors import no_memory
from palimpsest.ops.lifecycle.accesses import Accessed
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.answers import StoredMemory
from palimpsest.ops.operations.notices import notices
from palimpsest.ops.operations.operation import Answer, Doc, Json, Read, Surface, Texts
from palimpsest.ops.reading.rows import (
    Parameters,
    Row,
    at_own_clock,
    by_id,
    cursor,
    page,
    paged,
    rows,
    where,
)
from palimpsest.ops.sql.values import plain
from palimpsest.stores.recall.query import METADATA_PASSES, Mark, RecallAnswer, WhyNot

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources
    from palimpsest.ops.settings.sections import DecaySettings
    from palimpsest.stores.recall.query import Query
    from palimpsest.stores.shard import Shard


class RelatedMemory(Answer):
    """A memory added to the results for the query's intent, and why."""

    id: str
    content: str
    type: str
    who: str
    role: str
    occurred_at: datetime
    score: float
    reason: str
    marks: tuple[Mark, ...] = ()


class Recalled(RecallAnswer, Answer):
    """The results of a recall, best first. `related` are memories added for the query's intent;
    `why_not` explains where the memories of the request's `why_not` were left; `understood`, with
    `explain`, is how the query was interpreted."""

    related: tuple[RelatedMemory, ...] = ()
    why_not: tuple[WhyNot, ...] = ()
    understood: Any = None


class Recall(Read[Recalled]):
    """Find memories by meaning and by words, best first, with the parts of each score.

    All results pass all filters, including neighbours and those added for the query's intent.

    Example: palimpsest recall "what does Ana drink?" --scope support
    """

    query: shared.Question
    scope: shared.Scope = ""
    limit: shared.Limit = 10
    types: shared.Types = ()
    tags: shared.Tags = ()
    all_tags: Annotated[Texts, shared.words_doc("with all of these tags")] = ()
    categories: shared.Categories = ()
    metadata: shared.MetadataFilter = ()
    who: shared.Who = None
    roles: shared.Roles = ()
    pinned: Annotated[bool | None, Doc("only pinned, or only unpinned memories")] = None
    min_importance: Annotated[
        float | None, Doc("minimum importance, from 0 to 1; that of a pinned one is 1", ge=0, le=1)
    ] = None
    project: Annotated[str | None, Doc("of this project", max_length=256)] = None
    session_id: shared.SessionId = None
    since: shared.Since = None
    until: shared.Until = None
    as_of: Annotated[
        datetime | None, Doc("texts as of this time, found by today's words and vectors")
    ] = None
    valid_at: shared.ValidAt = None
    asked_at: shared.AskedAt = None
    min_score: shared.MinScore = None
    group: Annotated[bool, Doc("merge a fact and its turns into one result")] = True
    explain: Annotated[bool, Doc("show the parts of each score", option="--explain")] = False
    neighbours: Annotated[
        int, Doc("neighbouring turns of the session on each side of a turn", ge=0, le=20)
    ] = 0
    rerank: Annotated[
        bool | None,
        Doc("rerank the first results with a cross-encoder (English); by default as configured"),
    ] = None
    why_not: Annotated[
        Texts,
        shared.some_ids_doc(
            "explain where these memories (whole ids) are in the ranking, or why they are not",
            max_length=20,
            metavar="ID",
            surfaces=("http", "command", "library"),
        ),
    ] = ()
    record: shared.Recorded = True

    surface: ClassVar = Surface(
        ("POST", "/api/memory/recall"), command="recall", tool="search_memory"
    )

    def as_query(self) -> Query:
        """The question as the stores take it."""
        from palimpsest.stores.recall.query import Query

        return Query(**{each.name: getattr(self, each.name) for each in fields(Query)})

    async def read(self, sources: Sources) -> Json:
        import asyncio

        from palimpsest.ops.operations.recalling import recall

        return await recall(sources, self.as_query()) | {
            "notices": await asyncio.to_thread(notices, sources, self)
        }

    def accessed(self, answer: Json) -> Accessed | None:
        if not self.record or self.as_of is not None:
            return None
        found = {each["id"]: each["score"] for each in (*answer["results"], *answer["related"])}
        return Accessed("recall", self.scope, (*found.items(),), self.query, self.session_id or "")


class Search(Read[RecallAnswer]):
    """Find memories by their words alone, best first; no vector takes part.

    Example: palimpsest search "coffee" --scope support
    """

    query: Annotated[str, shared.text_doc("words to look for", argument=True)]
    scope: shared.Scope = ""
    limit: shared.Limit = 10
    types: shared.Types = ()
    roles: shared.Roles = ()

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
        import asyncio

        from palimpsest.ops.operations.recalling import search

        return await search(sources, self.as_query()) | {
            "notices": await asyncio.to_thread(notices, sources, self)
        }


class ContextLine(Answer):
    """A line of a context, its tokens without the line break (one more), and the memories that it
    shows; none for a heading, a mark or a summary."""

    text: str
    tokens: int
    memory_ids: tuple[str, ...]


class ContextBlock(Answer):
    """A Markdown block for a model's prompt; `text` is None if nothing is known, `tokens` its size
    and `budget` the limit. `ids` are those of the memories shown, by section. `offers_summary`: ask
    the model for a summary of the session; false when the user asks to remember something
    permanently. `lines`, with `explain`, join to the text."""

    query: str
    text: str | None
    tokens: int
    ids: dict[str, tuple[str, ...]]
    offers_summary: bool = False
    budget: int | None = None
    lines: tuple[ContextLine, ...] = ()


class Context(Read[ContextBlock]):
    """Return what is known about a query as Markdown for a model's prompt.

    It has a profile of the people concerned, then the most helpful memories, by day.

    Example: palimpsest context "what does Ana drink?" --scope support
    """

    query: Annotated[
        str, shared.text_doc("the question or task to collect context for", argument=True)
    ]
    scope: shared.Scope = ""
    budget: Annotated[
        int | None,
        Doc("maximum size in tokens; by default from the query's complexity", ge=50, le=100_000),
    ] = None
    session_id: Annotated[
        str | None, Doc("begin with the short-term memory of this session", max_length=256)
    ] = None
    asked_at: shared.AskedAt = None
    min_score: shared.MinScore = None
    explain: Annotated[
        bool, Doc("show each line with its tokens and its memories", option="--explain")
    ] = False
    record: shared.Recorded = True

    surface: ClassVar = Surface(
        ("POST", "/api/memory/context"), command="context", tool="get_context"
    )

    def as_query(self) -> Query:
        """The question as the stores take it."""
        from palimpsest.stores.recall.query import Query

        return Query(self.scope, self.query, asked_at=self.asked_at, min_score=self.min_score)

    async def read(self, sources: Sources) -> Json:
        from palimpsest.ops.operations.recalling import context

        return await context(
            sources,
            self.as_query(),
            budget=self.budget,
            session_id=self.session_id,
            explain=self.explain,
        )

    def accessed(self, answer: Json) -> Accessed | None:
        if not self.record:
            return None
        # The turns of the session are there whatever is asked.
        sections = (ids for name, ids in answer["ids"].items() if name != "session")
        found = dict.fromkeys(each for ids in sections for each in ids)
        session_id = self.session_id or ""
        return Accessed("context", self.scope, (*found.items(),), self.query, session_id)


class Get(Read[StoredMemory]):
    """Show one memory with all its fields, even a forgotten one.

    Example: palimpsest get 1f0c9a52
    """

    memory_id: shared.MemoryId
    scope: shared.ScopeOfId = None

    surface: ClassVar = Surface(("GET", "/api/memory/{memory_id}"), command="get", routing="id")

    def read(self, sources: Sources) -> Json:
        partition, memory = by_id(
            sources, MEMORY, "memory_id", self.memory_id, no_memory(self.memory_id)
        )
        shard = sources.shard(partition)
        return with_marks(sources, shard, [memory])[0] | {"recalls": last_recalls(shard, memory)}

    def accessed(self, answer: Json) -> Accessed | None:
        return Accessed("get", answer["scope"], ((answer["id"], None),))


_COMPUTED = frozenset({"id", "marks", "shown_importance", "fades_at", "recalls"})
_COLUMNS = (each.name for each in fields(StoredMemory) if each.name not in _COMPUTED)
MEMORY = (
    f"SELECT memory_id AS id, {', '.join(_COLUMNS)}, decayed_at, utc_offset_minutes"
    " FROM memory_rows"
)
_RECALLS = """
SELECT r.kind, r.question, r.session_id, r.asked_by, f.rank, f.score, r.asked_at
FROM recall_results f JOIN recalls r USING (recall_id)
WHERE f.scope = ? AND r.scope = f.scope AND f.memory_id = ?
ORDER BY r.asked_at DESC, r.recall_id LIMIT 10"""


def last_recalls(shard: Shard, memory: Row) -> list[Row]:
    """The newest recalls that returned a memory, newest first."""
    return rows(shard, _RECALLS, [memory["scope"], memory["id"]])


def _add_decay(row: Row, settings: DecaySettings, now: datetime) -> None:
    """Completes a row of MEMORY by its importance at a time, and by when it fades."""
    from palimpsest.schemas.rows.memories import SOURCE_TYPES
    from palimpsest.streams.fading import DAY, fades_at, shown_importance

    begin = datetime.fromisoformat(row["last_accessed"] or row["created_at"])
    decayed_at = row.pop("decayed_at")
    shown = shown_importance(
        row["importance"], settings.importance_rate, row["pinned"], (now - begin) / DAY
    )
    # Two answers within the same minutes are the same.
    row["shown_importance"] = round(shown, 3)
    gone = None
    if not (row["is_deleted"] or row["pinned"] or row["type"] in SOURCE_TYPES):
        until = None if decayed_at is None else datetime.fromisoformat(decayed_at)
        gone = fades_at(row["confidence"], row["decay_rate"], begin, until, settings.floor)
    row["fades_at"] = None if gone is None else gone.isoformat()


def with_marks(sources: Sources, shard: Shard, found: list[Row]) -> list[Row]:
    """Completes rows of MEMORY: what no longer holds of each (`marks`), and how it fades."""
    from palimpsest.stores.recall.marks import marks_of

    by_scope: dict[str, list[Row]] = {}
    for row in found:
        row["metadata"] = json.loads(row["metadata"])
        at_own_clock(row)
        _add_decay(row, sources.settings.decay, sources.now())
        by_scope.setdefault(row["scope"], []).append(row)
    with shard.reading() as reader:
        for scope, rows_of in by_scope.items():
            index = shard.indexes.resident(scope)
            unchanged = index is not None and not index.has_changes
            ids = [] if unchanged else [row["id"] for row in rows_of]
            marks = marks_of(reader, scope, ids, sources.now()) if ids else {}
            for row in rows_of:
                row["marks"] = [plain(asdict(mark)) for mark in marks.get(row["id"], ())]
    return found


def stored_memories(
    sources: Sources, shard: Shard, condition: str, parameters: Parameters
) -> list[Row]:
    """The memories that match a condition, in the order of its ORDER BY."""
    found = rows(shard, f"{MEMORY} WHERE {condition}", parameters)
    return with_marks(sources, shard, found)


class Located(Answer):
    """The whole id of a memory, its scope and its version."""

    id: str
    scope: str
    version: int


class Locate(Read[Located]):
    """Find the scope of a memory, as operations on it need."""

    memory_id: shared.MemoryId

    surface: ClassVar = Surface(routing="id")

    def read(self, sources: Sources) -> Json:
        select = "SELECT memory_id AS id, scope, version FROM memory_rows"
        return by_id(sources, select, "memory_id", self.memory_id, no_memory(self.memory_id))[1]


class MemoryPage(Answer):
    """Memories, newest first; `next_cursor` is the `cursor` of the next page, None on the last.
    `notices`: filters that nothing can pass, and what was probably meant."""

    memories: tuple[StoredMemory, ...]
    next_cursor: str | None
    notices: tuple[str, ...] = ()


class List(Read[MemoryPage]):
    """List memories, newest first, page by page.

    Example: palimpsest list --scope support --types preference
    """

    scope: shared.AnyScope = None
    types: shared.Types = ()
    session_id: shared.SessionId = None
    who: shared.Who = None
    roles: shared.Roles = ()
    categories: shared.Categories = ()
    metadata: shared.MetadataFilter = ()
    temporal: Annotated[
        bool | None,
        Doc(
            "only memories that expire, or only those that do not", option="--temporal/--persistent"
        ),
    ] = None
    valid_at: shared.ValidAt = None
    deleted: Annotated[bool, Doc("forgotten ones instead", option="--deleted")] = False
    memory_ids: Annotated[Texts, shared.some_ids_doc("only these whole ids", max_length=500)] = ()
    limit: shared.Limit = 20
    cursor: shared.Cursor = None

    surface: ClassVar = Surface(("GET", "/api/memories"), command="list")

    def read(self, sources: Sources) -> Json:
        filters = (
            ("is_deleted = ?", self.deleted),
            ("scope = ?", self.scope),
            ("session_id = ?", self.session_id),
            (SAID_BY, self.who),
            (SAID_AS, list(self.roles) or None),
            ("(temporal_kind = 'temporal') = ?", self.temporal),
            ("(valid_until IS NULL OR valid_until > ?)", self.valid_at),
            ("type IN (SELECT unnest(?))", list(self.types) or None),
            ("list_has_any(categories, ?)", list(self.categories) or None),
            (METADATA_PASSES.format(wanted="?", memory=""), list(self.metadata) or None),
            ("memory_id IN (SELECT unnest(?))", list(self.memory_ids) or None),
        )
        condition, values = where(filters)
        if self.cursor is not None:
            condition += f" AND {_AFTER_A_PAGE}"
            occurred_at, rest = cursor(self.cursor)
            created_at, named = cursor(rest)
            scope, _, memory_id = named.rpartition("/")
            values += [*(occurred_at, created_at, scope) * 2, memory_id]
        condition += (
            " ORDER BY occurred_at DESC, created_at DESC, scope DESC,"
            f" rowid DESC LIMIT {int(self.limit) + 1}"
        )
        found = [
            row
            for shard in sources.shards.values()
            for row in stored_memories(sources, shard, condition, values)
        ]
        told = notices(sources, self, self.deleted)
        return page(found, self.limit, "memories", _NEWEST) | {"notices": told}

    def merge(self, answers: Sequence[Json]) -> Json:
        return paged(answers, self.limit, "memories", _NEWEST)


_SAID_BY = (
    "({0} OR memory_id IN (SELECT e.source_id FROM memory_edges e"
    " JOIN memory_rows t ON t.memory_id = e.target_id AND t.scope = e.scope"
    " WHERE e.relation_type = 'derived_from' AND NOT t.is_deleted AND {1}))"
)
SAID_BY = _SAID_BY.format("lower(who) = lower(?)", "lower(t.who) = lower(?)")
"""Like the filter of a recall: the speaker of the memory or of a turn it was extracted from."""
SAID_AS = _SAID_BY.format(
    *(
        f"list_contains(list_transform(?, lambda x: lower(x)), lower({c}))"
        for c in ("role", "t.role")
    )
)
"""The same for the roles of speakers."""
_NEWEST = ("occurred_at", "created_at", "scope")
"""Sort key of a page of memories; ties within a scope keep their insertion order."""
_AFTER_A_PAGE = """((occurred_at, created_at, scope) < (?::TIMESTAMPTZ, ?::TIMESTAMPTZ, ?)
    OR (occurred_at, created_at, scope) = (?::TIMESTAMPTZ, ?::TIMESTAMPTZ, ?)
    AND rowid < (SELECT rowid FROM memory_rows WHERE memory_id = ?))"""


class Memories(Answer):
    """Memories in the requested order."""

    memories: tuple[StoredMemory, ...]


class MemoryVector(Answer):
    """The vector of a memory from the current embedding model."""

    id: str
    scope: str
    model: str
    dimensions: int
    content_hash: str
    vector: tuple[float, ...]


class VectorPage(Answer):
    """Vectors in the order of their memories' ids; `next_cursor` is None on the last page."""

    embeddings: tuple[MemoryVector, ...]
    next_cursor: str | None


class Embeddings(Read[VectorPage]):
    """Read the vectors of a scope's active memories, page by page."""

    scope: shared.Scope = ""
    memory_ids: Annotated[
        Texts,
        shared.some_ids_doc("only these whole ids, including forgotten memories", max_length=500),
    ] = ()
    limit: shared.Limit = 500
    cursor: shared.Cursor = None

    surface: ClassVar = Surface(overview=True)

    def read(self, sources: Sources) -> Json:
        shard = sources.shard_of(self.scope)
        which = "m.memory_id IN (SELECT unnest(?))" if self.memory_ids else "NOT m.is_deleted"
        found = rows(
            shard,
            "SELECT m.memory_id AS id, m.scope, e.model, len(e.vector) AS dimensions,"
            " m.content_hash, e.vector FROM memory_rows m"
            " JOIN embeddings e ON e.embedding_key = m.embedding_key AND e.model = ?"
            f" WHERE m.scope = ? AND m.memory_id > ? AND {which} ORDER BY m.memory_id LIMIT ?",
            [
                *(shard.embedding_space, self.scope, self.cursor or ""),
                *([[*self.memory_ids]] if self.memory_ids else []),
                self.limit,
            ],
        )
        return {
            "embeddings": found,
            "next_cursor": found[-1]["id"] if len(found) == self.limit else None,
        }
