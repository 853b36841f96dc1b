"""graph-persist: triples and authored structure become entities, relations and mentions.

It has its own transaction after the memory's; a failure here never reverts a memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from palimpsest.schemas.aspects import Classification
from palimpsest.schemas.commands import StructuredAttribute
from palimpsest.schemas.envelope import Triple
from palimpsest.schemas.identity import aspect_id, entity_id
from palimpsest.schemas.messages import GraphChange, GraphSweep, GraphWork, MemoryChange
from palimpsest.schemas.normal_forms import canonical_name, shown_name
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.graph import (
    VAGUE_TYPES,
    AspectRow,
    AttributeRow,
    MentionRow,
    NameLinkRow,
    NameRow,
    RelationRow,
)
from palimpsest.schemas.rows.pipeline import CommandRow
from palimpsest.schemas.topics import GRAPH_CHANGES, MEMORY_CHANGES
from palimpsest.streams.claims.denial import stated_clauses
from palimpsest.streams.graph.classified import (
    NOT_CLASSIFIED,
    attribute_keys,
    classified_rows,
    weighed_rows,
)
from palimpsest.streams.graph.imports import imported_names, imported_rows
from palimpsest.streams.memory_rows import answer_row
from palimpsest.streams.stage import Context, Emit, Message, Process, Stage, Step
from palimpsest.streams.store_port import (
    EraseGraph,
    Graph,
    LoadGraph,
    MemoryText,
    Put,
    Sweep,
    Write,
)
from palimpsest.streams.text.linker import name_fault, names_in

_ANSWERED = "alias"
"""What was answered here before all commands recorded their own name."""


def graph_persist_stage(extraction_writes: bool) -> Stage:
    """The stage; without `extraction_writes` it ignores extraction's triples, but not what people
    and agents authored."""

    def process(message: Message, context: Context) -> Process:
        body = message.body
        assert isinstance(body, MemoryChange)
        given = body.graph
        if given is not None and (given.erased or given.erased_scope):
            gone = None if given.erased_scope else given.erased
            return Step(writes=(EraseGraph(message.scope, gone),))
        if given is not None and given.sweep is not None:
            graph = yield from LoadGraph(message.scope, (), command_id=given.command_id)
            return Step(writes=(_swept(message, given.sweep, graph.command),))
        if given is None:
            return Step()
        is_taken = extraction_writes if given.from_turns is None else given.from_turns
        if not (is_taken or _is_authored(given)):
            return Step()
        names = tuple(dict.fromkeys(map(_canonical, _names(given))))
        same = tuple(dict.fromkeys(map(_canonical, _told_the_same(given))))
        graph = yield from LoadGraph(
            message.scope,
            names,
            given.memory_ids,
            same,
            given.command_id,
            erased=given.imported is not None,
            links=tuple(dict.fromkeys(_link_key(message.scope, *pair) for pair in _pairs(given))),
            attributes=(
                *attribute_keys(message.scope, given.classified or NOT_CLASSIFIED),
                *_authored_keys(message.scope, given),
            ),
            weights=tuple((each.aspect_id,) for each in given.weighed or ()),
        )
        known = (dict(graph.names), dict(graph.relations), dict(graph.links))
        work = _Work(message, graph, given.memory_ids, *known)
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


@dataclass(slots=True)
class _Work:
    message: Message
    graph: Graph
    memory_ids: tuple[str, ...]
    names: dict[str, NameRow]
    relations: dict[tuple[str, str, str], RelationRow]
    links: dict[tuple[str, str], NameLinkRow]
    changed: dict[tuple[object, ...], Row] = field(default_factory=dict)
    mentions: dict[tuple[str, str, str], MentionRow] = field(default_factory=dict)
    structure: list[Write] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    entities_inserted: int = 0
    entities_updated: int = 0
    relations_inserted: int = 0
    relations_updated: int = 0
    # Counts only the change's own memories: how many earlier ones are linked depends on how far
    # apply-writes is.
    mentions_linked: int = 0

    def keep(self, row: NameRow) -> NameRow:
        self.names[row.canonical_name] = row
        self.changed[(NameRow, *row.key)] = row
        return row


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


def _link_key(scope: str, name: str, alias: str) -> tuple[str, str]:
    return entity_id(scope, _canonical(name)), entity_id(scope, _canonical(alias))


def _canonical(name: str) -> str:
    return canonical_name(shown_name(name))


def _names(given: GraphWork) -> Iterable[str]:
    for triple in given.triples:
        yield triple.source
        yield triple.target
    for entity in given.entities:
        yield entity.name
    for attribute in given.attributes:
        yield attribute.entity
    yield from _told_the_same(given)
    yield from imported_names(given.imported)
    yield from (fact.entity for fact in (given.classified or NOT_CLASSIFIED).facts)


def _told_the_same(given: GraphWork) -> Iterable[str]:
    for pair in _pairs(given):
        yield from pair


def _persist(work: _Work, given: GraphWork) -> None:
    for name, alias in given.aliases:
        _answer_pair(work, name, alias, given.command_id, _join)
    for name, alias in given.separated or ():
        _answer_pair(work, name, alias, given.command_id, _separate)
    for entity in given.entities:
        if _named(work, entity.name, entity.type) is not None:
            for alias in entity.aliases:
                fault = _alias_fault(entity.name, alias)
                if fault is None:
                    _join(work, entity.name, alias)
                    _link(work, work.names[_canonical(alias)], alias)
                else:
                    work.warnings.append(f"{fault}; it was made no alias")
    for triple in given.triples:
        _triple(work, triple)
    for attribute in given.attributes:
        _attribute(work, attribute)
    _classified(work, given.classified or NOT_CLASSIFIED)
    work.structure += map(Put, weighed_rows(work.message, given.weighed or (), work.graph))
    if given.imported is not None:
        rows, result = imported_rows(work.message.scope, given.imported, work.graph)
        work.structure += map(Put, rows)
        _link_imported(work, rows)
        _answer(work, given.command_id, None, result.model_dump(mode="json"))


def _classified(work: _Work, classified: Classification) -> None:
    for row in classified_rows(work.message, classified, work.graph):
        if isinstance(row, NameRow):
            work.keep(row)
        else:
            work.structure.append(Put(row))


def _triple(work: _Work, triple: Triple) -> None:
    source = _named(work, triple.source, triple.source_type)
    target = _named(work, triple.target, triple.target_type)
    if source is None or target is None:
        return
    relation = canonical_name(triple.relationship)
    key = (source.name_id, target.name_id, relation)
    known = work.relations.get(key)
    if known is None:
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
    work.relations[key] = work.changed[(RelationRow, *key)] = row


def _attribute(work: _Work, attribute: StructuredAttribute) -> None:
    owner = _named(work, attribute.entity, "unknown")
    if owner is None:
        return
    found = _aspect_of(work.message.scope, attribute)
    if work.graph.aspects.get((found,)) is None:  # else it keeps its name and its weight
        aspect = AspectRow(
            aspect_id=found,
            name_id=owner.name_id,
            scope=work.message.scope,
            name=attribute.aspect,
            canonical_name=canonical_name(attribute.aspect),
            updated_at=work.message.recorded,
        )
        work.structure.append(Put(aspect))
    for memory_id in work.memory_ids:
        before = work.graph.attributes.get((found, memory_id))
        if before is None or before.text_key is not None:
            row = AttributeRow(
                aspect_id=found,
                memory_id=memory_id,
                scope=work.message.scope,
                kind=attribute.kind,
            )
            work.structure.append(Put(row))


def _authored_keys(scope: str, given: GraphWork) -> Iterator[tuple[str, str]]:
    """The keys of authored attributes; that of an aspect alone where there is no memory."""
    for attribute in given.attributes:
        for memory_id in given.memory_ids or ("",):
            yield _aspect_of(scope, attribute), memory_id


def _aspect_of(scope: str, attribute: StructuredAttribute) -> str:
    owner = entity_id(scope, _canonical(attribute.entity))
    return aspect_id(owner, canonical_name(attribute.aspect))


def _named(work: _Work, given: str, entity_type: str) -> NameRow | None:
    """Returns the name, new or with one more mention, linked to the change's memories."""
    fault = name_fault(shown_name(given))
    if fault is not None:
        work.warnings.append(f"entity name {given[:100]!r} {fault} and was dropped")
        return None
    known = work.names.get(_canonical(given))
    if known is None:
        row = _new_name(work, shown_name(given), entity_type, mentions=1)
    else:
        better = known.entity_type in VAGUE_TYPES and entity_type not in VAGUE_TYPES
        row = replace(
            known,
            mentions=known.mentions + 1,
            entity_type=entity_type if better else known.entity_type,
            updated_at=work.message.recorded,
        )
        work.entities_updated += 1
    _link(work, row, given)
    return work.keep(row)


