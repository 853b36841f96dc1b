"""Names, relations, mentions, aspects and attributes."""

# Annotations are read while the program runs, so they are not postponed here.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from palimpsest.schemas.rows.columns import (
    NOT_KNOWN_BEFORE,
    Appended,
    MaybeAppended,
    MemoryId,
    Row,
    Scope,
    Since,
)

UNKNOWN = "unknown"
"""The type of an entity of which nobody said one."""
VAGUE_TYPES = ("extracted", UNKNOWN, "")
"""Uninformative types of entities: any other type takes precedence."""
AUTHORED = "whether it was added without a text: it stays whatever memories are forgotten"
LEAST_WEIGHT, FIRST_WEIGHT, MOST_WEIGHT = 0.1, 0.5, 1.0
"""Weights of aspects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRow(Row, table="name_rows", key=("name_id",), rewritten=True):
    """A name of the entity whose main name has the id `entity_id`."""

    name_id: Annotated[str, "id of the name"]
    scope: Scope
    name: Annotated[str, "its name as it was first written"]
    canonical_name: Annotated[str, "its name lower-cased: the same name is the same entity"]
    entity_id: Annotated[str, "id of the entity"]
    is_alias: Annotated[bool, "whether it denotes an entity with another main name"] = False
    entity_type: Annotated[str, "person, place, organization …"]
    summary: Annotated[str | None, "what is known of it in a sentence"] = None
    mentions: Annotated[int, "how often it was told of"] = 1
    pinned: Annotated[bool, "whether machines must leave it alone"] = False
    first_seen: Annotated[Appended, "when it was first named"]
    updated_at: Annotated[Appended, "when it was last updated here"]
    chosen: Annotated[
        int, "of the entity's names the one with the most is shown; 0: never chosen", Since(34)
    ] = 0
    set_type: Annotated[
        str | None, "the type that was set, ahead of `entity_type`; NULL: none", Since(34)
    ] = None
    archived: Annotated[
        bool, "whether the entity is out of the graph until restored", Since(34)
    ] = False
    edits: Annotated[int, "how often the entity was edited by this main name", Since(34)] = 0
    authored: Annotated[bool, AUTHORED, Since(34)] = False
    edited_by_person: Annotated[
        bool, "whether a person edited it: machines must not", Since(34)
    ] = False


def type_of(names: Sequence[NameRow]) -> str:
    """The type of the entity that has these names, the main name first: one that was set, else the
    first that tells something."""
    types = [name.set_type for name in names if name.set_type is not None]
    types += [name.entity_type for name in names if name.entity_type not in VAGUE_TYPES]
    return (types or [names[0].entity_type])[0]


def shown_order(row: NameRow) -> tuple[int, bool, str]:
    """The key by which the first of an entity's names is the one that is shown."""
    return -row.chosen, row.name_id != row.entity_id, row.canonical_name


@dataclass(frozen=True, slots=True, kw_only=True)
class NameLinkRow(
    Row, table="name_links", key=("name_id", "alias_id"), since=25, indexed=False, rewritten=True
):
    """Whether two names denote one entity, as somebody said. An entity is made of the names that
    active links join; a link that was taken back keeps its names from being proposed again."""

    name_id: Annotated[str, "the name"]
    alias_id: Annotated[str, "the name that is another one of the same entity"]
    scope: Scope
    is_active: Annotated[bool, "whether they denote one entity"] = True
    command_id: Annotated[
        str | None,
        "the command that said so last; NULL when it came with a memory, an import or a new name",
        NOT_KNOWN_BEFORE,
    ] = None
    updated_at: Annotated[Appended, "when it was said last"]
    by_person: Annotated[bool, "whether a person said so: agents must not", Since(34)] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationRow(
    Row,
    table="relation_rows",
    key=("source_name_id", "target_name_id", "relation_type"),
    indexed=False,
    rewritten=True,
):
    """Source name, relation type, target name."""

    source_name_id: Annotated[str, "the name that it goes from"]
    target_name_id: Annotated[str, "the name that it goes to"]
    relation_type: Annotated[str, "what the source is to the target"]
    scope: Scope
    strength: Annotated[float, "how strong it is, from 0 to 1"] = 1.0
    mentions: Annotated[int, "how often it was told; 0: it was removed, and not told since"] = 1
    confidence: Annotated[float, "the average of all that told it, from 0 to 1"]
    authored: Annotated[bool, AUTHORED, Since(34)] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MentionRow(
    Row, table="mention_rows", key=("memory_id", "text_key", "name_id"), indexed=False
):
    """A text of a memory has a name, written as `mention_text`. Two names whose `stated` share no
    bit stand together only in what the text denies: it supports no relation between them."""

    memory_id: MemoryId
    text_key: Annotated[str, "the `embedding_key` of the text"]
    name_id: Annotated[str, "the name that is in it"]
    scope: Scope
    mention_text: Annotated[str, "how the memory names it"]
    confidence: Annotated[float, "how sure it is that the entity is meant, from 0 to 1"]
    stated: Annotated[
        int,
        "a bit for each clause of the text that states something of it; -1 where the text denies"
        " nothing",
        NOT_KNOWN_BEFORE,
        Since(33),
    ] = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AspectRow(Row, table="aspect_rows", key=("aspect_id",)):
    """A facet under which attributes of an entity, by one of its names, are grouped."""

    aspect_id: Annotated[str, "id of the aspect"]
    name_id: Annotated[str, "the name of the entity"]
    scope: Scope
    name: Annotated[str, "the facet as it was first written"]
    canonical_name: Annotated[str, "the facet lower-cased"]
    weight: Annotated[float, "how much it counts, from 0 (removed) to 1"] = FIRST_WEIGHT
    updated_at: Annotated[Appended, "when it was last updated here"]
    authored: Annotated[bool, AUTHORED, Since(34)] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AspectWeightRow(Row, table="aspect_weights", key=("aspect_id",), since=29):
    """What recalls have made of the weight of an aspect. It has a row of its own because it stays
    the same whichever facts of the aspect are erased."""

    aspect_id: Annotated[str, "id of the aspect"]
    scope: Scope
    gain: Annotated[float, "what recalls added to its weight, and time took away"] = 0.0
    confirmations: Annotated[int, "memories of it that sessions recalled"] = 0
    used_at: Annotated[MaybeAppended, "when they were counted last; NULL if never"] = None
    decayed_at: Annotated[MaybeAppended, "when time last took from it; NULL if never"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeRow(Row, table="attribute_rows", key=("aspect_id", "memory_id"), indexed=False):
    """A memory that says something about an aspect of an entity."""

    aspect_id: Annotated[str, "id of the aspect"]
    memory_id: MemoryId
    scope: Scope
    kind: Annotated[str, "attribute or constraint"] = "attribute"
    status: Annotated[str, "active, superseded or deleted"] = "active"
    confidence: Annotated[float, "how sure it is, from 0 to 1"] = 1.0
    importance: Annotated[float, "from 0 to 1"] = 0.5
    text_key: Annotated[
        str | None,
        "the `embedding_key` of the text that a model classified; NULL where no model did",
        Since(29),
    ] = None
