"""Stores what is authored of the graph: attributes with a text of their own are memories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import JsonValue

from palimpsest.schemas.entities import AddToGraphCommand, Structure, StructuredAttribute
from palimpsest.schemas.identity import command_memory_id
from palimpsest.schemas.messages import GraphWork
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.rows.columns import row_of
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.streams.apply.command_work import (
    Refused,
    Work,
    command_id,
    is_guarded,
    load_names,
    refuse_frozen,
)
from palimpsest.streams.apply.privacy import refuse_in_private_scope, refuse_private
from palimpsest.streams.claims.grammar import categories_of
from palimpsest.streams.memory_rows import text_columns
from palimpsest.streams.stage import Asking

EXPLICIT_IMPORTANCE = 0.8


def add_to_graph(work: Work, command: AddToGraphCommand) -> Asking[JsonValue]:
    """Passes the structure on; the result depends on the graph."""
    structure = command.structured
    texts = own_texts(structure)
    yield from work.embed(texts)
    hashes = tuple(map(content_hash, texts))
    known = replace(load_names(work.scope, texts), content_hashes=hashes)
    yield from work.begin(own_memories(structure), known)
    refuse_frozen(work)
    refuse_in_private_scope(work)
    for each in structure.attributes:
        if each.content is None and each.memory_id is None:
            raise Refused(
                f"invalid_request: the attribute {each.aspect[:100]!r} of {each.entity[:100]!r} has"
                " no text: give `content`, or the `memory_id` of one that is stored"
            )
    work.graph = structure_work(work, structure, (), tells=True)
    return None


def own_texts(structure: Structure | None) -> tuple[str, ...]:
    """The texts of attributes that have one of their own, in storage form."""
    attributes = () if structure is None else structure.attributes
    return tuple(storage_content(each.content) for each in attributes if each.content is not None)


def own_memories(structure: Structure | None) -> tuple[str, ...]:
    """The memories that attributes name."""
    attributes = () if structure is None else structure.attributes
    return tuple(each.memory_id for each in attributes if each.memory_id is not None)


def structure_work(
    work: Work, structure: Structure | None, memory_ids: tuple[str, ...], tells: bool | None = None
) -> GraphWork | None:
    """Returns what the graph takes of a structure, and stores the texts of its attributes. Raises
    Refused where an attribute names no memory of the scope, and for what would be kept of a private
    person."""
    if structure is None:
        return None
    if work.intent.guards_graph:
        refuse_private(work, _names(structure), work.by_machine)
    return GraphWork(
        memory_ids=memory_ids,
        command_id=command_id(work.message),
        triples=structure.relations,
        entities=structure.entities,
        aspects=structure.aspects or None,
        attributes=tuple(_attributes(work, structure)),
        by_person=not work.by_machine if work.intent.guards_graph else None,
        tells=tells,
    )


def _names(structure: Structure) -> Iterator[str]:
    for entity in structure.entities:
        yield from (entity.name, *entity.aliases)
    yield from (each.entity for each in (*structure.aspects, *structure.attributes))
    for relation in structure.relations:
        yield from (relation.source, relation.target)


def _attributes(work: Work, structure: Structure) -> Iterator[StructuredAttribute]:
    for number, each in enumerate(structure.attributes):
        memory_id = each.memory_id
        if each.content is not None:
            memory_id = _stored(work, each, storage_content(each.content), number)
        elif memory_id is not None:
            row = work.memories.get(memory_id)
            if row is None or row.is_deleted:
                raise Refused(f"not_found: no active memory {memory_id[:100]} in this scope")
        yield each.model_copy(update={"memory_id": memory_id, "content": None})


def _stored(work: Work, given: StructuredAttribute, text: str, number: int) -> str:
    """Returns the memory with the text of an attribute, a new one if none has it."""
    known = work.active(content_hash(text))
    if known is not None:
        return known
    importance = EXPLICIT_IMPORTANCE if given.importance is None else given.importance
    if is_guarded(work):
        importance = min(importance, EXPLICIT_IMPORTANCE)
    # No rule: those are in every context, also once the entity is archived.
    row = row_of(
        MemoryRow,
        given,
        **text_columns(work.scope, "fact", text),
        memory_id=command_memory_id(work.scope, f"{command_id(work.message)} {number}"),
        scope=work.scope,
        type="fact",
        importance=importance,
        confidence=1.0 if given.confidence is None else given.confidence,
        categories=categories_of(text),
        who=work.intent.actor.id,
        why="explicit",
        source_type="manual",
        occurred_at=work.message.occurred_at,
        created_at=work.at,
        updated_at=work.at,
        updated_by=work.intent.actor.id,
    )
    row = work.put(row)
    work.tell("created", row.memory_id, "added to the graph", after=row)
    return row.memory_id
