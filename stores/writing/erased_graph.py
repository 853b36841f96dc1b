"""Removes from the graph what only erased memories support."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import duckdb

from palimpsest.schemas.identity import ERASED_NAME, relation_id
from palimpsest.stores.index.scope_graph import GraphRemoval

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OF_GRAPH = (
    *("name_rows", "name_links", "relation_rows"),
    *("mention_rows", "aspect_rows", "attribute_rows", "aspect_weights"),
)

# A memory that mentions both ends supports the relations between them.
_UNTOLD_RELATIONS = """
DELETE FROM relation_rows WHERE scope = $scope AND NOT authored
    AND (source_name_id IN (SELECT unnest($names)) OR target_name_id IN (SELECT unnest($names)))
    AND NOT EXISTS (
        SELECT 1 FROM mention_rows a JOIN mention_rows b ON a.memory_id = b.memory_id
        WHERE a.name_id = source_name_id AND b.name_id = target_name_id)"""
# A name that someone declared an alias stays, and so do names that have aliases.
_UNTOLD = """NOT pinned AND NOT authored
    AND name_id NOT IN (SELECT name_id FROM mention_rows WHERE scope = $scope)
    AND name_id NOT IN (SELECT source_name_id FROM relation_rows WHERE scope = $scope)
    AND name_id NOT IN (SELECT target_name_id FROM relation_rows WHERE scope = $scope)
    AND name_id NOT IN (SELECT name_id FROM aspect_rows WHERE scope = $scope)
    AND NOT EXISTS (FROM name_links l WHERE l.scope = $scope AND l.command_id IS NOT NULL
        AND l.is_active AND name_rows.name_id IN (l.name_id, l.alias_id))"""
_UNTOLD_NAMES = f"""
DELETE FROM name_rows WHERE scope = $scope AND name_id IN (SELECT unnest($names)) AND {_UNTOLD}"""
UNTOLD_NAMES = (
    f"{_UNTOLD_NAMES} AND entity_id <> name_id",
    # A name that people gave an entity goes with it, and is nothing that it stays for.
    f"""{_UNTOLD_NAMES} AND entity_id = name_id AND NOT is_alias
    AND name_id NOT IN (SELECT entity_id FROM name_rows
        WHERE scope = $scope AND name_id <> entity_id AND NOT (chosen > 0 AND {_UNTOLD}))""",
    """
DELETE FROM name_rows WHERE scope = $scope AND entity_id IN (SELECT unnest($names))
    AND entity_id NOT IN (SELECT name_id FROM name_rows WHERE scope = $scope)""",
)
"""Other names of entities, main names, and what people called the entities that are gone."""


EMPTY_ASPECTS = """
DELETE FROM aspect_rows WHERE scope = $scope AND name_id IN (SELECT unnest($names))
    AND NOT authored
    AND aspect_id NOT IN (SELECT aspect_id FROM attribute_rows WHERE scope = $scope)"""
LOOSE_LINKS = """
DELETE FROM name_links WHERE scope = $scope AND NOT (
    name_id IN (SELECT name_id FROM name_rows WHERE scope = $scope)
    AND alias_id IN (SELECT name_id FROM name_rows WHERE scope = $scope))"""


_RELATION = " RETURNING source_name_id, target_name_id, relation_type"
_NAME = " RETURNING name_id, canonical_name"
_WHOLE_RELATIONS = f"DELETE FROM relation_rows WHERE scope = $scope{_RELATION}"
_WHOLE_NAMES = f"DELETE FROM name_rows WHERE scope = $scope{_NAME}"


def erased_ids(connection: duckdb.DuckDBPyConnection, scope: str) -> frozenset[str]:
    """Names and relations of a scope that were erased, by their ids."""
    rows = connection.execute("SELECT id FROM erased_graph WHERE scope = ?", [scope]).fetchall()
    return frozenset(key for (key,) in rows)


def erase_graph(
    connection: duckdb.DuckDBPyConnection, scope: str, memory_ids: Sequence[str] | None
) -> GraphRemoval | None:
    """Runs in the running transaction; erases the whole graph of the scope for None. Returns what a
    part of it was."""
    if memory_ids is None:
        _note_erased(connection, scope, _WHOLE_RELATIONS, (_WHOLE_NAMES,), {"scope": scope})
        for table in OF_GRAPH:
            connection.execute(f"DELETE FROM {table} WHERE scope = ?", [scope])
        return None
    parameters = {"scope": scope, "ids": [*memory_ids]}
    names = [
        name_id
        for (name_id,) in connection.execute(
            "SELECT name_id FROM mention_rows"
            " WHERE scope = $scope AND memory_id IN (SELECT unnest($ids))"
            # As in a log from which something was erased before.
            " UNION SELECT name_id FROM name_rows WHERE scope = $scope"
            "  AND regexp_full_match(canonical_name, $erased) ORDER BY 1",
            parameters | {"erased": ERASED_NAME.pattern},
        ).fetchall()
    ]
    of_memories = "WHERE scope = $scope AND memory_id IN (SELECT unnest($ids))"
    mentions = connection.execute(
        f"DELETE FROM mention_rows {of_memories} RETURNING name_id, memory_id", parameters
    ).fetchall()
    connection.execute(f"DELETE FROM attribute_rows {of_memories}", parameters)
    given: dict[str, object] = {"scope": scope, "names": names}
    connection.execute(EMPTY_ASPECTS, given)
    relations = f"{_UNTOLD_RELATIONS}{_RELATION}"
    of_names = [f"{each}{_NAME}" for each in UNTOLD_NAMES]
    lost = _note_erased(connection, scope, relations, of_names, given)
    connection.execute(LOOSE_LINKS, {"scope": scope})
    return replace(lost, mentions=mentions)


def _note_erased(
    connection: duckdb.DuckDBPyConnection,
    scope: str,
    relations: str,
    names: Sequence[str],
    given: dict[str, object],
) -> GraphRemoval:
    """Deletes by the statements, and stores the ids that they return: an import must not restore
    them. Returns what was deleted."""
    of_relations = connection.execute(relations, given).fetchall()
    of_names = [row for each in names for row in connection.execute(each, given).fetchall()]
    gone = [
        _erased_id(relation_type, relation_id(source, target, relation_type))
        for source, target, relation_type in of_relations
    ]
    gone += [_erased_id(name, name_id) for name_id, name in of_names]
    connection.execute(
        "INSERT INTO erased_graph SELECT ?, unnest(?::VARCHAR[]) ON CONFLICT DO NOTHING",
        [scope, gone],
    )
    return GraphRemoval(relations=of_relations, names=[name_id for name_id, _ in of_names])


def _erased_id(name: str, own: str) -> str:
    """Returns the id of what has the name, or of the erased item that had it."""
    left = name.removeprefix("erased ")
    return left if left != name and _ID.fullmatch(left) else own


def free_again(
    connection: duckdb.DuckDBPyConnection, scope: str, memory_ids: Sequence[str] | None
) -> bool:
    """Returns whether files of the erasure were written again before its graph was erased, or are
    being written: they still hold the freed rows and must be written again. Runs in the
    transaction."""
    changed = connection.execute(
        "UPDATE erasures SET phase = 'files' WHERE phase IN ('files', 'done') AND scope = $scope"
        " AND ($ids IS NULL OR list_has_any(memory_ids, $ids)) RETURNING 1",
        {"scope": scope, "ids": None if memory_ids is None else [*memory_ids]},
    ).fetchall()
    return bool(changed)
