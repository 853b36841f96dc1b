"""The graph: who and what is known, and that two names mean the same."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from palimpsest.ops.operations.answers import Applied, StoredMemory
from palimpsest.ops.operations.operation import (
    Ask,
    Cursor,
    Doc,
    Json,
    Limit,
    Read,
    Reason,
    Scope,
    Surface,
    Write,
)

if TYPE_CHECKING:
    from palimpsest.ops.queries.sources import Sources
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.schemas.commands import Command


@dataclass(frozen=True, slots=True)
class EntityRow:
    """Who or what a name stands for. `mentions` counts the memories that name it, `times_told` how
    often it was mentioned in all."""

    id: str
    scope: str
    name: str
    type: str
    aliases: tuple[str, ...]
    summary: str | None
    mentions: int
    times_told: int
    pinned: bool
    first_seen: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class EntityPage:
    """Entities, the most often mentioned first; `next_cursor` is None on the last page."""

    entities: tuple[EntityRow, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Entities(Read[EntityPage]):
    """List the entities of a scope, the most often mentioned first, page by page.

    Example: palimpsest entities --scope support
    """

    query: Annotated[
        str | None, Doc("part of a name", min_length=1, max_length=2_000, not_blank=True)
    ] = None
    scope: Scope = ""
    limit: Limit = 50
    cursor: Cursor = None

    surface: ClassVar = Surface(("GET", "/api/entities"), tag="graph", command="entities")

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.entities import entities

        return entities(sources, self)


@dataclass(frozen=True, slots=True)
class Entity(EntityRow):
    """An entity with its relations, its attributes and the newest memories that name it."""

    relations: tuple[dict[str, Any], ...] = ()
    attributes: tuple[dict[str, Any], ...] = ()
    memories: tuple[StoredMemory, ...] = ()


@dataclass(frozen=True, slots=True)
class GetEntity(Read[Entity]):
    """Show who or what a name stands for: other names, relations, and the memories that name it.

    Example: palimpsest entity Ana --scope support
    """

    name: Annotated[
        str,
        Doc("any name of a person or a thing", min_length=1, max_length=2_000, argument=True),
    ]
    scope: Scope = ""
    limit: Limit = 20

    surface: ClassVar = Surface(
        ("GET", "/api/entities/{name:path}"),
        tag="graph",
        command="entity",
        tool="get_entity_info",
    )

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.entities import entity

        return entity(sources, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliased(Applied):
    """What became of two names: they meant one entity before (`already`), one became another name
    of the other's entity (`added`), or two entities became one (`merged`)."""

    status: str


@dataclass(frozen=True, slots=True)
class Alias(Write[Aliased]):
    """Record that two names mean the same: a person, a place, a thing.

    Example: palimpsest alias PostgreSQL Postgres --scope support
    """

    name: Annotated[str, Doc("a name", min_length=1, max_length=256, argument=True)]
    alias: Annotated[
        str, Doc("another name of the same", min_length=1, max_length=256, argument=True)
    ]
    scope: Scope = ""
    reason: Reason = ""

    surface: ClassVar = Surface(
        ("POST", "/api/entities/{name:path}/aliases"),
        tag="graph",
        command="alias",
        panel="Change",
        permission="modify",
        rate="modify",
    )

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import AliasCommand

        return AliasCommand(name=self.name, alias=self.alias, reason=self.reason)
