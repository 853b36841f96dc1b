"""graph-persist: triples and authored structure become entities, relations and mentions.

It has its own transaction after the memory's; what goes wrong here never reverts a memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from schemas.identity import aspect_id, entity_id
from schemas.messages import GraphChange, GraphWork, MemoryChange, Triple
from schemas.rows import AspectRow, AttributeRow, EntityRow, MentionRow, RelationRow
from schemas.topics import GRAPH_CHANGES, MEMORY_CHANGES
from streams.linker import canonical_name, names_in
from streams.stage import (
    Context,
    Emit,
    Graph,
    LoadGraph,
    Message,
    Process,
    Put,
    Stage,
    Step,
    Write,
)

MIN_NAME_CHARACTERS = 2
VAGUE_TYPES = ("extracted", "unknown", "")


def graph_persist_stage(writes_enabled: bool) -> Stage:
    """The stage; with `writes_enabled` off it passes changes over."""

    def process(message: Message, context: Context) -> Process:
        body = message.body
        assert isinstance(body, MemoryChange)
        if body.graph is None or not writes_enabled:
            return Step()
        names = tuple(dict.fromkeys(_names(body.graph)))
        graph = yield LoadGraph(message.scope, names, body.graph.memory_ids)
        assert isinstance(graph, Graph)
        work = _Work(message, graph, dict(graph.entities), dict(graph.relations))
        _persist(work, body.graph)
        change = GraphChange(
            memory_ids=body.graph.memory_ids,
            entities_inserted=work.entities_inserted,
            entities_updated=work.entities_updated,
            relations_inserted=work.relations_inserted,
            relations_updated=work.relations_updated,
            mentions_linked=work.mentions_linked,
            warnings=tuple(work.warnings),
            session_id=body.session_id,
        )
        return Step(writes=_writes(work), emits=(Emit(GRAPH_CHANGES, change, "graph"),))

    return Stage(name="graph-persist", reads=(MEMORY_CHANGES,), process=process, stateful=True)


@dataclass(slots=True)
class _Work:
    message: Message
    graph: Graph
    entities: dict[str, EntityRow]
    relations: dict[tuple[str, str, str], RelationRow]
    touched: dict[str, EntityRow] = field(default_factory=dict)
    changed_relations: dict[tuple[str, str, str], RelationRow] = field(default_factory=dict)
    mentions: dict[tuple[str, str], MentionRow] = field(default_factory=dict)
    structure: list[Write] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    entities_inserted: int = 0
    entities_updated: int = 0
    relations_inserted: int = 0
    relations_updated: int = 0
    # Only of the change's own memories: how many earlier ones are linked besides depends on how
    # far apply-writes is.
    mentions_linked: int = 0

    def keep(self, row: EntityRow) -> EntityRow:
        for name in (row.canonical_name, *row.aliases):
            self.entities[name] = row
        self.touched[row.entity_id] = row
        return row


def _names(work: GraphWork) -> Iterable[str]:
    for triple in work.triples:
        yield canonical_name(triple.source)
        yield canonical_name(triple.target)
    for entity in work.entities:
        yield canonical_name(entity.name)
        yield from map(canonical_name, entity.aliases)
    for attribute in work.attributes:
        yield canonical_name(attribute.entity)
    for name, alias in work.aliases:
        yield canonical_name(name)
        yield canonical_name(alias)


def _persist(work: _Work, given: GraphWork) -> None:
    for name, alias in given.aliases:
        _alias(work, name, (alias,))
    for entity in given.entities:
        row = _entity(work, entity.name, entity.type, given.memory_ids)
        if row is not None and entity.aliases:
            _alias(work, entity.name, entity.aliases)
    for triple in given.triples:
        _triple(work, triple, given.memory_ids)
    for attribute in given.attributes:
        owner = _entity(work, attribute.entity, "unknown", given.memory_ids)
        if owner is None:
            continue
        aspect = AspectRow(
            aspect_id=aspect_id(owner.entity_id, canonical_name(attribute.aspect)),
            entity_id=owner.entity_id,
            scope=work.message.scope,
            name=attribute.aspect,
            canonical_name=canonical_name(attribute.aspect),
            updated_at=work.message.recorded,
        )
        work.structure.append(Put(aspect))
        work.structure += [
            Put(
                AttributeRow(
                    aspect_id=aspect.aspect_id,
                    memory_id=memory_id,
                    scope=work.message.scope,
                    kind=attribute.kind,
                )
            )
            for memory_id in given.memory_ids
        ]


def _triple(work: _Work, triple: Triple, memory_ids: tuple[str, ...]) -> None:
    source = _entity(work, triple.source, triple.source_type, memory_ids)
    target = _entity(work, triple.target, triple.target_type, memory_ids)
    if source is None or target is None:
        return
    relation = canonical_name(triple.relationship)
    key = (source.entity_id, target.entity_id, relation)
    known = work.relations.get(key)
    if known is None:
        row = RelationRow(
            source_entity_id=source.entity_id,
            target_entity_id=target.entity_id,
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
    work.relations[key] = work.changed_relations[key] = row


def _entity(
    work: _Work, shown: str, entity_type: str, memory_ids: tuple[str, ...]
) -> EntityRow | None:
    """The entity of a name, new or seen once more, linked to the memories."""
    name = canonical_name(shown)
    if len(name) < MIN_NAME_CHARACTERS:
        work.warnings.append(f"entity name {shown!r} is too short and was dropped")
        return None
    known = work.entities.get(name)
    if known is None:
        row = _new_entity(work, shown.strip(), name, entity_type)
    else:
        better = known.entity_type in VAGUE_TYPES and entity_type not in VAGUE_TYPES
        row = replace(
            known,
            mentions=known.mentions + 1,
            entity_type=entity_type if better else known.entity_type,
            updated_at=work.message.recorded,
        )
        work.entities_updated += 1
    for memory_id in memory_ids:
        # Its first text is what the change is about; later ones may or may not be there by now.
        first = work.graph.texts.get(memory_id, ())[:1]
        forms = [names_in(text, n) for text in first for n in (name, row.canonical_name)]
        told = min((form for form in forms if form is not None), default=shown.strip())
        _mention(work, memory_id, row.entity_id, told)
        work.mentions_linked += 1
    return work.keep(row)


def _new_entity(work: _Work, shown: str, name: str, entity_type: str) -> EntityRow:
    """A new entity; memories that named it before it was known are linked now, so that it does not
    matter which came first."""
    row = EntityRow(
        entity_id=entity_id(work.message.scope, name),
        scope=work.message.scope,
        name=shown,
        canonical_name=name,
        entity_type=entity_type or "unknown",
        first_seen=work.message.recorded,
        updated_at=work.message.recorded,
    )
    work.entities_inserted += 1
    _link_earlier(work, row.entity_id, name)
    return row


def _link_earlier(work: _Work, entity: str, name: str) -> None:
    for memory_id in work.graph.naming.get(name, ()):
        for text in work.graph.texts.get(memory_id, ()):
            mention = names_in(text, name)
            if mention is not None:
                _mention(work, memory_id, entity, mention)


def _alias(work: _Work, name: str, aliases: Iterable[str]) -> None:
    """Let further names mean an entity. A name that is an entity of its own keeps meaning it."""
    row = work.entities.get(canonical_name(name)) or _entity(work, name, "unknown", ())
    if row is None:
        return
    for alias in map(canonical_name, aliases):
        other = work.entities.get(alias)
        if other is not None and other.entity_id != row.entity_id:
            work.warnings.append(
                f"{alias!r} already names another entity and was not made an alias"
            )
            continue
        if alias != row.canonical_name and alias not in row.aliases:
            row = replace(row, aliases=(*row.aliases, alias), updated_at=work.message.recorded)
            _link_earlier(work, row.entity_id, alias)
    work.keep(row)


def _mention(work: _Work, memory_id: str, entity: str, text: str) -> None:
    known = work.mentions.get((memory_id, entity))
    if known is None or text < known.mention_text:
        work.mentions[memory_id, entity] = MentionRow(
            memory_id=memory_id,
            entity_id=entity,
            scope=work.message.scope,
            mention_text=text,
            confidence=1.0,
        )


def _writes(work: _Work) -> tuple[Write, ...]:
    rows = (
        *work.touched.values(),
        *work.changed_relations.values(),
        *work.mentions.values(),
    )
    return (*(Put(row) for row in rows), *work.structure)
