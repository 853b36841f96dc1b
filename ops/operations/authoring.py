"""Authoring the graph: what people and agents add to it, and how they mend entities."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from palimpsest.ops.errors import RequestError
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.answers import Applied
from palimpsest.ops.operations.operation import Answer, Doc, Surface, Write

_AUTHOR = partial(Surface, tag="graph", panel="Change", permission="modify", rate="modify")


class GraphItems(Answer):
    """Parts of the graph: entities and aliases by name, aspects as `entity: aspect`, attributes by
    their memories, relations as `source relation target`."""

    entities: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    aspects: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()


class AddedToGraph(Applied, kw_only=True):
    """What was `added` and what was `known` before; `status` is `added`, or `already` if nothing
    was new. `warnings` say what was left out and why."""

    status: str
    added: GraphItems
    known: GraphItems
    warnings: tuple[str, ...] = ()


class AddToGraph(Write[AddedToGraph]):
    """Add entities, aspects, attributes and relations to the graph, without a text.

    An attribute is a memory of its own: give its `content`, or the `memory_id` of one that is
    stored. What is known already stays as it is.

    Example: palimpsest add-to-graph '{"entities": [{"name": "Apollo"}]}' --scope support
    """

    structured: Annotated[
        dict[str, Any],
        Doc(
            "entities (name, type, aliases), aspects (entity, aspect), attributes (entity, aspect,"
            " content, kind, confidence, importance) and relations (source, relationship, target)",
            model="palimpsest.schemas.entities:Structure",
            argument=True,
            metavar="JSON",
        ),
    ]
    scope: shared.Scope = ""
    reason: shared.Reason = ""

    body: ClassVar = "AddToGraphCommand"
    surface: ClassVar = _AUTHOR(("POST", "/api/graph"), command="add-to-graph")

    def validate(self) -> None:
        if not any(self.structured.values()):
            raise RequestError(
                "nothing to add; name at least one of entities, aspects, attributes, relations"
            )


EntityType = Literal[
    "person", "organization", "place", "product", "project", "system", "tool", "concept", "skill",
    "task", "unknown",
]  # fmt: skip


class EditedEntity(Applied, kw_only=True):
    """The outcome of an edit (`updated` or `no_changes`), and the entity as it is now: `aliases`
    are its other names."""

    status: str
    entity_id: str
    name: str
    type: str
    aliases: tuple[str, ...]
    pinned: bool
    archived: bool
    version: int


class EditEntity(Write[EditedEntity]):
    """Rename an entity, set its type, pin or archive it. Archiving can be undone.

    Its previous name remains another name of it. An archived entity is in no list or graph, and
    no context shows its constraints; its memories stay, and restoring it brings it back with all
    that was said of it meanwhile. Agents cannot change what a person edited or pinned.

    Example: palimpsest edit-entity Jhon --rename John --type person --scope support
    """

    name: Annotated[str, Doc("any name of the entity", min_length=1, max_length=256, argument=True)]
    rename: Annotated[
        str | None,
        Doc("the name to show from now on", min_length=1, max_length=256, not_blank=True),
    ] = None
    type: Annotated[
        EntityType | None, Doc("what it is; `unknown` takes back the type that was set")
    ] = None
    pinned: Annotated[bool | None, Doc("agents may not change it; it is never cleaned up")] = None
    archived: Annotated[bool | None, Doc("take it out of the graph, or restore it")] = None
    if_version: Annotated[int | None, Doc("refuse unless the entity is at this version", ge=1)] = (
        None
    )
    scope: shared.Scope = ""
    reason: shared.Reason = ""

    body: ClassVar = "EditEntityCommand"
    surface: ClassVar = _AUTHOR(("PATCH", "/api/entities/{name:path}"), command="edit-entity")

    def validate(self) -> None:
        if all(each is None for each in (self.rename, self.type, self.pinned, self.archived)):
            raise RequestError("nothing to change; name one of rename, type, pinned, archived")
