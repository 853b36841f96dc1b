"""Descriptions and answers of the tools for agents, beyond the operations that they are made from.

Answers are short, as an agent reads all of them. Error messages say what to do. The answer classes
have no slots: the SDK would take these for defaults and generate no schema.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final, Literal, ParamSpec, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.library.memory_methods import AsyncMethods
from palimpsest.ops.mcp.operation_tools import AnyOperation, Argument, Words, shape
from palimpsest.ops.operations.graph import Entity
from palimpsest.ops.operations.provenance import Provenance
from palimpsest.ops.operations.scopes import Counts
from palimpsest.ops.parts import SetupError
from palimpsest.ops.service.client import NotThereError
from palimpsest.schemas.rows.memories import SELF_TAUGHT
from palimpsest.stores.lock import FolderInUse
from palimpsest.stores.recall.query import described
from palimpsest.stores.shard import StoreError
from palimpsest.streams.logs.base import LogError

P = ParamSpec("P")
T = TypeVar("T")
EXPECTED = (RequestError, NotThereError, SetupError, LogError, StoreError, FolderInUse)
MOST: Final = 100
"""Maximum number of results."""
ALL: Final = 1_000


@dataclass(frozen=True)
class FoundMemory:
    """A memory as agents see it. `unlikely`: it hardly answers the question; `no_longer` lists what
    no longer holds or is disputed."""

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
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Memories:
    """Memories, the best first. `notices`: filters that nothing can pass, and what was probably
    meant."""

    memories: tuple[FoundMemory, ...]
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class WeakMemory(FoundMemory):
    """A memory that is uncertain, and when it will have faded if nothing returns it until then."""

    fades_at: datetime | None = None


@dataclass(frozen=True)
class WeakMemories:
    """Uncertain memories, the least certain first."""

    memories: tuple[WeakMemory, ...]


@dataclass(frozen=True)
class Done:
    """The effect of a change. `already_known`: it was remembered before. `protected`: from now on
    only a person may change it."""

    id: str
    version: int | None
    already_known: bool = False
    protected: bool = False


@dataclass(frozen=True)
class ContextText:
    """A Markdown block of what is known; empty if nothing is."""

    text: str


@dataclass(frozen=True)
class Decision:
    """A decision about a fact that concerns the memory."""

    fact: str
    action: str
    reason: str
    outcome: str | None


@dataclass(frozen=True)
class Explained:
    """A memory with the turns it was derived from, its earlier texts, and the decisions about
    it."""

    memory: FoundMemory
    drawn_from: tuple[FoundMemory, ...]
    facts: tuple[FoundMemory, ...]
    before: tuple[str, ...]
    decisions: tuple[Decision, ...]
    entities: tuple[str, ...]


@dataclass(frozen=True)
class EntityInfo:
    """The entity with a name: its relations as sentences, what is said of its aspects, those that
    matter most first, and its memories."""

    name: str
    type: str
    aliases: tuple[str, ...]
    summary: str | None
    relations: tuple[str, ...]
    attributes: tuple[str, ...]
    memories: tuple[FoundMemory, ...]


def found_memory(memory: Any) -> FoundMemory:
    """A stored memory, or a result of a recall."""
    return shape(FoundMemory, memory, no_longer=tuple(map(described, memory.marks)))  # type: ignore[no-any-return]


def weak_memory(memory: Any) -> WeakMemory:
    return shape(WeakMemory, memory, no_longer=tuple(map(described, memory.marks)))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Hits:
    """What a search of one scope found: its results and related memories, each the best first."""

    results: tuple[Any, ...]
    related: tuple[Any, ...]
    notices: tuple[str, ...]


async def hits(memory: AsyncMethods, arguments: Mapping[str, Any]) -> Hits:
    """Search one scope, with the arguments of `recall` and an optional `entity_name`: then the
    results may be more than the limit."""
    given = dict(arguments)
    entity = given.pop("entity_name", None)
    if entity is None:
        found = await memory.recall(**given)
        return Hits(found.results, found.related, found.notices)
    known = await memory.get_entity(entity, scope=given.get("scope", ""), limit=ALL)
    named = {each.id for each in known.memories}
    found = await memory.recall(**given | {"group": False, "limit": ALL})
    return Hits(
        tuple(each for each in found.results if each.id in named),
        tuple(each for each in found.related if each.id in named),
        found.notices,
    )


async def _search(memory: AsyncMethods, arguments: dict[str, Any]) -> Memories:
    limit, found = arguments.get("limit", 10), await hits(memory, arguments)
    shown = (*found.results[:limit], *found.related[:limit])
    return Memories(tuple(map(found_memory, shown)), found.notices)


def _explained(found: Provenance) -> Explained:
    return Explained(
        found_memory(found.memory),
        tuple(map(found_memory, found.derived_from)),
        tuple(map(found_memory, found.facts)),
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


def _entity(found: Entity) -> EntityInfo:
    relations = tuple(sentence(found.name, each) for each in found.relations)
    attributes = tuple(map(attribute_line, found.attributes))
    memories = tuple(map(found_memory, found.memories))
    others = {"relations": relations, "attributes": attributes, "memories": memories}
    return shape(EntityInfo, found, **others)  # type: ignore[no-any-return]


def attribute_line(attribute: dict[str, Any]) -> str:
    """An attribute of an entity, a constraint marked as one."""
    kind = " (constraint)" if attribute["kind"] == "constraint" else ""
    return f"{attribute['aspect']}{kind}: {attribute['content']}"


def sentence(name: str, relation: dict[str, Any]) -> str:
    """A relation of the entity with this name."""
    other, verb = str(relation["name"]), str(relation["relation"]).replace("_", " ")
    source, target = (name, other) if relation["direction"] == "out" else (other, name)
    return f"{source} {verb} {target}"


def done(change: Any) -> Done:
    return shape(Done, change, already_known=change.deduped)  # type: ignore[no-any-return]


MEMORY_ID: Final = Argument("A memory's id, or its first 8 characters.")
REASON: Final = Argument("Why; kept in the history.", required=True)
ASKED_AT: Final = Argument("Time of the question, from which relative times count; by default now.")
TAGS: Final = Argument("Words to filter by.")
WORDS: Final[Mapping[str, Words]] = {
    "search_memory": Words(
        "Search long-term memory by meaning and by words, the best first. Use it before you"
        " answer anything that earlier conversations may have settled. Results marked"
        " `unlikely` are the nearest there are, and probably no answer.",
        {
            "query": Argument("What to search for, in any words."),
            "limit": Argument("Maximum number of results.", le=MOST),
            "types": Argument(
                "Only these: fact, preference, decision, rule, opinion, episodic (turns) …"
            ),
            "who": Argument("Only statements of this person."),
            "entity_name": Argument("Only memories that name this."),
            "after": Argument(
                "Stated at this time or later; dates, today, yesterday, last_week and last_month"
                " are in UTC.",
                "since",
            ),
            "before": Argument("Stated before this time, given as `after` is.", "until"),
            "categories": Argument("Only these, for example family, work, food."),
            "valid_at": Argument("Without what was no longer true then."),
            "metadata": Argument("Only memories with these, each key=value."),
            "roles": Argument("Only statements of these roles: user, assistant …"),
            "asked_at": ASKED_AT,
            "min_score": Argument("Minimum score of a result."),
        },
        Memories,
        call=_search,
        more={"entity_name": str | None},
    ),
    "get_context": Words(
        "Collect what is known about a question, as Markdown: the current session, who the"
        " person is, and statements about it by day.",
        {
            "query": Argument("What your answer will be about."),
            "budget": Argument(
                "Maximum number of tokens; by default what the question needs.", le=20_000
            ),
            "session_id": Argument("Begin with the short-term memory of this session."),
            "asked_at": ASKED_AT,
        },
        ContextText,
        lambda found: ContextText(found.text or ""),
    ),
    "remember_fact": Words(
        "Remember a statement for later conversations. Name who it is about; one statement per"
        " call. What is already known is not stored twice.",
        {
            "content": Argument("One statement that stands by itself."),
            "type": Argument("fact, preference, decision, rule …; by default inferred."),
            "importance": Argument("By default 0.8."),
            "tags": TAGS,
            "who": Argument("Whose statement it is."),
            "structured": Argument(
                'Graph entries, as {"attributes": [{"entity": "Apollo", "aspect": "deployment",'
                ' "kind": "constraint"}]}: a constraint is shown whenever its entity is asked'
                " about. Also entities (name, type, aliases) and relations (source, relationship,"
                " target)."
            ),
        },
        Done,
        done,
    ),
    "correct_fact": Words(
        "Replace the text of a memory with the correct one. The earlier text stays in its history.",
        {
            "memory_id": MEMORY_ID,
            "content": Argument("The correct statement, in full."),
            "reason": REASON,
        },
        Done,
        done,
    ),
    "confirm_fact": Words(
        "Record that a memory was confirmed, for example by the user, with the highest confidence.",
        {"memory_id": MEMORY_ID, "reason": Argument(REASON.text)},
        Done,
        done,
    ),
    "forget_fact": Words(
        "Forget a memory: it is no longer found. A person can recover it for some weeks. Only a"
        " person may forget what a person pinned or confirmed.",
        {"memory_id": MEMORY_ID, "reason": REASON},
        Done,
        done,
    ),
    "get_entity_info": Words(
        "Return the entity with a name: other names, relations, attributes and constraints, and its"
        " memories, newest first.",
        {"name": Argument("A person, place, organization or thing.")},
        EntityInfo,
        _entity,
    ),
    "memory_stats": Words(
        "Count what is remembered: memories by type, turns, entities, sessions.", {}, Counts
    ),
    "explain_fact": Words(
        "Explain a memory: the turns it came from, its earlier texts, the decisions about it and"
        " their reasons.",
        {"memory_id": MEMORY_ID},
        Explained,
        _explained,
    ),
    "weak_facts": Words(
        "List uncertain, unconfirmed memories and those that fade soon, the least certain first:"
        " ask the user about them, then confirm, correct or forget them.",
        {
            "below": Argument("With a confidence below this."),
            "days": Argument("Or that will have faded within these days."),
            "limit": Argument("Maximum number of results.", le=MOST),
        },
        WeakMemories,
        lambda found: WeakMemories(tuple(map(weak_memory, found.memories))),
    ),
}
"""By the names of tools."""


def with_errors(
    tool: Callable[P, Awaitable[T]],
    kind: type[AnyOperation],
    check: Callable[[type[AnyOperation]], None] | None,
) -> Callable[P, Awaitable[T]]:
    """The tool, with errors that an agent can act on as the SDK's. `check` is called first, with
    the operation, and may raise RequestError."""

    @functools.wraps(tool)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            if check is not None:
                check(kind)
            return await tool(*args, **kwargs)
        except EXPECTED as error:
            raise ToolError(str(error)) from error

    return call


# Tools for agents to store what they learn: a summary of a conversation for some hours, and
# statements permanently where the scope allows it.

Kind = Annotated[
    Literal["server", "personal"],
    Field(description="server: of the place all share; personal: of the person you speak with."),
]

ASKED_FOR_GOOD: Final = (
    "the user asked to have something remembered for good, which a summary is not: use"
    " create_long_term_memory or remember_fact"
)


@dataclass(frozen=True)
class AgentPlace:
    """The other scope that an agent reads and writes, that of the person it speaks with, and the
    version of its persona. `sees`: whether the current caller may use a scope."""

    personal_scope: str | None = None
    lineage: int | None = None
    sees: Callable[[str], bool] = lambda _: True

    def personal(self) -> str:
        """The other scope. Raises NotFoundError if there is none, or none for this caller."""
        if self.personal_scope is None:
            raise NotFoundError(
                "there is no memory space of the person you speak with here; use memory_type server"
            )
        if not self.sees(self.personal_scope):
            raise NotFoundError(f"there is no scope {self.personal_scope}")
        return self.personal_scope


NOWHERE_ELSE: Final = AgentPlace()


@dataclass(frozen=True)
class Kept:
    """The expiry of a summary."""

    session_id: str
    expires_at: datetime


class TeachingTools:
    """The tools for the scope of the memory that `of` returns for each call. Agents read their
    docstrings."""

    def __init__(self, of: Callable[[], AsyncMethods], place: AgentPlace) -> None:
        self._of = of
        self._place = place

    @property
    def _memory(self) -> AsyncMethods:
        return self._of()

    async def update_short_term_memory(
        self,
        session_id: Annotated[str, Field(max_length=256, description="Of this conversation.")],
        summary: Annotated[str, Field(description="What it is about, whole, in a few sentences.")],
    ) -> Kept:
        """Store a summary of this conversation for some hours; it replaces the previous one. Not
        for what the user asks to remember: that belongs in long-term memory."""
        with contextlib.suppress(NotFoundError):  # nothing is known of a new session
            known = (await self._memory.session_memory(session_id, limit=1)).short_term
            if known is not None and known.explicit_intent:
                raise ToolError(ASKED_FOR_GOOD)
        kept = await self._memory.update_short_term_memory(session_id, summary)
        return Kept(kept.session_id, kept.expires_at)

    async def create_long_term_memory(
        self,
        content: Annotated[str, Field(description="One statement that stands by itself.")],
        memory_type: Kind,
        tags: Annotated[tuple[str, ...], Field(description=TAGS.text)] = (),
    ) -> Done:
        """Remember a statement permanently, about the shared place or the person you speak with.
        The memory space must allow it. What is already known is not stored twice."""
        # What all share is about no one; who the agent speaks with is known by the memory space.
        about = "" if memory_type == "server" else (self._place.personal_scope or "")
        change = await self._memory.remember(
            content,
            self._scope(memory_type),
            tags=tags,
            self_taught=True,
            source_type=SELF_TAUGHT,
            who=about or None,
            lineage=self._place.lineage,
        )
        return done(change)

    async def update_long_term_memory(
        self,
        memory_id: Annotated[str, Field(description=MEMORY_ID.text)],
        content: Annotated[str, Field(description="What it shall say, as a whole statement.")],
        memory_type: Kind,
        reason: Annotated[str, Field(description=REASON.text)],
    ) -> Done:
        """Replace the text of a long-term memory. The memory space must allow it. The earlier text
        stays in its history."""
        change = await self._memory.modify(
            memory_id,
            content=content,
            reason=reason,
            self_taught=True,
            scope=self._scope(memory_type),
        )
        return done(change)

    async def delete_long_term_memory(
        self,
        memory_id: Annotated[str, Field(description=MEMORY_ID.text)],
        memory_type: Kind,
        reason: Annotated[str, Field(description=REASON.text)],
    ) -> Done:
        """Delete a long-term memory that create_long_term_memory made: it is no longer found. The
        memory space must allow it. What a person pinned or confirmed stays."""
        change = await self._memory.forget_one(
            memory_id, reason=reason, self_taught=True, scope=self._scope(memory_type)
        )
        return done(change)

    def _scope(self, kind: Kind) -> str:
        return self._memory.scope if kind == "server" else self._place.personal()
