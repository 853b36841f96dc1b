"""Reads of an agent that has two scopes, its server's and that of the person it speaks with: each
is asked in both, and answered as one.

A scope that cannot answer takes nothing from the answer of the other one; a notice says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.library.memory_methods import AsyncMethods
from palimpsest.ops.mcp.operation_tools import Words, shape
from palimpsest.ops.mcp.tools import (
    EXPECTED,
    WORDS,
    AgentPlace,
    ContextText,
    EntityInfo,
    FoundMemory,
    Memories,
    attribute_line,
    hits,
    sentence,
)
from palimpsest.ops.operations.graph import Entity
from palimpsest.schemas.echoes import CLOSE, OPEN, marked
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.rows.memories import SOURCE_TYPES
from palimpsest.stores.recall.context import estimate_tokens
from palimpsest.stores.recall.query import described

T = TypeVar("T")
WEIGHED: Final = 10
"""Best results of both scopes that say which of them knows more about a question."""
LEAST_BUDGET: Final = 50
"""Tokens below which no context is collected."""
MOST_OF_ENTITY: Final = 20
"""Memories of an entity, of both scopes together."""


@dataclass(frozen=True)
class ScopedMemory(FoundMemory):
    """A memory as agents see it, with the memory space that has it."""

    scope: str = ""


@dataclass(frozen=True)
class ScopedMemories(Memories):
    """Memories of both spaces, the best first."""

    memories: tuple[ScopedMemory, ...]


@dataclass(frozen=True)
class ScopedContext(ContextText):
    """A Markdown block of what is known, with a heading for each memory space; empty if nothing is.
    `notices`: why one of them is missing."""

    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScopedEntity(EntityInfo):
    """The entity with a name in both memory spaces. What only one of them says names it in
    brackets. `notices`: why one of them is missing."""

    memories: tuple[ScopedMemory, ...]
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answers(Generic[T]):
    """The answer of each scope that has one, and why the others have none."""

    found: Mapping[str, T]
    notices: tuple[str, ...] = field(default=())


class BothScopes:
    """The reading tools of an agent with a personal scope."""

    def __init__(self, place: AgentPlace) -> None:
        self._place = place

    def words(self) -> Mapping[str, Words]:
        """The tools that read both scopes, by name."""
        tools: dict[str, tuple[Any, Any, str]] = {
            "search_memory": (ScopedMemories, self.search, "`scope` names the one of each result."),
            "get_context": (ScopedContext, self.context, "A heading names each."),
            "get_entity_info": (ScopedEntity, self.entity, "`scope` names the one of each memory."),
        }
        both = "Reads the memory space all share and that of the person you speak with."
        return {
            name: replace(
                WORDS[name],
                text=f"{WORDS[name].text} {both} {marks}",
                answer=answer,
                shown=None,
                call=call,
            )
            for name, (answer, call, marks) in tools.items()
        }

    async def asked(self, memory: AsyncMethods, ask: Callable[[str], Awaitable[T]]) -> Answers[T]:
        """Ask both scopes at once, the personal one first. Raises the error of a scope only if none
        answers."""

        async def one(scope: str) -> T | Exception:
            try:
                if scope != memory.scope:
                    self._place.personal()
                return await ask(scope)
            except EXPECTED as error:
                return error

        scopes = [*dict.fromkeys((str(self._place.personal_scope), memory.scope))]
        answers = dict(zip(scopes, await asyncio.gather(*map(one, scopes)), strict=True))
        failed = {at: each for at, each in answers.items() if isinstance(each, Exception)}
        if len(failed) == len(scopes):
            raise _as_one(failed, memory.scope)
        found: dict[str, Any] = {at: each for at, each in answers.items() if at not in failed}
        return Answers(found, tuple(f"{at}: {error}" for at, error in failed.items()))

    async def search(self, memory: AsyncMethods, arguments: dict[str, Any]) -> ScopedMemories:
        limit = arguments.get("limit", 10)
        answers = await self.asked(memory, lambda at: hits(memory, arguments | {"scope": at}))
        found = answers.found
        results = best((at, each) for at in found for each in found[at].results)[:limit]
        related = best((at, each) for at in found for each in found[at].related)[:limit]
        # A filter that something passes in one of the scopes is no mistake.
        told = [each.notices for each in found.values()]
        notices = tuple(each for some in told for each in some) if all(told) else ()
        shown = once((*results, *related))
        return ScopedMemories(tuple(map(_scoped, shown)), (*notices, *answers.notices))

    async def entity(self, memory: AsyncMethods, arguments: dict[str, Any]) -> ScopedEntity:
        answers = await self.asked(
            memory, lambda at: memory.get_entity(**arguments, scope=at, limit=MOST_OF_ENTITY)
        )
        return merged(answers)

    async def context(self, memory: AsyncMethods, arguments: dict[str, Any]) -> ScopedContext:
        """The budget is shared: what a scope does not need of its part is the other's, and the one
        that knows more about the question comes first, after the session's part if there is one."""

        async def ask(at: str, budget: int | None, **more: Any) -> Any:
            given = {**arguments, "scope": at, "budget": budget, **more}
            if at != memory.scope:
                given.pop("session_id", None)  # the session is the server's
            return await memory.context(**given)

        budget = arguments.get("budget")
        answers = await self.asked(memory, lambda at: ask(at, budget))
        blocks = {at: each for at, each in answers.found.items() if each.text}
        if not blocks:
            return ScopedContext("", answers.notices)
        budget = max(each.budget for each in blocks.values())
        weights: Mapping[str, float] = dict.fromkeys(blocks, 1.0)
        if len(blocks) > 1:
            weights = await self._weights(memory, arguments)
        order = sorted(blocks, key=lambda at: ("session" not in blocks[at].ids, -weights[at]))
        names = {at: self._heading(at, memory.scope) for at in order}
        text = joined([(names[at], blocks[at].text) for at in order])
        if estimate_tokens(text) <= budget:
            return ScopedContext(text, answers.notices)
        room = budget - estimate_tokens(marked("\n\n".join(names.values())))
        parts = shares({at: blocks[at].tokens for at in order}, weights, room)

        async def again(at: str) -> Any:
            if at not in parts or blocks[at].tokens <= parts[at]:
                return blocks[at] if at in parts else None
            return await ask(at, parts[at], record=False)  # the first time was recorded

        cut = (await self.asked(memory, again)).found
        kept = [(names[at], cut[at].text) for at in order if cut.get(at) and cut[at].text]
        text = joined(kept)
        if kept and estimate_tokens(text) > budget:  # it has no room for a heading
            text = kept[0][1]
        return ScopedContext(text, answers.notices)

    async def _weights(
        self, memory: AsyncMethods, arguments: Mapping[str, Any]
    ) -> Mapping[str, float]:
        """How much each scope knows about a question: its part in the best results of both."""
        given = {name: arguments[name] for name in ("query", "asked_at") if name in arguments}
        answers = await self.asked(
            memory, lambda at: memory.recall(**given, scope=at, limit=WEIGHED, record=False)
        )
        found = answers.found
        weights = {str(self._place.personal_scope): 0.0, memory.scope: 0.0}
        ranked = best((at, each) for at in found for each in found[at].results)
        for scope, result in ranked[:WEIGHED]:
            weights[scope] += 0.0 if result.unlikely else result.score
        return weights

    def _heading(self, at: str, server: str) -> str:
        return f"# {'Shared' if at == server else 'Personal'} memory ({at})"


