"""What people and agents tell of the graph: what is authored of entities, and edits of one."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from palimpsest.schemas.envelope import Frozen, Share, Triple
from palimpsest.schemas.rows.enumerations import EntityType


class StructuredEntity(Frozen):
    name: str
    type: str = "unknown"
    aliases: tuple[str, ...] = ()


class StructuredAspect(Frozen):
    """A facet of an entity, under which its attributes are grouped."""

    entity: str
    aspect: str


class StructuredAttribute(StructuredAspect):
    """An attribute or constraint of an entity. It is a memory: with `content` one of its own, with
    `memory_id` one that is there, else the text that it comes with. `confidence` and `importance`
    are those of the attribute, by default 1 and 0.5."""

    kind: Literal["attribute", "constraint"] = "attribute"
    content: str | None = Field(default=None, pattern=r"\S", max_length=100_000)
    confidence: Share | None = None
    importance: Share | None = None
    memory_id: str | None = None


class Structure(Frozen):
    """What is authored of the graph, alone or with a remembered text."""

    entities: tuple[StructuredEntity, ...] = ()
    aspects: tuple[StructuredAspect, ...] = ()
    attributes: tuple[StructuredAttribute, ...] = ()
    relations: tuple[Triple, ...] = ()


class AddToGraphCommand(Frozen):
    """Add to the graph without a text. What is known stays as it is."""

    command: Literal["add-to-graph"] = "add-to-graph"
    structured: Structure
    reason: str = ""


class NamedRelation(Frozen):
    source: str
    relationship: str
    target: str


class NamedAttribute(StructuredAspect):
    memory_id: str


class StructureToRemove(Frozen):
    """Parts of the graph: aspects with all their attributes, attributes by their memories, and
    relations; each by any name of its entity."""

    aspects: tuple[StructuredAspect, ...] = ()
    attributes: tuple[NamedAttribute, ...] = ()
    relations: tuple[NamedRelation, ...] = ()


class RemoveFromGraphCommand(Frozen):
    """Remove parts of the graph; memories stay. What is added or stated again comes back; a model
    alone does not bring an aspect or an attribute back."""

    command: Literal["remove-from-graph"] = "remove-from-graph"
    structured: StructureToRemove
    reason: str = ""


class EditEntityCommand(Frozen):
    """Change what people see of the entity with this name; None leaves it as it is. `rename`: it
    keeps its other names. The type `unknown` takes back one that was set. `archived`: it is out of
    the graph until it is restored, with all that was said of it meanwhile."""

    command: Literal["edit-entity"] = "edit-entity"
    name: str = Field(min_length=1, max_length=256)
    rename: str | None = Field(default=None, min_length=1, max_length=256)
    type: EntityType | Literal["unknown"] | None = None
    pinned: bool | None = None
    archived: bool | None = None
    if_version: int | None = None
    reason: str = ""
