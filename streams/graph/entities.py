"""Entities as people tell of them: names that are one entity's or not, edits, and removals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from pydantic import JsonValue

from palimpsest.schemas.entities import EditEntityCommand, NamedAttribute, StructureToRemove
from palimpsest.schemas.identity import aspect_id
from palimpsest.schemas.normal_forms import canonical_name, shown_name
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.graph import (
    UNKNOWN,
    AspectRow,
    AttributeRow,
    NameLinkRow,
    NameRow,
    RelationRow,
    shown_order,
    type_of,
)
from palimpsest.streams.graph.graph_work import Work, answer_command, canonical, new_name
from palimpsest.streams.text.linker import name_fault


class Refused(Exception):
    """A command that is not executed; the text begins with its error code."""


def answer(work: Work, command_id: str | None, execute: Callable[[], JsonValue]) -> None:
    """Executes a command on entities, and answers it."""
    try:
        result = execute()
    except Refused as error:
        work.warnings.append(f"{error}; nothing was changed")
        answer_command(work, command_id, str(error), {})
    else:
        answer_command(work, command_id, None, result)


def alias_fault(name: str, alias: str) -> str | None:
    for given in (name, alias):
        fault = name_fault(shown_name(given))
        if fault is not None:
            return f"{given[:100]!r} {fault}"
    if canonical(name) == canonical(alias):
        return f"{name[:100]!r} and {alias[:100]!r} are the same name"
    return None


def join(work: Work, name: str, alias: str, command_id: str | None = None) -> dict[str, JsonValue]:
    """Makes two names denote one entity, together with all other names of either; returns the
    result. No relation or mention of them is rewritten: each stays with its name, and is joined
    when read."""
    fault = alias_fault(name, alias)
    if fault is not None:
        raise Refused(f"invalid_request: {fault}")
    known = [canonical(given) in work.names for given in (name, alias)]
    _refuse_join(work, name, alias)
    rows = [
        work.names.get(canonical(given)) or new_name(work, shown_name(given), "unknown", mentions=0)
        for given in (name, alias)
    ]
    entities = {row.entity_id for row in rows}
    _say(work, rows[0], rows[1], True, command_id)
    name_id = work.names[canonical(name)].name_id
    names = next(each for each in _regrouped(work, entities) if name_id in _ids(each))
    status = "already" if len(entities) == 1 else "merged" if all(known) else "added"
    if status == "merged":
        work.entities_updated += 1
    return {"status": status, **_shown(names)}


def separate(work: Work, name: str, alias: str, command_id: str | None = None) -> JsonValue:
    """Takes back that two names denote one entity; returns the result. Names of two entities are
    kept apart from now on, until somebody joins them."""
    fault = alias_fault(name, alias)
    if fault is not None:
        raise Refused(f"invalid_request: {fault}")
    rows = [work.names.get(canonical(given)) for given in (name, alias)]
    for row, given in zip(rows, (name, alias), strict=True):
        if row is None:
            raise Refused(f"not_found: nothing called {given[:100]!r} is known in this scope")
    one, other = (row for row in rows if row is not None)
    entities = {one.entity_id, other.entity_id}
    said = [
        pair
        for pair in ((one, other), (other, one))
        if (link := work.links.get((pair[0].name_id, pair[1].name_id))) and link.is_active
    ]
    if len(entities) == 1 and not said:
        through = ", ".join(sorted(_linked_to(work, one) | _linked_to(work, other)))
        raise Refused(
            f"invalid_request: {one.name!r} and {other.name!r} are names of one entity through"
            f" others ({through}): take one of these back"
        )
    _refuse_overruling(work, said or [(one, other)], False)
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
    work: Work, name: NameRow, alias: NameRow, is_active: bool, command_id: str | None
) -> None:
    """Records whether two names denote one entity."""
    key = (name.name_id, alias.name_id)
    before = work.links.get(key)
    is_persons = before is not None and before.by_person and before.is_active == is_active
    work.links[key] = work.changed[(NameLinkRow, *key)] = NameLinkRow(
        name_id=name.name_id,
        alias_id=alias.name_id,
        scope=work.message.scope,
        is_active=is_active,
        command_id=command_id,
        by_person=bool(work.by_person) or is_persons,
        updated_at=work.message.recorded,
    )


def _regrouped(work: Work, entities: Collection[str]) -> list[list[NameRow]]:
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


def _linked_to(work: Work, row: NameRow) -> set[str]:
    """The names that active links join directly to this one."""
    by_id = {each.name_id: each.name for each in work.names.values()}
    pairs = (key for key, link in work.links.items() if link.is_active and row.name_id in key)
    return {by_id[each] for key in pairs for each in key if each != row.name_id and each in by_id}


def _shown(names: Sequence[NameRow]) -> dict[str, JsonValue]:
    """An entity by its names, the main name first among these."""
    shown, *aliases = sorted(names, key=lambda row: -row.chosen)
    entity = names[0].name_id
    return {"entity_id": entity, "name": shown.name, "aliases": [row.name for row in aliases]}


def _refuse_join(work: Work, name: str, alias: str) -> None:
    """Raises Refused where an entity is archived and the other one is not, and where an agent would
    overrule a person."""
    one, other = (work.names.get(canonical(given)) for given in (name, alias))
    if one is None or other is None:
        return
    _refuse_overruling(work, [(one, other), (other, one)], True)
    archived = [any(each.archived for each in _names_of(work, row)) for row in (one, other)]
    if archived[0] != archived[1]:
        which = one if archived[0] else other
        raise Refused(f"invalid_request: {which.name!r} is archived: restore it first")


def _refuse_overruling(
    work: Work, pairs: Iterable[tuple[NameRow, NameRow]], is_active: bool
) -> None:
    for name, alias in pairs:
        link = work.links.get((name.name_id, alias.name_id))
        is_persons = link is not None and link.by_person and link.is_active != is_active
        if work.by_person is False and is_persons:
            now = "do not mean the same" if is_active else "mean the same"
            raise Refused(
                f"forbidden: a person said that {name.name!r} and {alias.name!r} {now}; only a"
                " person may take that back"
            )


# --- edits ----------------------------------------------------------------------------------------


def edit(work: Work, command: EditEntityCommand) -> JsonValue:
    """Changes what people see of an entity; returns the result. The type, the pin and the archive
    stay with its main name, so that they are where they were once names are told apart again."""
    named = work.names.get(canonical(command.name))
    if named is None:
        raise Refused(f"not_found: nothing called {command.name[:100]!r} is known in this scope")
    before = _names_of(work, named)
    version = _version(before)
    if command.if_version not in (None, version):
        raise Refused(f"version_conflict: the entity is at version {version}")
    if work.by_person is False:
        _refuse_overruling_edits(before, bool(command.pinned))
    if command.rename is not None:
        _rename(work, named, command.rename)
    rows = _names_of(work, work.names[named.canonical_name])
    given = {name: getattr(command, name) for name in ("pinned", "archived")}
    given = {name: value for name, value in given.items() if value is not None}
    for row in rows:
        is_main = row.name_id == row.entity_id
        new: dict[str, bool | str | None] = {
            name: value
            for name, value in given.items()
            if not value or (is_main and not any(getattr(each, name) for each in rows))
        }
        if is_main and command.type is not None:
            new["set_type"] = None if command.type == UNKNOWN else command.type
        after = replace(row, **new)  # type: ignore[arg-type]
        if after != row:
            work.keep(after)
    status = "no_changes"
    if _names_of(work, rows[0]) != before:
        status = "updated"
        main = next(row for row in _names_of(work, rows[0]) if row.name_id == row.entity_id)
        work.keep(
            replace(
                main,
                edits=main.edits + 1,
                edited_by_person=main.edited_by_person or bool(work.by_person),
                updated_at=work.message.recorded,
            )
        )
        work.entities_updated += 1
    now = _names_of(work, rows[0])
    return {
        "status": status,
        **_shown(now),
        "type": type_of(now),
        "pinned": any(row.pinned for row in now),
        "archived": any(row.archived for row in now),
        "version": _version(now),
    }


def _names_of(work: Work, row: NameRow) -> list[NameRow]:
    """The names of an entity, the main name first."""
    names = [each for each in work.names.values() if each.entity_id == row.entity_id]
    return sorted(names, key=lambda each: (each.name_id != each.entity_id, each.canonical_name))


def _version(names: Sequence[NameRow]) -> int:
    return 1 + sum(row.edits for row in names)


def _refuse_overruling_edits(names: Sequence[NameRow], pins: bool = False) -> None:
    """Raises Refused where a person has a hand in what an agent would change."""
    if any(row.edited_by_person or row.pinned for row in names):
        raise Refused(f"forbidden: a person edited or pinned {names[0].name!r}: only a person may")
    if pins:
        raise Refused("forbidden: only a person may pin an entity")


def _rename(work: Work, named: NameRow, given: str) -> None:
    """Shows the entity by this name from now on; it keeps the names that it had. The link of a new
    name names no command, so that the name goes with what tells of the entity."""
    shown = shown_name(given)
    fault = name_fault(shown)
    if fault is not None:
        raise Refused(f"invalid_request: {given[:100]!r} {fault}")
    row = work.names.get(canonical(given))
    if row is not None and row.entity_id != named.entity_id:  # the name of another entity
        names = _names_of(work, row)
        if len(names) > 1 or row.mentions or row.edits:
            raise Refused(
                f"invalid_request: {given[:100]!r} is the name of another entity; `alias` makes"
                " both one"
            )
        _refuse_join(work, named.name, row.name)
    row = row or new_name(work, shown, UNKNOWN, mentions=0)
    if row.entity_id != named.entity_id:
        _say(work, named, row, True, None)
        _regrouped(work, {named.entity_id, row.entity_id})
    row = work.names[row.canonical_name]
    others = [each for each in _names_of(work, row) if each.name_id != row.name_id]
    first = min([row, *others], key=shown_order)
    if first.name_id != row.name_id:
        row = replace(row, chosen=1 + max(each.chosen for each in others))
    if row.name != shown or row.chosen != work.names[row.canonical_name].chosen:
        work.keep(replace(row, name=shown))


# --- removals -------------------------------------------------------------------------------------


def remove(work: Work, given: StructureToRemove) -> JsonValue:
    """Removes parts of the graph by all names of their entities; returns what was there and what
    was not. The rows stay, and count for nothing: what is stated again is found in them."""
    rows: dict[tuple[object, ...], Row] = {
        (type(row), *row.key): row
        for row in (
            *work.relations.values(),
            *work.graph.aspects.values(),
            *work.graph.attributes.values(),
        )
        if row is not None
    }
    attributes: dict[str, list[tuple[object, ...]]] = {}
    for key in work.graph.attributes:
        attributes.setdefault(key[0], []).append((AttributeRow, *key))
    # What is named, and the keys of the rows that it may have.
    named: list[tuple[str, str, list[tuple[object, ...]]]] = []
    for relation in given.relations:
        kind = canonical_name(relation.relationship)
        sources, targets = (
            _names_called(work, relation.source),
            _names_called(work, relation.target),
        )
        shown = f"{shown_name(relation.source)} {kind} {shown_name(relation.target)}"
        pairs = [(RelationRow, one, other, kind) for one in sources for other in targets]
        named.append(("relations", shown, [*pairs]))
    for each in (*given.aspects, *given.attributes):
        owners = _names_called(work, each.entity)
        ids = [aspect_id(owner, canonical_name(each.aspect)) for owner in owners]
        if isinstance(each, NamedAttribute):
            keys = [(AttributeRow, aspect, each.memory_id) for aspect in ids]
            named.append(("attributes", each.memory_id, [*keys]))
        else:
            under = [key for aspect in ids for key in attributes.get(aspect, ())]
            shown = f"{shown_name(each.entity)}: {each.aspect}"
            named.append(("aspects", shown, [*((AspectRow, aspect) for aspect in ids), *under]))
    result: dict[str, dict[str, list[JsonValue]]] = {"removed": {}, "missing": {}}
    for what, shown, found in named:
        gone = [row for key in found if (row := _removed(rows.get(key))) is not None]
        rows.update({(type(row), *row.key): row for row in gone})
        work.changed.update({(type(row), *row.key): row for row in gone})
        work.relations_updated += what == "relations" and bool(gone)
        result["removed" if gone else "missing"].setdefault(what, []).append(shown)
    status = "removed" if result["removed"] else "no_changes"
    return {"status": status, "removed": {**result["removed"]}, "missing": {**result["missing"]}}


def _names_called(work: Work, given: str) -> list[str]:
    """Returns the ids of all names of the entity called so. Raises Refused where an agent may not
    change it."""
    row = work.names.get(canonical(given))
    names = [] if row is None else _names_of(work, row)
    if work.by_person is False:
        _refuse_overruling_edits(names)
    return [each.name_id for each in names]


def _removed(row: Row | None) -> Row | None:
    """Returns the row as it is once removed; None if nothing is there."""
    match row:
        case RelationRow() if row.mentions:
            return replace(row, mentions=0, authored=False)
        case AspectRow() if row.weight:
            return replace(row, weight=0.0, authored=False)
        case AttributeRow() if row.status == "active":
            return replace(row, status="deleted")
    return None
