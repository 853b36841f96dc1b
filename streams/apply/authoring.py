"""Stores what is authored of the graph: attributes with a text of their own are memories. And what
a text that is stored on request says of itself: its categories, and when it ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Final

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
from palimpsest.streams.claims.claim import CATEGORIES
from palimpsest.streams.claims.grammar import categories_of
from palimpsest.streams.claims.turn import claims_of_turn, sentences
from palimpsest.streams.memory_rows import is_past, text_columns
from palimpsest.streams.prompting.prompts import MAX_CATEGORIES
from palimpsest.streams.stage import Asking
from palimpsest.streams.text.dates import stated_end

EXPLICIT_IMPORTANCE = 0.8
MOST_READ: Final = 2_000
"""Maximum length, in characters, of a text that is read for what it states, as of a fact."""
LEAST_WORDS: Final = 3
"""Of a statement that goes with another one."""
_JOINED: Final = re.compile(r"[;,]? (?:and|but|und|aber) |; ")
_ORDINAL: Final = re.compile(r"(?<=\d)\.(?= (?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez))")
"""The point of a German date ends no sentence."""


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
        **stated(work, text, work.intent.actor.id),
        memory_id=command_memory_id(work.scope, f"{command_id(work.message)} {number}"),
        scope=work.scope,
        type="fact",
        importance=importance,
        confidence=1.0 if given.confidence is None else given.confidence,
        who=work.intent.actor.id,
        why="explicit",
        source_type="manual",
        occurred_at=work.message.occurred_at,
        created_at=work.at,
        updated_at=work.at,
        updated_by=work.intent.actor.id,
    )
    row = work.put(row)
    work.record_outcome("created", row.memory_id, "added to the graph", after=row)
    return row.memory_id


# --- what a text says of itself -------------------------------------------------------------------


def stated(work: Work, text: str, speaker: str) -> dict[str, object]:
    """Returns the columns that follow from a text of `speaker` in storage form: its categories, and
    its end if it states one as a whole. From the text and the time of the record alone, so that a
    rebuild finds the same."""
    if work.edition < 2:
        return {"categories": categories_of(text)}
    until = end_of_text(text, work.message.occurred_at)
    return {
        "categories": categories_in(text, speaker, work.message.occurred_at),
        "temporal_kind": "persistent" if until is None else "temporal",
        "valid_until": until,
    }


def categories_in(text: str, speaker: str, said_at: datetime) -> tuple[str, ...]:
    """Returns the categories of what the text states, in order; those of a long one are not
    known: whoever asked waits meanwhile."""
    if len(text) > MOST_READ:
        return ()
    claims = claims_of_turn(text, speaker, said_at)
    names = [name for claim in claims for name in CATEGORIES[claim.slot]]
    return tuple(dict.fromkeys((*categories_of(text), *names)))[:MAX_CATEGORIES]


def end_of_text(text: str, said_at: datetime) -> datetime | None:
    """Returns when the text as a whole ends, in UTC; None if it does not say, or says several
    things, of which the others go on."""
    if len(text) > MOST_READ or "\n" in text or len(sentences(_ORDINAL.sub("", text))) > 1:
        return None
    if sum(len(part.split()) >= LEAST_WORDS for part in _JOINED.split(text)) > 1:
        return None
    return stated_end(text, said_at)


def restated(row: MemoryRow, after: MemoryRow, said_at: datetime) -> MemoryRow:
    """Returns a memory whose text was changed at `said_at` with the categories and the end that the
    new text states instead of those that the text before stated. Words such as "until Friday" that
    stay mean the day that they meant, and what something else has ended stays as it ended."""
    gone = categories_in(row.content, row.who, row.occurred_at)
    left = (name for name in row.categories if name not in gone)
    now = (*categories_in(after.content, after.who, said_at), *left)
    after = replace(after, categories=tuple(dict.fromkeys(now)))
    until = row.valid_until
    if is_past(row) or (until and end_of_text(after.content, row.occurred_at) == until):
        return after
    end = end_of_text(after.content, said_at)
    if end is None and (until is None or end_of_text(row.content, row.occurred_at) != until):
        return after
    return replace(after, temporal_kind="temporal" if end else "persistent", valid_until=end)
