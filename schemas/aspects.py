"""What a language model, and recalls, say of aspects of entities."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from palimpsest.schemas.envelope import Frozen, UtcTime
from palimpsest.schemas.promotions import Id
from palimpsest.schemas.rows.enumerations import EntityType


class ClassifiedFact(Frozen):
    """The aspect of an entity that a memory belongs to, as a model saw the memory. `entity` is the
    name by which the memory calls it. `text_key` is that of the classified text; a command has
    none, the stage that executes it adds it."""

    memory_id: Id
    version: int
    entity: str = Field(min_length=1, max_length=256)
    aspect: str = Field(min_length=1, max_length=40)
    kind: Literal["attribute", "constraint"] = "attribute"
    text_key: str | None = None


class Classification(Frozen):
    """What a model said of facts about one entity. `entity_type` is None where it said nothing that
    is a type."""

    entity_type: EntityType | None = None
    facts: tuple[ClassifiedFact, ...] = Field(default=(), max_length=200)


class ClassifyFactsCommand(Classification):
    """Keep to which aspects of an entity facts belong, and its type: the worker's alone. Facts that
    were changed or forgotten since are left out. `left_out`: ids and versions of those of which the
    model said nothing usable; it is not asked about them again while the result is kept."""

    command: Literal["classify-facts"] = "classify-facts"
    model: str = Field(max_length=512)
    entity_id: Id
    left_out: tuple[str, ...] = Field(default=(), max_length=200)


class AspectChange(Frozen):
    """How the weight of an aspect changes: up by memories of it that a session recalled
    (`confirmations`), or down by time."""

    aspect_id: Id
    change: float = Field(ge=-1.0, le=1.0)
    confirmations: int = Field(default=0, ge=0)


class WeighAspectsCommand(Frozen):
    """Change the weights of aspects: the worker's alone. `session_id` is the session whose recalls
    were counted, those that were recorded up to `through`; empty for those that nothing recalled
    for long."""

    command: Literal["weigh-aspects"] = "weigh-aspects"
    session_id: str = Field(default="", max_length=256)
    through: UtcTime | None = None
    aspects: tuple[AspectChange, ...] = Field(min_length=1, max_length=500)
