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
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.graph import (
    AspectRow,
    AttributeRow,
    MentionRow,
    NameLinkRow,
    NameRow,
    RelationRow,
)
from palimpsest.streams.imported_rows import NotTaken, imported_row
from palimpsest.streams.store_port import Graph
from palimpsest.streams.text.linker import name_fault


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
            raise NotTaken(f"it tells of the name {canonical[:100]!r}, which is not in this scope")
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
        except NotTaken as error:
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
            name_id = taking.name(line.name).name_id
            taking.rows.append(imported_row(MentionRow, taking.ids, line, name_id=name_id))
        case PortableAspect():
            name_id = taking.name(line.entity).name_id
            ids = {"aspect_id": aspect_id(name_id, line.canonical_name), "name_id": name_id}
            taking.rows.append(imported_row(AspectRow, taking.ids, line, **ids))
        case PortableAttribute():
            found = aspect_id(taking.name(line.entity).name_id, line.aspect)
            of_line = {"aspect_id": found, "kind": line.attribute_kind}
            taking.rows.append(imported_row(AttributeRow, taking.ids, line, **of_line))


def _name(taking: _Taking, line: PortableName) -> None:
    if line.canonical_name in taking.names:
        return
    fault = name_fault(line.name)
    if fault is not None or canonical_name(line.canonical_name) != line.canonical_name:
        raise NotTaken(f"the name {line.name[:100]!r} {fault or 'has another canonical form'}")
    name_id = entity_id(taking.ids.scope, line.canonical_name)
    if name_id in taking.erased:
        raise NotTaken("the name was erased here; it comes back with a memory that tells of it")
    is_main = line.main == line.canonical_name
    entity = name_id if is_main else taking.name(line.main).entity_id
    row = imported_row(NameRow, taking.ids, line, name_id=name_id, entity_id=entity)
    taking.names[line.canonical_name] = row
    taking.rows.append(row)
    if not is_main:
        main = taking.name(line.main).name_id
        link = NameLinkRow(
            name_id=main, alias_id=name_id, scope=taking.ids.scope, updated_at=line.updated_at
        )
        taking.rows.append(link)


def _relation(taking: _Taking, line: PortableRelation) -> None:
    source, target = taking.name(line.source).name_id, taking.name(line.target).name_id
    key = (source, target, line.relation_type)
    if key in taking.relations:
        return
    if relation_id(*key) in taking.erased:
        raise NotTaken("the relation was erased here; it comes back with what tells of it")
    taking.relations.add(key)
    ends = {"source_name_id": source, "target_name_id": target}
    taking.rows.append(imported_row(RelationRow, taking.ids, line, **ends))
