"""Rows of aspects: what a language model said of facts, where no one else has, and weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from palimpsest.schemas.aspects import AspectChange, Classification, ClassifiedFact
from palimpsest.schemas.erasure.quotations import is_mark
from palimpsest.schemas.identity import aspect_id, entity_id
from palimpsest.schemas.normal_forms import canonical_name
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.graph import (
    FIRST_WEIGHT,
    LEAST_WEIGHT,
    MOST_WEIGHT,
    VAGUE_TYPES,
    AspectRow,
    AspectWeightRow,
    AttributeRow,
)
from palimpsest.streams.stage import Message
from palimpsest.streams.store_port import Graph

NOT_CLASSIFIED: Final = Classification()
NIGHT: Final = timedelta(hours=20)
"""From one decay of an aspect to the next, at the least."""


def attribute_keys(scope: str, classified: Classification) -> tuple[tuple[str, str], ...]:
    """The keys of the attributes of classified facts."""
    return tuple(dict.fromkeys(_key(scope, fact) for fact in classified.facts))


def _key(scope: str, fact: ClassifiedFact) -> tuple[str, str]:
    owner = entity_id(scope, canonical_name(fact.entity))
    return aspect_id(owner, canonical_name(fact.aspect)), fact.memory_id


def classified_rows(message: Message, classified: Classification, graph: Graph) -> Iterator[Row]:
    """Yields names whose type was not known, aspects, and attributes. Facts by a name that the
    graph does not have, as after an erasure, are left out, and so are those of erased texts."""
    scope, at = message.scope, message.recorded
    aspects = dict(graph.aspects)
    for fact in classified.facts:
        owner = graph.names.get(canonical_name(fact.entity))
        if owner is None:
            continue
        is_typed = owner.entity_type not in VAGUE_TYPES or owner.pinned
        if classified.entity_type is not None and not is_typed:
            yield replace(owner, entity_type=classified.entity_type, updated_at=at)
        texts = {each.key: each.text for each in graph.texts.get(fact.memory_id, ())}
        text = texts.get(str(fact.text_key))
        if text is None or is_mark(text):
            continue
        found, memory_id = _key(scope, fact)
        known = aspects.get((found,))
        name = canonical_name(fact.aspect)
        aspects[found,] = row = (
            AspectRow(
                aspect_id=found,
                name_id=owner.name_id,
                scope=scope,
                name=name,
                canonical_name=name,
                updated_at=at,
            )
            if known is None
            else replace(known, updated_at=at)
        )
        yield row
        before = graph.attributes.get((found, memory_id))
        if before is None or before.text_key is not None:
            yield AttributeRow(
                aspect_id=found,
                memory_id=memory_id,
                scope=scope,
                kind=fact.kind,
                status="active" if before is None else before.status,
                text_key=fact.text_key,
            )


def weighed_rows(
    message: Message, changes: Sequence[AspectChange], graph: Graph
) -> Iterator[AspectWeightRow]:
    """Yields the weights, within their bounds; also of aspects that are not there, since the facts
    that made them may have been erased."""
    weights = dict(graph.weights)
    for each in changes:
        row = weights.get((each.aspect_id,))
        row = row or AspectWeightRow(aspect_id=each.aspect_id, scope=message.scope)
        if each.confirmations:
            confirmations = row.confirmations + each.confirmations
            row = replace(row, confirmations=confirmations, used_at=message.recorded)
        elif row.decayed_at is None or message.recorded - row.decayed_at >= NIGHT:
            row = replace(row, decayed_at=message.recorded)
        else:
            continue
        weight = max(LEAST_WEIGHT, min(MOST_WEIGHT, FIRST_WEIGHT + row.gain + each.change))
        weights[each.aspect_id,] = row = replace(row, gain=round(weight - FIRST_WEIGHT, 9))
        yield row
