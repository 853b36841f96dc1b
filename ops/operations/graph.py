"""The graph: entities, their relations, and aliases."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.operations.answers import Applied, StoredMemory
from palimpsest.ops.operations.memories import stored_memories
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
from palimpsest.ops.operations.rows import no_cursor, rows

if TYPE_CHECKING:
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.ops.sources import Sources
    from palimpsest.schemas.commands import Command
    from palimpsest.stores.shard import Shard


@dataclass(frozen=True, slots=True)
class EntityRow:
    """A person or thing. `mentions` counts the memories that name it, `times_told` all its
    mentions."""

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
    """Entities, the most mentioned first; `next_cursor` is None on the last page."""

    entities: tuple[EntityRow, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Entities(Read[EntityPage]):
    """List the entities of a scope, the most mentioned first, page by page.

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
        from palimpsest.schemas.normal_forms import canonical_name

        conditions, values = ["scope = ?"], [cast("object", self.scope)]
        if self.query is not None:
            conditions.append(
                "(contains(canonical_name, ?) OR len(list_filter(aliases,"
                " lambda alias: contains(alias, ?))) > 0)"
            )
            values += [canonical_name(self.query)] * 2
        if self.cursor is not None:
            conditions.append("(times_told < ? OR (times_told = ? AND entity_id > ?))")
            mentioned, _, entity_id = self.cursor.partition("/")
            if not (mentioned.isascii() and mentioned.isdecimal() and len(mentioned) <= 18):
                raise no_cursor(self.cursor)
            values += [int(mentioned), int(mentioned), entity_id]
        found = rows(
            sources.shard_of(self.scope),
            f"SELECT {_ENTITY} FROM main.entities WHERE {' AND '.join(conditions)}"
            " ORDER BY times_told DESC, entity_id LIMIT ?",
            [*values, self.limit],
        )
        last = found[-1] if len(found) == self.limit else None
        return {
            "entities": found,
            "next_cursor": last and f"{last['times_told']}/{last['id']}",
        }


_ENTITY = (
    "entity_id AS id, scope, name, entity_type AS type, aliases, summary, mentions, times_told,"
    " pinned, first_seen, updated_at"
)


@dataclass(frozen=True, slots=True)
class Entity(EntityRow):
    """An entity with its relations, its attributes and the newest memories that name it."""

    relations: tuple[dict[str, Any], ...] = ()
    attributes: tuple[dict[str, Any], ...] = ()
    memories: tuple[StoredMemory, ...] = ()


@dataclass(frozen=True, slots=True)
class GetEntity(Read[Entity]):
    """Show the person or thing with this name: other names, relations, and memories that name it.

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
        from palimpsest.schemas.normal_forms import canonical_name

        if not self.name.strip():
            raise RequestError("the name is empty")
        shard = sources.shard_of(self.scope)
        name = canonical_name(self.name)
        found = rows(
            shard,
            f"SELECT {_ENTITY} FROM main.entities WHERE scope = ?"
            " AND (canonical_name = ? OR list_contains(aliases, ?))",
            [self.scope, name, name],
        )
        if not found:
            nearest = _nearest(shard, self.scope, name)
            raise NotFoundError(f"nothing called {self.name} is known in this scope{nearest}")
        entity = {"id": found[0]["id"], "scope": self.scope}
        memories = stored_memories(
            sources,
            shard,
            "memory_id IN (SELECT memory_id FROM present_mentions"
            " WHERE entity_id = ? AND scope = ?) AND NOT is_deleted"
            " ORDER BY occurred_at DESC, created_at DESC, memory_id DESC LIMIT ?",
            [entity["id"], self.scope, self.limit],
        )
        return {
            **found[0],
            "relations": rows(shard, _RELATIONS, entity),
            "attributes": rows(shard, _ATTRIBUTES, entity),
            "memories": memories,
        }


def _nearest(shard: Shard, scope: str, name: str) -> str:
    """The known name nearest to a misspelled one; empty if none is near."""
    import difflib

    from palimpsest.schemas.normal_forms import canonical_name

    known = rows(shard, "SELECT name FROM main.entities WHERE scope = ?", [scope])
    names = {canonical_name(row["name"]): row["name"] for row in known}
    near = difflib.get_close_matches(name, names, 1, 0.5)
    return f"; did you mean {names[near[0]]}?" if near else ""


_RELATIONS = """
SELECT CASE WHEN r.source_entity_id = $id THEN 'out' ELSE 'in' END AS direction,
    r.relation_type AS relation, e.name, e.entity_type AS type, r.mentions, r.confidence
FROM main.relations r JOIN known_entities e ON e.scope = r.scope AND e.entity_id =
    CASE WHEN r.source_entity_id = $id THEN r.target_entity_id ELSE r.source_entity_id END
WHERE r.scope = $scope AND (r.source_entity_id = $id OR r.target_entity_id = $id)
ORDER BY r.mentions DESC, r.confidence DESC, e.name, relation
"""
_ATTRIBUTES = """
SELECT a.name AS aspect, t.kind, m.memory_id, m.content, t.confidence, t.importance
FROM main.entity_aspects a
    JOIN main.entity_attributes t ON t.aspect_id = a.aspect_id AND t.scope = a.scope
    JOIN memory_rows m ON m.memory_id = t.memory_id
WHERE a.scope = $scope AND a.entity_id = $id AND t.status = 'active' AND NOT m.is_deleted
ORDER BY a.name, m.occurred_at, m.created_at, m.memory_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliased(Applied):
    """The outcome for two names: they already named one entity (`already`), one became a name of
    the other's entity (`added`), or two entities became one (`merged`)."""

    status: str


@dataclass(frozen=True, slots=True)
class Alias(Write[Aliased]):
    """Record that two names mean the same person, place or thing.

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
