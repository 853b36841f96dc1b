"""Removes from the graph what only erased memories support."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import duckdb

from palimpsest.schemas.identity import ERASED_NAME, relation_id
from palimpsest.stores.index.scope_graph import GraphRemoval

_EVER, _LAST = datetime.max.replace(tzinfo=UTC), 2**63 - 1
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OF_GRAPH = (
    *("name_rows", "name_links", "relation_rows"),
    *("mention_rows", "aspect_rows", "attribute_rows", "aspect_weights"),
)

# What the graph keeps is told by texts that were there at the time of the command: graph-persist
# may come to it later than other stages, and in a rebuild does so when they have read all. A text
# was there at a time if it was archived before, or was what the memory said then: the first state
# that was archived later, else the present one. A state archived at the same moment may lie before
# or after the command, so it counts as a later one.
_TEXTS_THEN = """
CREATE OR REPLACE TEMP TABLE texts_then AS
WITH kept AS (
    SELECT memory_id, embedding_key FROM memory_rows
    WHERE scope = $scope AND {was_there}
        AND memory_id IN (SELECT memory_id FROM mention_rows
            WHERE name_id IN (SELECT unnest($names) UNION SELECT name_id FROM name_rows
                WHERE scope = $scope AND entity_id IN (SELECT unnest($names))))
), states AS (
    SELECT a.memory_id, a.archived_at, a.version,
        json_extract_string(a.state, '$.embedding_key') AS embedding_key
    FROM archived_states a SEMI JOIN kept USING (memory_id) WHERE a.scope = $scope
), later AS (
    SELECT memory_id, arg_min(embedding_key, version) AS embedding_key FROM states
    WHERE archived_at >= $at GROUP BY memory_id
)
SELECT memory_id, embedding_key FROM states WHERE archived_at < $at
UNION SELECT * FROM later
UNION SELECT memory_id, embedding_key FROM kept ANTI JOIN later USING (memory_id)"""
_TOLD_THEN = """
CREATE OR REPLACE TEMP TABLE told_then AS
SELECT DISTINCT m.memory_id, m.name_id FROM mention_rows m
JOIN texts_then t ON t.memory_id = m.memory_id AND t.embedding_key = m.text_key"""
_RELATION = " RETURNING source_name_id, target_name_id, relation_type"
# A memory that mentions both ends supports the relations between them.
UNTOLD_RELATIONS = f"""
DELETE FROM relation_rows WHERE scope = $scope AND NOT authored
    AND (source_name_id IN (SELECT unnest($names)) OR target_name_id IN (SELECT unnest($names)))
    AND NOT EXISTS (FROM temp.told_then a JOIN temp.told_then b USING (memory_id)
        WHERE a.name_id = source_name_id AND b.name_id = target_name_id)
{_RELATION}"""
# A name that someone declared an alias stays, and so do names that have aliases.
_UNTOLD = """NOT pinned AND NOT authored
    AND name_id NOT IN (SELECT name_id FROM temp.told_then)
    AND name_id NOT IN (SELECT source_name_id FROM relation_rows WHERE scope = $scope)
    AND name_id NOT IN (SELECT target_name_id FROM relation_rows WHERE scope = $scope)
    AND name_id NOT IN (SELECT name_id FROM aspect_rows WHERE scope = $scope)
    AND NOT EXISTS (FROM name_links l WHERE l.scope = $scope AND l.command_id IS NOT NULL
        AND l.is_active AND name_rows.name_id IN (l.name_id, l.alias_id))"""
_UNTOLD_NAMES = f"""
DELETE FROM name_rows WHERE scope = $scope AND name_id IN (SELECT unnest($names)) AND {_UNTOLD}"""
_UNTOLD_OF_ALL = (
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


_NAME = " RETURNING name_id, canonical_name"
_WHOLE_RELATIONS = f"DELETE FROM relation_rows WHERE scope = $scope{_RELATION}"
_WHOLE_NAMES = f"DELETE FROM name_rows WHERE scope = $scope{_NAME}"


def note_told_then(
    connection: duckdb.DuckDBPyConnection, was_there: str, given: Mapping[str, object]
) -> None:
    """Makes `temp.told_then`: which memories told which of the `$names` at `$at`, of those for
    which the condition `was_there` holds."""
    connection.execute(_TEXTS_THEN.replace("{was_there}", was_there), given)
    connection.execute(_TOLD_THEN)


def without_untold_names(
    connection: duckdb.DuckDBPyConnection, given: Mapping[str, object]
) -> list[tuple[str, str]]:
    """Deletes those of the `$names` that nothing told then, and later mentions of them, which are
    found again with a name that comes back. Returns ids and canonical names of the deleted."""
    gone: list[tuple[str, str]] = []
    for untold in _UNTOLD_OF_ALL:
        gone += connection.execute(f"{untold}{_NAME}", given).fetchall()
    connection.execute(
        "DELETE FROM mention_rows WHERE name_id IN (SELECT unnest(?))", [[key for key, _ in gone]]
    )
    return gone


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
        relations = connection.execute(_WHOLE_RELATIONS, {"scope": scope}).fetchall()
        names = connection.execute(_WHOLE_NAMES, {"scope": scope}).fetchall()
        _note_erased(connection, scope, relations, names)
        for table in OF_GRAPH:
            connection.execute(f"DELETE FROM {table} WHERE scope = ?", [scope])
        return None
    parameters = {"scope": scope, "ids": [*memory_ids]}
    named = [
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
    [(erased_at, erased_seq)] = connection.execute(
        f"SELECT max(updated_at), max(write_seq) FROM memory_rows {of_memories}", parameters
    ).fetchall()
    given: dict[str, object] = {"scope": scope, "names": named}
    connection.execute(EMPTY_ASPECTS, given)
    # Of a memory that was changed only the moment is known at which it was new.
    was_there = "CASE WHEN version = 1 THEN write_seq < $seq ELSE created_at <= $at END"
    then = {"at": erased_at or _EVER, "seq": erased_seq or _LAST}  # its row may be swept by now
    note_told_then(connection, was_there, {**given, **then})
    relations = connection.execute(UNTOLD_RELATIONS, given).fetchall()
    names = without_untold_names(connection, given)
    _note_erased(connection, scope, relations, names)
    connection.execute(LOOSE_LINKS, {"scope": scope})
    return GraphRemoval(mentions, relations, [name_id for name_id, _ in names])


def _note_erased(
    connection: duckdb.DuckDBPyConnection,
    scope: str,
    relations: Iterable[tuple[str, str, str]],
    names: Iterable[tuple[str, str]],
) -> None:
    """Stores the ids of what was deleted: an import must not restore it."""
    gone = [
        _erased_id(relation_type, relation_id(source, target, relation_type))
        for source, target, relation_type in relations
    ]
    gone += [_erased_id(name, name_id) for name_id, name in names]
    connection.execute(
        "INSERT INTO erased_graph SELECT ?, unnest(?::VARCHAR[]) ON CONFLICT DO NOTHING",
        [scope, gone],
    )


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
