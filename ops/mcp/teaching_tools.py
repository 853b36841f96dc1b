"""Tools for agents to store what they learn: a summary of a conversation for some hours, and
statements permanently where the scope allows it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Literal

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from palimpsest.ops.errors import NotFoundError
from palimpsest.ops.library.memory_methods import AsyncMethods
from palimpsest.ops.mcp.tools import MEMORY_ID, REASON, TAGS, Done, done

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
    """The other scope in which an agent may write, that of the person it speaks with, and the
    version of its persona."""

    personal_scope: str | None = None
    lineage: int | None = None


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
            source_type="self-taught",
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

    def _scope(self, kind: Kind) -> str:
        if kind == "server":
            return self._memory.scope
        if self._place.personal_scope is None:
            raise ToolError(
                "there is no memory space of the person you speak with here; use memory_type server"
            )
        return self._place.personal_scope
