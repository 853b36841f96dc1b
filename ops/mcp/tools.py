"""The tools that agents are given, over one scope of a memory.

Answers are short: an agent reads all of them. What is wrong comes as the text that says what to do.
Their classes have no slots: the SDK would take these for defaults and tell no schema.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ParamSpec, TypeVar, cast

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field, JsonValue

from palimpsest.ops.library.arguments import Facts, Filters
from palimpsest.ops.library.methods import Methods
from palimpsest.ops.library.results import RelatedMemory, Stats, StoredMemory
from palimpsest.ops.parts import SetupError
from palimpsest.ops.queries.errors import RequestError
from palimpsest.ops.service.client import NotThereError
from palimpsest.stores.lock import FolderInUse
from palimpsest.stores.recall.marks import described
from palimpsest.stores.recall.query import RecallResult
from palimpsest.stores.shard import StoreError
from palimpsest.streams.logs.base import LogError

P = ParamSpec("P")
T = TypeVar("T")
EXPECTED = (RequestError, NotThereError, SetupError, LogError, StoreError, FolderInUse)

MemoryId = Annotated[str, Field(description="A memory's id, or its first 8 characters.")]
Reason = Annotated[str, Field(description="Why; kept in the history.")]
Some = Annotated[int, Field(ge=1, le=100, description="Results at most.")]
AskedAt = Annotated[
    datetime | None,
    Field(description="When the question is asked; its words for times count from it. Else now."),
]
Types = Annotated[
    tuple[str, ...],
    Field(description="Only these: fact, preference, decision, rule, opinion, episodic (turns) …"),
]


@dataclass(frozen=True)
class Told:
    """A memory as an agent is told it. `unlikely`: hardly anything of it answers the question;
    `no_longer` tells what of it does not hold any more, or is disputed."""

    id: str
    content: str
    type: str
    who: str
    occurred_at: datetime
    score: float | None = None
    confidence: float | None = None
    reason: str | None = None
    valid_until: datetime | None = None
    expired: bool = False
    role: str = ""
    unlikely: bool = False
    no_longer: tuple[str, ...] = ()


@dataclass(frozen=True)
class Memories:
    """Memories, the best first."""

    memories: tuple[Told, ...]


@dataclass(frozen=True)
class Done:
    """What a change did. `already_known`: it was remembered before. `protected`: from now on only
    a person may change it."""

    id: str
    version: int | None
    already_known: bool = False
    protected: bool = False


@dataclass(frozen=True)
class ContextText:
    """A Markdown block of what is known, empty where nothing is."""

    text: str


@dataclass(frozen=True)
class Decision:
    """What was decided about a fact that concerns the memory."""

    fact: str
    action: str
    reason: str
    outcome: str | None


@dataclass(frozen=True)
class Explained:
    """A memory with the turns it was drawn from, its texts before, and the decisions about it."""

    memory: Told
    drawn_from: tuple[Told, ...]
    facts: tuple[Told, ...]
    before: tuple[str, ...]
    decisions: tuple[Decision, ...]
    entities: tuple[str, ...]


@dataclass(frozen=True)
class EntityInfo:
    """Who or what a name stands for: its relations as sentences, and what is remembered of it."""

    name: str
    type: str
    aliases: tuple[str, ...]
    summary: str | None
    relations: tuple[str, ...]
    memories: tuple[Told, ...]


def told_errors(
    tool: Callable[P, Awaitable[T]], check: Callable[[str], None]
) -> Callable[P, Awaitable[T]]:
    """The tool with errors that the agent can do something about told to it. `check` is given the
    tool's name before, and may raise one."""

    @functools.wraps(tool)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            check(tool.__name__)
            return await tool(*args, **kwargs)
        except EXPECTED as error:
            raise ToolError(str(error)) from error

    return call