def _link(work: _Work, row: NameRow, given: str) -> None:
    """Links a name to the change's memories."""
    for memory_id in work.memory_ids:
        # Its first text is the one that the change is about; later ones may or may not be stored
        # yet.
        for text in work.graph.texts.get(memory_id, ())[:1]:
            spelling = names_in(text.text, row.canonical_name) or shown_name(given)
            _mention(work, memory_id, text, row, spelling)
            work.mentions_linked += 1


def _new_name(work: _Work, shown: str, entity_type: str, mentions: int) -> NameRow:
    """Creates a name and links the earlier memories that contain it, so that it does not matter
    which came first."""
    name = canonical_name(shown)
    name_id = entity_id(work.message.scope, name)
    row = NameRow(
        name_id=name_id,
        scope=work.message.scope,
        name=shown,
        canonical_name=name,
        entity_id=name_id,
        entity_type=entity_type or "unknown",
        mentions=mentions,
        first_seen=work.message.recorded,
        updated_at=work.message.recorded,
    )
    work.entities_inserted += 1
    for mention in _mentions_before(work, row):
        _mention(work, *mention)
    return work.keep(row)


def _mentions_before(work: _Work, row: NameRow) -> Iterator[tuple[str, MemoryText, NameRow, str]]:
    """Yields the memories that contained a name before it was known: memory, text, name, and its
    spelling in the text."""
    for memory_id in work.graph.naming.get(row.canonical_name, ()):
        for text in work.graph.texts.get(memory_id, ()):
            spelling = names_in(text.text, row.canonical_name)
            if spelling is not None:
                yield memory_id, text, row, spelling


