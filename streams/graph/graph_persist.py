"""graph-persist: triples and authored structure become entities, relations and mentions.

It has its own transaction after the memory's; a failure here never reverts a memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from pydantic import JsonValue

from palimpsest.schemas.aspects import Classification
from palimpsest.schemas.entities import StructuredAspect, StructuredAttribute, StructuredEntity
from palimpsest.schemas.envelope import Triple
from palimpsest.schemas.erasure.quotations import is_mark
from palimpsest.schemas.identity import ERASED_NAME, aspect_id, entity_id
from palimpsest.schemas.messages import GraphChange, GraphSweep, GraphWork, MemoryChange
from palimpsest.schemas.normal_forms import canonical_name, shown_name
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.graph import (
    UNKNOWN,
    VAGUE_TYPES,
    AspectRow,
    AttributeRow,
    MentionRow,
    NameRow,
    RelationRow,
)
from palimpsest.schemas.rows.pipeline import CommandRow
from palimpsest.schemas.topics import GRAPH_CHANGES, MEMORY_CHANGES
from palimpsest.streams.graph.classified import (
    NOT_CLASSIFIED,
    attribute_keys,
    classified_rows,
    weighed_rows,
)
from palimpsest.streams.graph.entities import Refused, answer, edit, join, remove, separate
from palimpsest.streams.graph.graph_work import (
    Work,
    add_mention,
    answer_command,
    canonical,
    link_key,
    mentions_before,
    new_name,
)
from palimpsest.streams.graph.imports import imported_names, imported_rows
from palimpsest.streams.stage import Context, Emit, Message, Process, Stage, Step
from palimpsest.streams.store_port import (
    EraseGraph,
    LoadGraph,
    Put,
    Sweep,
)
from palimpsest.streams.text.linker import name_fault, names_in


def graph_persist_stage(extraction_writes: bool) -> Stage:
    """The stage; without `extraction_writes` it ignores extraction's triples, but not what people
    and agents authored."""

    def process(message: Message, context: Context) -> Process:
        body = message.body
        assert isinstance(body, MemoryChange)
        given = body.graph
        if given is None:
            return Step()
        if given.erased or given.erased_scope:
            gone = None if given.erased_scope else given.erased
            return Step(writes=(EraseGraph(message.scope, gone),))
        if given.sweep is not None:
            graph = yield from LoadGraph(message.scope, (), command_id=given.command_id)
            return Step(writes=(_swept(message, given.sweep, graph.command),))
        is_taken = extraction_writes if given.from_turns is None else given.from_turns
        if not (is_taken or _is_authored(given)):
            return Step()
        graph = yield from LoadGraph(
            message.scope,
            tuple(dict.fromkeys(map(canonical, _names(given)))),
            (*given.memory_ids, *_about(given)),
            tuple(dict.fromkeys(map(canonical, _told_the_same(given)))),
            given.command_id,
            erased=given.imported is not None,
            links=tuple(dict.fromkeys(link_key(message.scope, *pair) for pair in _pairs(given))),
            attributes=(
                *attribute_keys(message.scope, given.classified or NOT_CLASSIFIED),
                *_authored_keys(message.scope, given),
            ),
            aspects=tuple({canonical_name(each.aspect) for each in _aspects_to_remove(given)}),
            weights=tuple((each.aspect_id,) for each in given.weighed or ()),
        )
        known = (dict(graph.names), dict(graph.relations), dict(graph.links))
        work = Work(message, graph, given, *known)
        _persist(work, given)
        change = GraphChange(
            memory_ids=given.memory_ids,
            entities_inserted=work.entities_inserted,
            entities_updated=work.entities_updated,
            relations_inserted=work.relations_inserted,
            relations_updated=work.relations_updated,
            mentions_linked=work.mentions_linked,
            warnings=tuple(work.warnings),
            session_id=body.session_id,
        )
        writes = (*map(Put, (*work.changed.values(), *work.mentions.values())), *work.structure)
        return Step(writes=writes, emits=(Emit(GRAPH_CHANGES, change, "graph"),))

    return Stage(name="graph-persist", reads=(MEMORY_CHANGES,), process=process, stateful=True)


def _about(given: GraphWork) -> Iterable[str]:
    """The memories of attributes, and of facts that a model classified."""
    classified = given.classified or NOT_CLASSIFIED
    yield from filter(None, (each.memory_id for each in given.attributes))
    yield from dict.fromkeys(each.memory_id for each in classified.facts)


def _is_authored(given: GraphWork) -> bool:
    # Changes from before commands were recorded are recognised by fields that extraction never
    # sets.
    by_command = given.command_id is not None
    return by_command or bool(given.aliases or given.entities or given.attributes)


def _pairs(given: GraphWork) -> Iterable[tuple[str, str]]:
    """Pairs of names that the change says to be, or not to be, one entity's."""
    yield from given.aliases
    for name, alias in given.separated or ():
        yield from ((name, alias), (alias, name))
    for entity in given.entities:
        yield from ((entity.name, alias) for alias in entity.aliases)
    if given.edited is not None:
        yield given.edited.name, given.edited.rename or given.edited.name


