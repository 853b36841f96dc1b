"""Imports names, relations and mentions of an exported scope unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from palimpsest.schemas.identity import ImportedIds, aspect_id, entity_id, relation_id
from palimpsest.schemas.normal_forms import canonical_name
from palimpsest.schemas.portable import (
    ImportedGraph,
    ImportResult,
    PortableAspect,
    PortableAttribute,
    PortableMention,
    PortableName,
    PortableRelation,
    RefusedLine,
)
from palimpsest.schemas.rows import (
    AspectRow,
    AttributeRow,
    MentionRow,
    NameRow,
    RelationRow,
    Row,
)
from palimpsest.streams.imported_rows import same_fields
from palimpsest.streams.store_port import Graph
from palimpsest.streams.text.linker import name_fault


class _NotTaken(Exception):
    """A line that is not imported; the text is the reason."""


@dataclass(slots=True)
class _Taking:
    ids: ImportedIds
    names: dict[str, NameRow]
    relations: set[tuple[str, ...]]
    erased: frozenset[str]
    rows: list[Row] = field(default_factory=list)

    def name(self, canonical: str) -> NameRow:
        found = self.names.get(canonical)
        if found is None:
            raise _NotTaken(f"it tells of the name {canonical[:100]!r}, which is not in this scope")
        return found


def imported_names(imported: ImportedGraph | None) -> Iterator[str]:
    """The canonical names that the lines define or refer to."""
    for each in () if imported is None else imported.lines:
        match each.line:
            case PortableName(canonical_name=name, main=main):
                yield from (name, main)
            case PortableRelation(source=source, target=target):
                yield from (source, target)
            case PortableMention(name=name):
                yield name
            case PortableAspect(entity=name) | PortableAttribute(entity=name):
                yield name


def imported_rows(
    scope: str, imported: ImportedGraph, graph: Graph
) -> tuple[Sequence[Row], ImportResult]:
    """Returns the rows of the lines, except names and relations that exist already, which stay; and
    the result of all lines of the command."""
    taking = _Taking(
        ImportedIds(imported.from_scope, scope),
        dict(graph.names),
        {tuple(map(str, key)) for key in graph.relations},
        graph.erased,
    )
    refused = [*imported.result.refused]
    for each in imported.lines:
        try:
            _take(taking, each.line)
        except _NotTaken as error:
            refused.append(RefusedLine(number=each.number, why=str(error)))
    taken = len(imported.lines) - (len(refused) - len(imported.result.refused))
    result = imported.result.model_copy(
        update={
            "taken": imported.result.taken + taken,
            "refused": tuple(sorted(refused, key=lambda line: line.number)),
        }
    )
    return taking.rows, result


def _take(taking: _Taking, line: object) -> None:
    match line:
        case PortableName():
            _name(taking, line)
        case PortableRelation():
            _relation(taking, line)
        case PortableMention():
            taking.rows.append(_mention(taking, line))
        case PortableAspect():
            taking.rows.append(_aspect(taking, line))
        case PortableAttribute():
            taking.rows.append(_attribute(taking, line))


def _name(taking: _Taking, line: PortableName) -> None:
    if line.canonical_name in taking.names:
        return
    fault = name_fault(line.name)
    if fault is not None or canonical_name(line.canonical_name) != line.canonical_name:
        raise _NotTaken(f"the name {line.name[:100]!r} {fault or 'has another canonical form'}")
    name_id = entity_id(taking.ids.scope, line.canonical_name)
    if name_id in taking.erased:
        raise _NotTaken("the name was erased here; it comes back with a memory that tells of it")
    is_main = line.main == line.canonical_name
    row = NameRow(
        **same_fields(line, NameRow),  # type: ignore[arg-type]
        name_id=name_id,
        scope=taking.ids.scope,
        entity_id=name_id if is_main else taking.name(line.main).entity_id,
    )
    taking.names[line.canonical_name] = row
    taking.rows.append(row)


def _relation(taking: _Taking, line: PortableRelation) -> None:
    source, target = taking.name(line.source).name_id, taking.name(line.target).name_id
    key = (source, target, line.relation_type)
    if key in taking.relations:
        return
    if relation_id(*key) in taking.erased:
        raise _NotTaken("the relation was erased here; it comes back with what tells of it")
    taking.relations.add(key)
    row = RelationRow(
        **same_fields(line, RelationRow),  # type: ignore[arg-type]
        source_name_id=source,
        target_name_id=target,
        scope=taking.ids.scope,
    )
    taking.rows.append(row)


def _mention(taking: _Taking, line: PortableMention) -> MentionRow:
    return MentionRow(
        **same_fields(line, MentionRow, "memory_id"),  # type: ignore[arg-type]
        memory_id=taking.ids.of(line.memory_id),
        name_id=taking.name(line.name).name_id,
        scope=taking.ids.scope,
    )


def _aspect(taking: _Taking, line: PortableAspect) -> AspectRow:
    name_id = taking.name(line.entity).name_id
    return AspectRow(
        **same_fields(line, AspectRow),  # type: ignore[arg-type]
        aspect_id=aspect_id(name_id, line.canonical_name),
        name_id=name_id,
        scope=taking.ids.scope,
    )


def _attribute(taking: _Taking, line: PortableAttribute) -> AttributeRow:
    return AttributeRow(
        **same_fields(line, AttributeRow, "memory_id", "kind"),  # type: ignore[arg-type]
        aspect_id=aspect_id(taking.name(line.entity).name_id, line.aspect),
        memory_id=taking.ids.of(line.memory_id),
        scope=taking.ids.scope,
        kind=line.attribute_kind,
    )
