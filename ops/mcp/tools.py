"""Descriptions and answers of the tools for agents, beyond the operations that they are made from.

Answers are short, as an agent reads all of them. Error messages say what to do. The answer classes
have no slots: the SDK would take these for defaults and generate no schema.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, ParamSpec, TypeVar

from mcp.server.mcpserver.exceptions import ToolError

from palimpsest.ops.errors import RequestError
from palimpsest.ops.library.memory_methods import AsyncMethods
from palimpsest.ops.operations.graph import Entity
from palimpsest.ops.operations.memories import Memories as MemoryRows
from palimpsest.ops.operations.provenance import Provenance
from palimpsest.ops.operations.scopes import Counts
from palimpsest.ops.parts import SetupError
from palimpsest.ops.service.client import NotThereError
from palimpsest.ops.surfaces.mcp import AnyOperation, Argument, Words, shape
from palimpsest.stores.lock import FolderInUse
from palimpsest.stores.recall.marks import described
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
    """Memories, the best first."""

    memories: tuple[FoundMemory, ...]


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
    """The entity with a name: its relations as sentences, and its memories."""

    name: str
    type: str
    aliases: tuple[str, ...]
    summary: str | None
    relations: tuple[str, ...]
    memories: tuple[FoundMemory, ...]


def found_memory(memory: Any) -> FoundMemory:
    """A stored memory, or a result of a recall."""
    return shape(FoundMemory, memory, no_longer=tuple(map(described, memory.marks)))  # type: ignore[no-any-return]


async def _search(memory: AsyncMethods, arguments: dict[str, Any]) -> Memories:
    limit, entity = arguments.get("limit", 10), arguments.pop("entity_name", None)
    named = None
    if entity is not None:
        found = await memory.get_entity(entity, limit=ALL)
        named = {each.id for each in found.memories}
        arguments |= {"group": False, "limit": ALL}
    recalled = await memory.recall(**arguments)
    results = [found_memory(each) for each in recalled.results if named is None or each.id in named]
    related = [found_memory(each) for each in recalled.related if named is None or each.id in named]
    return Memories((*results[:limit], *related[:limit]))


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
    relations = tuple(_sentence(found.name, each) for each in found.relations)
    memories = tuple(map(found_memory, found.memories))
    return shape(EntityInfo, found, relations=relations, memories=memories)  # type: ignore[no-any-return]


def _sentence(name: str, relation: dict[str, Any]) -> str:
    other, verb = str(relation["name"]), str(relation["relation"]).replace("_", " ")
    source, target = (name, other) if relation["direction"] == "out" else (other, name)
    return f"{source} {verb} {target}"


def _memories(found: MemoryRows) -> Memories:
    return Memories(tuple(map(found_memory, found.memories)))


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
            "after": Argument("Stated at this time or later.", "since"),
            "before": Argument("Stated before this time.", "until"),
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
        "Return the entity with a name: other names, relations, and its memories, newest first.",
        {"name": Argument("A person, place, organization or thing.")},
        EntityInfo,
        _entity,
    ),
    "memory_stats": Words(
        "Count what is remembered: memories by type, turns, entities, sessions.",
        {},
        Counts,
    ),
    "explain_fact": Words(
        "Explain a memory: the turns it came from, its earlier texts, the decisions about it and"
        " their reasons.",
        {"memory_id": MEMORY_ID},
        Explained,
        _explained,
    ),
    "weak_facts": Words(
        "List uncertain, unconfirmed memories, the least certain first: ask the user about them,"
        " then confirm, correct or forget them.",
        {
            "below": Argument("Only with a confidence below this."),
            "limit": Argument("Maximum number of results.", le=MOST),
        },
        Memories,
        _memories,
    ),
}
"""By the names of tools."""


def with_errors(
    tool: Callable[P, Awaitable[T]],
    kind: type[AnyOperation],
    check: Callable[[type[AnyOperation]], None],
) -> Callable[P, Awaitable[T]]:
    """The tool, with errors that an agent can act on as the SDK's. `check` is called first, with
    the operation, and may raise RequestError."""

    @functools.wraps(tool)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            check(kind)
            return await tool(*args, **kwargs)
        except EXPECTED as error:
            raise ToolError(str(error)) from error

    return call