def _link_imported(work: _Work, rows: Sequence[Row]) -> None:
    """Links memories that existed before an imported name; the import's own mentions stay
    unchanged."""
    linked = {row.key for row in rows if isinstance(row, MentionRow)}
    for row in rows:
        if isinstance(row, NameRow):
            for memory_id, text, name, shown in _mentions_before(work, row):
                if (memory_id, text.key, name.name_id) not in linked:
                    _mention(work, memory_id, text, name, shown)


# --- names that mean the same -----------------------------------------------------------------


class _Refused(Exception):
    """A command that is not executed; the text begins with its error code."""


def _answer_pair(
    work: _Work, name: str, alias: str, command_id: str | None, execute: Callable[..., JsonValue]
) -> None:
    """Executes a command on two names, and answers it."""
    fault = _alias_fault(name, alias)
    try:
        if fault is not None:
            raise _Refused(f"invalid_request: {fault}")
        result = execute(work, name, alias, command_id)
    except _Refused as error:
        work.warnings.append(f"{error}; nothing was changed")
        _answer(work, command_id, str(error), {})
    else:
        _answer(work, command_id, None, result)


def _alias_fault(name: str, alias: str) -> str | None:
    for given in (name, alias):
        fault = name_fault(shown_name(given))
        if fault is not None:
            return f"{given[:100]!r} {fault}"
    if _canonical(name) == _canonical(alias):
        return f"{name[:100]!r} and {alias[:100]!r} are the same name"
    return None


def _join(work: _Work, name: str, alias: str, command_id: str | None = None) -> JsonValue:
    """Makes two names denote one entity, together with all other names of either; returns the
    result. No relation or mention of them is rewritten: each stays with its name, and is joined
    when read."""
    known = [_canonical(given) in work.names for given in (name, alias)]
    rows = [
        work.names.get(_canonical(given))
        or _new_name(work, shown_name(given), "unknown", mentions=0)
        for given in (name, alias)
    ]
    entities = {row.entity_id for row in rows}
    _say(work, rows[0], rows[1], True, command_id)
    name_id = work.names[_canonical(name)].name_id
    names = next(each for each in _regrouped(work, entities) if name_id in _ids(each))
    status = "already" if len(entities) == 1 else "merged" if all(known) else "added"
    if status == "merged":
        work.entities_updated += 1
    return {"status": status, **_shown(names)}