def _names(given: GraphWork) -> Iterable[str]:
    for triple in given.triples:
        yield triple.source
        yield triple.target
    for entity in given.entities:
        yield entity.name
    for aspect in (*(given.aspects or ()), *given.attributes):
        yield aspect.entity
    yield from _told_the_same(given)
    yield from imported_names(given.imported)
    yield from (fact.entity for fact in (given.classified or NOT_CLASSIFIED).facts)


def _told_the_same(given: GraphWork) -> Iterable[str]:
    for pair in _pairs(given):
        yield from pair
    for relation in given.removed.relations if given.removed else ():
        yield from (relation.source, relation.target)
    yield from (each.entity for each in _aspects_to_remove(given))


def _aspects_to_remove(given: GraphWork) -> Iterable[StructuredAspect]:
    return (*given.removed.aspects, *given.removed.attributes) if given.removed else ()


def _persist(work: Work, given: GraphWork) -> None:
    for pair in given.aliases:
        answer(work, given.command_id, partial(join, work, *pair, given.command_id))
    for pair in given.separated or ():
        answer(work, given.command_id, partial(separate, work, *pair, given.command_id))
    if given.edited is not None:
        answer(work, given.command_id, partial(edit, work, given.edited))
    if given.removed is not None:
        answer(work, given.command_id, partial(remove, work, given.removed))
    for entity in given.entities:
        _entity(work, entity)
    for triple in given.triples:
        _triple(work, triple)
    for aspect in given.aspects or ():
        _aspect(work, aspect, work.memory_ids)
    for attribute in given.attributes:
        _attribute(work, attribute)
    _classified(work, given.classified or NOT_CLASSIFIED)
    work.structure += map(Put, weighed_rows(work.message, given.weighed or (), work.graph))
    if given.tells:
        status = "added" if any(work.added.values()) else "already"
        told: dict[str, JsonValue] = {"status": status, "warnings": [*work.warnings]}
        told |= {"added": {**work.added}, "known": {**work.known}}
        answer_command(work, given.command_id, None, told)
    if given.imported is not None:
        rows, result = imported_rows(work.message.scope, given.imported, work.graph)
        work.structure += map(Put, rows)
        _link_imported(work, rows)
        answer_command(work, given.command_id, None, result.model_dump(mode="json"))


def _entity(work: Work, entity: StructuredEntity) -> None:
    is_known = canonical(entity.name) in work.names
    if _named(work, entity.name, entity.type) is None:
        return
    work.note("entities", shown_name(entity.name), is_known)
    row = work.names[canonical(entity.name)]
    work.keep(replace(row, authored=row.authored or work.authors))
    for alias in entity.aliases:
        try:
            joined = join(work, entity.name, alias)
            work.note("aliases", shown_name(alias), joined["status"] == "already")
            _link(work, work.names[canonical(alias)], alias, work.memory_ids)
        except Refused as error:
            why = str(error).partition(": ")[2]
            work.warnings.append(f"{why}; it was made no alias")


def _classified(work: Work, classified: Classification) -> None:
    for row in classified_rows(work.message, classified, work.graph):
        if isinstance(row, NameRow):
            work.keep(row)
        else:
            work.structure.append(Put(row))


def _triple(work: Work, triple: Triple) -> None:
    source = _named(work, triple.source, triple.source_type)
    target = _named(work, triple.target, triple.target_type)
    if source is None or target is None:
        return
    relation = canonical_name(triple.relationship)
    key = (source.name_id, target.name_id, relation)
    known = work.relations.get(key)
    is_known = known is not None and known.mentions > 0
    work.note("relations", f"{source.name} {relation} {target.name}", is_known)
    if known is None or not is_known:
        row = RelationRow(
            source_name_id=source.name_id,
            target_name_id=target.name_id,
            relation_type=relation,
            scope=work.message.scope,
            confidence=triple.confidence,
        )
        work.relations_inserted += 1
    else:
        seen = known.mentions
        row = replace(
            known,
            mentions=seen + 1,
            confidence=(known.confidence * seen + triple.confidence) / (seen + 1),
        )
        work.relations_updated += 1
    row = replace(row, authored=row.authored or work.authors)
    work.relations[key] = work.changed[(RelationRow, *key)] = row


def _aspect(
    work: Work, given: StructuredAspect, memory_ids: tuple[str, ...], note: bool = True
) -> str | None:
    """Adds an aspect of an entity, unless it is known: it keeps its name and its weight. Returns
    its id, if the entity may have the name."""
    owner = _named(work, given.entity, UNKNOWN, memory_ids)
    if owner is None:
        return None
    found = _aspect_of(work.message.scope, given)
    before = work.graph.aspects.get((found,))
    is_known = before is not None and before.weight > 0
    if before is not None and is_known and note and work.authors and not before.authored:
        work.structure.append(Put(replace(before, authored=True)))
    if not is_known:
        aspect = AspectRow(
            aspect_id=found,
            name_id=owner.name_id,
            scope=work.message.scope,
            name=given.aspect,
            canonical_name=canonical_name(given.aspect),
            updated_at=work.message.recorded,
            authored=note and work.authors,
        )
        work.structure.append(Put(aspect))
    if note:
        work.note("aspects", f"{owner.name}: {given.aspect}", is_known)
    return found