class MemoryTools:
    """The tools over the scope of the memory that `of` gives for each call. A docstring is what an
    agent is told of the tool."""

    def __init__(self, of: Callable[[], Methods]) -> None:
        self._of = of

    @property
    def _memory(self) -> Methods:
        return self._of()

    async def search_memory(
        self,
        query: Annotated[str, Field(description="What to look for, in any words.")],
        limit: Some = 10,
        types: Types = (),
        who: Annotated[str | None, Field(description="Said by this person.")] = None,
        entity_name: Annotated[str | None, Field(description="Only if it names this.")] = None,
        after: Annotated[datetime | None, Field(description="Told at or after.")] = None,
        before: Annotated[datetime | None, Field(description="Told before.")] = None,
        categories: Annotated[
            tuple[str, ...], Field(description="Only of these, as family, work, food.")
        ] = (),
        valid_at: Annotated[
            datetime | None, Field(description="Without what was so only until then.")
        ] = None,
        roles: Annotated[
            tuple[str, ...], Field(description="Only what these said: user, assistant …")
        ] = (),
        asked_at: AskedAt = None,
        min_score: Annotated[
            float | None, Field(ge=0, le=1, description="Least score of a result.")
        ] = None,
    ) -> Memories:
        """Search long-term memory by meaning and by words, the best first. Use it before you
        answer anything that earlier conversations may have settled. What is marked `unlikely` is
        the nearest there is, and probably no answer."""
        given: dict[str, object] = {"who": who, "since": after, "until": before}
        given |= {"valid_at": valid_at, "asked_at": asked_at, "min_score": min_score}
        known = {name: value for name, value in given.items() if value is not None}
        filters = cast(
            "Filters", known | {"types": types, "categories": categories, "roles": roles}
        )
        named = None
        if entity_name is not None:
            found = await self._memory.entity(entity_name, limit=1_000)
            named = {each.id for each in found.memories}
            filters["group"] = False
        wanted = limit if named is None else 1_000
        recalled = await self._memory.recall(query, limit=wanted, **filters)
        results = [_found(each) for each in recalled.results if named is None or each.id in named]
        related = [_added(each) for each in recalled.related if named is None or each.id in named]
        return Memories((*results[:limit], *related[:limit]))

    async def get_context(
        self,
        query: Annotated[str, Field(description="What your answer will be about.")],
        budget: Annotated[
            int | None, Field(ge=50, le=20_000, description="Tokens at most; else as it needs.")
        ] = None,
        session_id: Annotated[
            str | None, Field(description="Begin with what is kept of this session.")
        ] = None,
        asked_at: AskedAt = None,
    ) -> ContextText:
        """Collect what is known about a question, as Markdown: the session under way, who the
        person is, and what was said about it, by day."""
        found = await self._memory.context(
            query, budget=budget, session=session_id, asked_at=asked_at
        )
        return ContextText(found.text or "")

    async def remember_fact(
        self,
        content: Annotated[str, Field(description="One statement that stands by itself.")],
        type: Annotated[  # noqa: A002
            str | None, Field(description="fact, preference, decision, rule …; else inferred.")
        ] = None,
        importance: Annotated[float | None, Field(ge=0, le=1, description="Else 0.8.")] = None,
        tags: Annotated[tuple[str, ...], Field(description="Words to filter by.")] = (),
        who: Annotated[str | None, Field(description="Whose statement it is.")] = None,
    ) -> Done:
        """Remember a statement for later conversations. Name who it is about; one statement a
        call. What is known already is not doubled."""
        given = Facts(tags=tags)
        if type is not None:
            given["type"] = type
        if importance is not None:
            given["importance"] = importance
        if who is not None:
            given["who"] = who
        change = await self._memory.remember(content, **given)
        return Done(change.id, change.version, already_known=change.deduped)

    async def correct_fact(
        self,
        memory_id: MemoryId,
        content: Annotated[str, Field(description="What is right, as a whole statement.")],
        reason: Reason,
    ) -> Done:
        """Replace what a memory says by what is right. The text before stays in its history."""
        change = await self._memory.correct(memory_id, content, reason=reason)
        return Done(change.id, change.version)

    async def confirm_fact(self, memory_id: MemoryId, reason: Reason = "") -> Done:
        """Note that a memory was confirmed, as by the user: nothing is surer than it then."""
        change = await self._memory.confirm(memory_id, reason=reason)
        return Done(change.id, change.version, protected=change.protected)

    async def forget_fact(self, memory_id: MemoryId, reason: Reason) -> Done:
        """Forget a memory: it is found no more. A person can recover it for some weeks. What a
        person pinned or confirmed only a person may forget."""
        [change] = await self._memory.forget(memory_id, reason=reason)
        return Done(change.id, change.version)

    async def get_entity_info(
        self, name: Annotated[str, Field(description="A person, place, organization or thing.")]
    ) -> EntityInfo:
        """Tell who or what a name stands for: other names, relations, what is remembered of it,
        the newest first."""
        found = await self._memory.entity(name)
        return EntityInfo(
            found.name,
            found.type,
            found.aliases,
            found.summary,
            tuple(_sentence(found.name, each) for each in found.relations),
            tuple(map(told, found.memories)),
        )

    async def memory_stats(self) -> Stats:
        """Count what is remembered: memories by type, turns, entities, sessions."""
        return await self._memory.stats()

    async def explain_fact(self, memory_id: MemoryId) -> Explained:
        """Explain a memory: the turns it came from, what it said before, what was decided about
        it and why."""
        found = await self._memory.explain(memory_id)
        return Explained(
            told(found.memory),
            tuple(map(told, found.derived_from)),
            tuple(map(told, found.facts)),
            tuple(str(each["content"]) for each in found.before),
            tuple(
                Decision(
                    str(each["fact"]),
                    str(each["action"]),
                    str(each["outcome_reason"] or each["reason"]),
                    None if each["outcome"] is None else str(each["outcome"]),
                )
                for each in found.decisions
            ),
            tuple(str(each["name"]) for each in found.entities),
        )

    async def weak_facts(
        self,
        below: Annotated[float, Field(ge=0, le=1, description="Confidence under this.")] = 0.8,
        limit: Some = 20,
    ) -> Memories:
        """List memories that rest on little and that nobody confirmed, the least sure first: ask
        the user about them, then confirm, correct or forget them."""
        return Memories(tuple(map(told, await self._memory.weak(below=below, limit=limit))))


def told(memory: StoredMemory) -> Told:
    return Told(
        *(memory.id, memory.content, memory.type, memory.who, memory.occurred_at),
        confidence=memory.confidence,
        role=memory.role,
        no_longer=tuple(map(described, memory.marks)),
    )


def _found(result: RecallResult) -> Told:
    return Told(
        *(result.id, result.content, result.type, result.who, result.occurred_at, result.score),
        valid_until=result.valid_until,
        expired=result.expired,
        role=result.role,
        unlikely=result.unlikely,
        no_longer=tuple(map(described, result.marks)),
    )


def _added(related: RelatedMemory) -> Told:
    return Told(
        *(related.id, related.content, related.type, related.who),
        *(related.occurred_at, related.score),
        reason=related.reason,
        role=related.role,
        no_longer=tuple(map(described, related.marks)),
    )


def _sentence(name: str, relation: dict[str, JsonValue]) -> str:
    other, said = str(relation["name"]), str(relation["relation"]).replace("_", " ")
    source, target = (name, other) if relation["direction"] == "out" else (other, name)
    return f"{source} {said} {target}"