def _separate(work: _Work, name: str, alias: str, command_id: str | None = None) -> JsonValue:
    """Takes back that two names denote one entity; returns the result. Names of two entities are
    kept apart from now on, until somebody joins them."""
    rows = [work.names.get(_canonical(given)) for given in (name, alias)]
    for row, given in zip(rows, (name, alias), strict=True):
        if row is None:
            raise _Refused(f"not_found: nothing called {given[:100]!r} is known in this scope")
    one, other = (row for row in rows if row is not None)
    entities = {one.entity_id, other.entity_id}
    said = [
        pair
        for pair in ((one, other), (other, one))
        if (link := work.links.get((pair[0].name_id, pair[1].name_id))) and link.is_active
    ]
    if len(entities) == 1 and not said:
        through = ", ".join(sorted(_linked_to(work, one) | _linked_to(work, other)))
        raise _Refused(
            f"invalid_request: {one.name!r} and {other.name!r} are names of one entity through"
            f" others ({through}): take one of these back"
        )
    for pair in said or [(one, other)]:
        _say(work, *pair, False, command_id)
    groups = _regrouped(work, entities)
    now = [next(each for each in groups if row.name_id in _ids(each)) for row in (one, other)]
    status = "kept_apart" if not said else "still_joined" if now[0] is now[1] else "separated"
    if status == "separated":
        work.entities_updated += 1
    found = now[:1] if now[0] is now[1] else now
    return {"status": status, "entities": [_shown(each) for each in found]}


def _say(
    work: _Work, name: NameRow, alias: NameRow, is_active: bool, command_id: str | None
) -> None:
    """Records whether two names denote one entity."""
    key = (name.name_id, alias.name_id)
    work.links[key] = work.changed[(NameLinkRow, *key)] = NameLinkRow(
        name_id=name.name_id,
        alias_id=alias.name_id,
        scope=work.message.scope,
        is_active=is_active,
        command_id=command_id,
        updated_at=work.message.recorded,
    )


def _regrouped(work: _Work, entities: Collection[str]) -> list[list[NameRow]]:
    """Divides the names of these entities again, by the active links between them; returns the
    names of each entity, the main name first.

    The main name is one that is no alias, of several the least by code points: the result does not
    depend on the order of the commands."""
    names = {row.name_id: row for row in work.names.values() if row.entity_id in entities}
    active = [key for key, link in work.links.items() if link.is_active and {*key} <= names.keys()]
    group_of = {name_id: [name_id] for name_id in names}
    for one, other in active:
        if group_of[one] is not group_of[other]:
            joined = [*group_of[one], *group_of[other]]
            group_of.update(dict.fromkeys(joined, joined))
    aliases = {alias for _, alias in active}
    groups = []
    for group in {id(each): each for each in group_of.values()}.values():
        ordered = sorted(group, key=lambda each: (each in aliases, names[each].canonical_name))
        rows = []
        for each in ordered:
            row, place = names[each], (ordered[0], each in aliases)
            if (row.entity_id, row.is_alias) != place:
                at = work.message.recorded
                row = work.keep(replace(row, entity_id=place[0], is_alias=place[1], updated_at=at))
            rows.append(row)
        groups.append(rows)
    return groups


def _ids(names: Sequence[NameRow]) -> set[str]:
    return {row.name_id for row in names}


def _linked_to(work: _Work, row: NameRow) -> set[str]:
    """The names that active links join directly to this one."""
    by_id = {each.name_id: each.name for each in work.names.values()}
    pairs = (key for key, link in work.links.items() if link.is_active and row.name_id in key)
    return {by_id[each] for key in pairs for each in key if each != row.name_id and each in by_id}


def _shown(names: Sequence[NameRow]) -> dict[str, JsonValue]:
    return {
        "entity_id": names[0].name_id,
        "name": names[0].name,
        "aliases": [row.name for row in names[1:]],
    }


def _swept(message: Message, step: GraphSweep, begun: CommandRow | None) -> Sweep:
    """The removal, with the result of its command."""
    answer = None
    if begun is not None:
        told = {"status": "swept", "step": step.step, "before": step.before.isoformat()}
        answer = replace(
            begun, result=json.dumps(told, sort_keys=True), recorded_at=message.recorded
        )
    return Sweep(message.scope, step.step, step.before, step.at, answer)


def _answer(work: _Work, command_id: str | None, error: str | None, result: JsonValue) -> None:
    if command_id is None:  # the version that accepted it has answered it already
        return
    begun = work.graph.command
    kind, digest = (_ANSWERED, None) if begun is None else (begun.command, begun.digest)
    row = answer_row(work.message, command_id, kind, digest, result, error)
    work.structure.append(Put(row))


def _mention(work: _Work, memory_id: str, text: MemoryText, name: NameRow, spelling: str) -> None:
    key = (memory_id, text.key, name.name_id)
    known = work.mentions.get(key)
    if known is None or spelling < known.mention_text:
        work.mentions[key] = MentionRow(
            memory_id=memory_id,
            text_key=text.key,
            name_id=name.name_id,
            scope=work.message.scope,
            mention_text=spelling,
            confidence=1.0,
            stated=stated_clauses(text.text, spelling),
        )
