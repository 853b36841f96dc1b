"""Authoring the graph: what people and agents add to it and remove, and how they edit entities."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from palimpsest.ops.errors import RequestError
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.answers import Applied
from palimpsest.ops.operations.operation import Answer, Doc, Surface, Write
from palimpsest.schemas.rows.enumerations import EntityType

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
    surface: ClassVar = _AUTHOR(("POST", "/api/graph"), command="add-to-graph", tool="add_to_graph")

    def validate(self) -> None:
        if not any(self.structured.values()):
            raise RequestError(
                "nothing to add; name at least one of entities, aspects, attributes, relations"
            )


class RemovedFromGraph(Applied, kw_only=True):
    """What was `removed` and what was `missing`, with the names as they were given; `status` is
    `removed`, or `no_changes` if nothing was there."""

    status: str
    removed: GraphItems
    missing: GraphItems


class RemoveFromGraph(Write[RemovedFromGraph]):
    """Remove relations, aspects and attributes from the graph; the memories stay.

    What was told of any name of an entity goes. An aspect goes with all its attributes. What is
    added or stated again comes back; the classification by a model brings nothing back. Agents
    cannot change what a person edited or pinned.

    Example: palimpsest remove-from-graph '{"aspects": [{"entity": "Ana", "aspect": "diet"}]}'
    """

    structured: Annotated[
        dict[str, Any],
        Doc(
            "relations (source, relationship, target), aspects (entity, aspect) and attributes"
            " (entity, aspect, memory_id)",
            model="palimpsest.schemas.entities:StructureToRemove",
            argument=True,
            metavar="JSON",
        ),
    ]
    scope: shared.Scope = ""
    reason: shared.Reason = ""

    body: ClassVar = "RemoveFromGraphCommand"
    surface: ClassVar = _AUTHOR(
        ("POST", "/api/graph/remove"), command="remove-from-graph", tool="remove_from_graph"
    )

    def validate(self) -> None:
        if not any(self.structured.values()):
            raise RequestError("nothing to remove; name a relation, an aspect or an attribute")


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
        Literal[EntityType, "unknown"] | None,
        Doc("what it is; `unknown` takes back the type that was set"),
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