def _attribute(work: Work, attribute: StructuredAttribute) -> None:
    memory_ids = _memories_of(attribute, work.memory_ids)
    found = _aspect(work, attribute, memory_ids, note=False)
    if found is None:
        return
    for memory_id in memory_ids:
        before = work.graph.attributes.get((found, memory_id))
        is_known = before is not None and before.text_key is None and before.status == "active"
        work.note("attributes", memory_id, is_known)
        if not is_known:
            row = AttributeRow(
                aspect_id=found, memory_id=memory_id, scope=work.message.scope, kind=attribute.kind
            )
            if attribute.confidence is not None:
                row = replace(row, confidence=attribute.confidence)
            if attribute.importance is not None:
                row = replace(row, importance=attribute.importance)
            work.structure.append(Put(row))


def _memories_of(attribute: StructuredAttribute, others: tuple[str, ...]) -> tuple[str, ...]:
    return others if attribute.memory_id is None else (attribute.memory_id,)


def _authored_keys(scope: str, given: GraphWork) -> Iterator[tuple[str, str]]:
    """The keys of authored attributes; that of an aspect alone where there is no memory."""
    for aspect in given.aspects or ():
        yield _aspect_of(scope, aspect), ""
    for attribute in given.attributes:
        for memory_id in _memories_of(attribute, given.memory_ids) or ("",):
            yield _aspect_of(scope, attribute), memory_id


def _aspect_of(scope: str, aspect: StructuredAspect) -> str:
    owner = entity_id(scope, canonical(aspect.entity))
    return aspect_id(owner, canonical_name(aspect.aspect))


def _named(
    work: Work, given: str, entity_type: str, memory_ids: tuple[str, ...] | None = None
) -> NameRow | None:
    """Returns the name, new or with one more mention, linked to these memories, else to those of
    the change."""
    fault = name_fault(shown_name(given))
    if fault is not None:
        work.warnings.append(f"entity name {given[:100]!r} {fault} and was dropped")
        return None
    known = work.names.get(canonical(given))
    if known is None:
        row = new_name(work, shown_name(given), entity_type, mentions=1)
    else:
        better = known.entity_type in VAGUE_TYPES and entity_type not in VAGUE_TYPES
        row = replace(
            known,
            mentions=known.mentions + 1,
            entity_type=entity_type if better else known.entity_type,
            updated_at=work.message.recorded,
        )
        work.entities_updated += 1
    _link(work, row, given, work.memory_ids if memory_ids is None else memory_ids)
    return work.keep(row)


def _link(work: Work, row: NameRow, given: str, memory_ids: tuple[str, ...]) -> None:
    """Links a name to memories: of a turn and its facts to the turn and the facts that have it."""
    # Its first text is the one that the change is about; later ones may or may not be stored yet.
    texts = {each: text for each in memory_ids for text in work.graph.texts.get(each, ())[:1]}
    if work.given.by_text:
        turn_id, *facts = work.given.memory_ids
        having = {each for each in facts if each in texts and _has(texts[each].text, row)}
        # One that says "she" has none: where no other one has it either, it may be of any. An
        # erased one is in no text that is left, and no other one in a text that was erased.
        if not having and ERASED_NAME.fullmatch(row.canonical_name) is None:
            having = {each for each in texts if not is_mark(texts[each].text)}
        texts = {each: texts[each] for each in texts if each == turn_id or each in having}
    for memory_id, text in texts.items():
        spelling = names_in(text.text, row.canonical_name) or shown_name(given)
        add_mention(work, memory_id, text, row, spelling)
        work.mentions_linked += 1


def _has(text: str, row: NameRow) -> bool:
    """Whether a name stands in a text, also where it is none to the linker ("The user")."""
    if names_in(text, row.canonical_name) is not None:
        return True
    word = rf"(?<!\w){re.escape(row.canonical_name)}(?!\w)"
    return re.search(word, canonical_name(text)) is not None


def _link_imported(work: Work, rows: Sequence[Row]) -> None:
    """Links memories that existed before an imported name; the import's own mentions stay
    unchanged."""
    linked = {row.key for row in rows if isinstance(row, MentionRow)}
    for row in rows:
        if isinstance(row, NameRow):
            for memory_id, text, name, shown in mentions_before(work, row):
                if (memory_id, text.key, name.name_id) not in linked:
                    add_mention(work, memory_id, text, name, shown)


def _swept(message: Message, step: GraphSweep, begun: CommandRow | None) -> Sweep:
    """The removal, with the result of its command."""
    answer = None
    if begun is not None:
        told = {"status": "swept", "step": step.step, "before": step.before.isoformat()}
        answer = replace(
            begun, result=json.dumps(told, sort_keys=True), recorded_at=message.recorded
        )
    return Sweep(message.scope, step.step, step.before, step.at, answer)
