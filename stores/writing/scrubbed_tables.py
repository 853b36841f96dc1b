"""The tables of a scope that was erased as a whole, without anything that a person can have said.

Every table of the scope is scrubbed in all columns that hold text, whatever they are called.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import fields
from typing import Any, Final

import duckdb

from palimpsest.schemas.privacy import PrivacyRow
from palimpsest.schemas.quotations import ERASED
from palimpsest.schemas.row_types import ROW_TYPES
from palimpsest.schemas.rows import (
    ArchiveRow,
    AspectRow,
    AttributeRow,
    MemoryRow,
    MentionRow,
    NameRow,
    RelationRow,
    Row,
)
from palimpsest.schemas.scrubbing import EDGES, Scrub

_ELSEWHERE: Final = frozenset(
    (MemoryRow, ArchiveRow, NameRow, RelationRow, MentionRow, AspectRow, AttributeRow)
)
"""Memories lose their texts as they become tombstones; the graph forgets in its own batch."""
_JSON: Final = frozenset({"metadata", "candidates", "payload", "headers", "result"})
_TIMES: Final = ("recorded_at", "created_at", "last_failed_at", "archived_at")
_CAUSES: Final = ("correlation_id", "command_id")
_OF_GRAPH: Final = ("alias", "import")
"""Commands that graph-persist answers."""


def scrub_tables(
    connection: duckdb.DuckDBPyConnection, scrub: Scrub, caused: Collection[str] = ()
) -> None:
    """As part of the running transaction. What was recorded later stays, unless what it follows
    from is among the `caused`."""
    connection.execute(
        "DELETE FROM memory_edges WHERE scope = ? AND relation_type NOT IN (SELECT unnest(?))",
        [scrub.scope, sorted(EDGES)],
    )
    for row_type in ROW_TYPES:
        known = {field.name: str(field.type) for field in fields(row_type)}
        if row_type in _ELSEWHERE or "scope" not in known:
            continue
        texts = [
            name
            for name, kind in known.items()
            if kind.startswith(("str", "tuple[str", "Privacy")) and name not in row_type.KEY
        ]
        if row_type is PrivacyRow:
            texts.append("person_key")
        _scrub_table(connection, row_type, texts, scrub, caused)


def scrub_results(connection: duckdb.DuckDBPyConnection, scope: str) -> None:
    """What the graph answered before all of it was forgotten, as part of the transaction."""
    connection.execute(
        "UPDATE command_results SET result = '{}', error = CASE WHEN error IS NOT NULL THEN ? END"
        " WHERE scope = ? AND command IN (SELECT unnest(?))",
        [ERASED, scope, [*_OF_GRAPH]],
    )


def _scrub_table(
    connection: duckdb.DuckDBPyConnection,
    row_type: type[Row],
    texts: list[str],
    scrub: Scrub,
    caused: Collection[str],
) -> None:
    cursor = connection.execute(f"SELECT * FROM {row_type.TABLE} WHERE scope = ?", [scrub.scope])
    columns = [each[0] for each in cursor.description or ()]
    for values in cursor.fetchall():
        row = dict(zip(columns, values, strict=True))
        if _is_later(row, scrub, caused):
            continue
        changed = {name: new for name in texts if (new := _scrubbed(scrub, row, name)) != row[name]}
        if not changed:
            continue
        sets = ", ".join(f"{name} = ?" for name in changed)
        where = " AND ".join(f"{name} = ?" for name in row_type.KEY)
        key = [row[name] for name in row_type.KEY]
        connection.execute(
            f"UPDATE {row_type.TABLE} SET {sets} WHERE {where}", [*changed.values(), *key]
        )


def _scrubbed(scrub: Scrub, row: dict[str, Any], name: str) -> Any:
    held = row[name]
    if name == "person_key":
        return scrub.node(held, "person")
    if name == "value_base64":
        return scrub.node({"topic": row["topic"], name: held})[name]  # type: ignore[index, call-overload]
    if name in _JSON and isinstance(held, str):
        node = json.loads(held)
        new = scrub.node(node, name)
        # As it is written: what does not change keeps its bytes.
        return held if new == node else json.dumps(new, sort_keys=True, ensure_ascii=False)
    if isinstance(held, list):
        return [scrub.node(each, name) for each in held]
    new = scrub.node(held, name)
    # Numbers that tell names apart are those of one record.
    return new if new == held or name in ("person", "error") else ERASED


def _is_later(row: dict[str, Any], scrub: Scrub, caused: Collection[str]) -> bool:
    """Whether a row was written for something that was told after the erasure."""
    if scrub.tells_of_others(row) or any(row.get(name) in scrub.own for name in _CAUSES):
        return True
    if any(row.get(name) in caused for name in _CAUSES):
        return False
    times = [row[name] for name in _TIMES if row.get(name) is not None]
    return bool(times) and min(times) > scrub.at