def best(found: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Results with their scopes, the best first, unlikely ones last; the first of equal texts."""
    ranked = sorted(found, key=lambda each: (getattr(each[1], "unlikely", False), -each[1].score))
    return once(ranked)


def once(found: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The memories with their scopes, the first of those with the same content hash."""
    seen: dict[str, tuple[str, Any]] = {}
    for at, each in found:
        seen.setdefault(content_hash(storage_content(each.content)), (at, each))
    return [*seen.values()]


def shares(needs: Mapping[str, int], weights: Mapping[str, float], room: int) -> Mapping[str, int]:
    """The tokens of each scope that gets some: by weight, and what one does not need is the
    other's. Too few to say anything are the other's, too."""
    if len(needs) == 1:
        return {at: max(room, LEAST_BUDGET) for at in needs}
    total = sum(weights[at] for at in needs)
    parts = {at: int(room * (weights[at] / total if total else 0.5)) for at in needs}
    one, other = sorted(needs, key=lambda at: needs[at] - parts[at])
    if needs[one] <= parts[one]:
        return {one: needs[one], other: room - needs[one]}
    least, most = sorted(parts, key=lambda at: parts[at])
    if parts[least] < LEAST_BUDGET:
        return {most: max(room, LEAST_BUDGET)}
    return parts


def joined(blocks: Sequence[tuple[str, str]]) -> str:
    """Blocks of context under their headings as one block. What two of them say stands in the
    first."""
    seen: set[str] = set()
    parts: list[str] = []
    for heading, text in blocks:
        lines: list[str] = []
        for line in text.removeprefix(f"{OPEN}\n").removesuffix(f"\n{CLOSE}").split("\n"):
            if line.startswith("- "):
                key = content_hash(storage_content(line))
                if key in seen:
                    continue
                seen.add(key)
            lines.append(line)
        said = _without_empty(lines)
        if said:
            parts.append("\n".join((heading, *said)))
    return marked("\n\n".join(parts)) if parts else ""


def _without_empty(lines: Sequence[str]) -> list[str]:
    """The lines without headings that nothing stands under."""
    kept: list[str] = []
    below = False
    for line in reversed(lines):
        is_heading = line.startswith("#")
        if not is_heading or below:
            kept.append(line)
        below = not is_heading and (below or bool(line.strip()))
    return kept[::-1]


def merged(answers: Answers[Entity]) -> ScopedEntity:
    """What both scopes know of an entity, as of one."""
    found = answers.found
    first = next(iter(found.values()))
    memories = once((at, each) for at in found for each in found[at].memories)
    memories.sort(key=lambda each: each[1].occurred_at, reverse=True)
    memories.sort(key=lambda each: each[1].type in SOURCE_TYPES)
    names = (name for each in found.values() for name in (each.name, *each.aliases))
    aliases = {name.casefold(): name for name in names}
    aliases.pop(first.name.casefold(), None)
    relations = {
        at: [sentence(each.name, relation) for relation in each.relations]
        for at, each in found.items()
    }
    attributes = {at: [*map(attribute_line, each.attributes)] for at, each in found.items()}
    types = {at: [each.type] for at, each in found.items()}
    is_one = len({each.type for each in found.values()}) == 1
    return ScopedEntity(
        name=first.name,
        type=first.type if is_one else "; ".join(_told(types)),
        aliases=tuple(aliases.values()),
        summary="\n".join(_told({at: [each.summary] for at, each in found.items() if each.summary}))
        or None,
        relations=tuple(_told(relations)),
        attributes=tuple(_told(attributes)),
        memories=tuple(map(_scoped, memories[:MOST_OF_ENTITY])),
        notices=answers.notices,
    )


def _told(said: Mapping[str, Sequence[str]]) -> list[str]:
    """Each text once; with its scope where only one of the scopes says it."""
    scopes: dict[str, list[str]] = {}
    for at, texts in said.items():
        for text in dict.fromkeys(texts):
            scopes.setdefault(text, []).append(at)
    return [text if len(at) > 1 else f"{text} ({at[0]})" for text, at in scopes.items()]


def _scoped(found: tuple[str, Any]) -> ScopedMemory:
    at, memory = found
    no_longer = tuple(map(described, memory.marks))
    return shape(ScopedMemory, memory, scope=at, no_longer=no_longer)  # type: ignore[no-any-return]


def _as_one(failed: Mapping[str, Exception], server: str) -> Exception:
    """The error of scopes that all failed, the same one or each with its scope."""
    if len({str(each) for each in failed.values()}) == 1:
        return failed[server]
    kinds = {type(each) for each in failed.values()}
    text = "; ".join(f"{at}: {each}" for at, each in failed.items())
    return (NotFoundError if kinds == {NotFoundError} else RequestError)(text)
