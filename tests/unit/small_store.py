"""A database with a few hand-made rows, for what reads rows and needs no pipeline."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.graph import MentionRow, NameRow, RelationRow
from palimpsest.schemas.rows.memories import EdgeRow, MemoryRow
from palimpsest.stores.database.migrations import migrate, use_tables
from palimpsest.stores.database.snapshot import SMALL
from palimpsest.stores.database.tables import Tables
from palimpsest.stores.database.views import install_views
from palimpsest.stores.index.loading import load_index
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.stored_scopes import Graph, StoredGraph

BEGIN = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


FILES = TemporaryDirectory()
NUMBERS = count()


def empty_store() -> duckdb.DuckDBPyConnection:
    path = Path(FILES.name) / str(next(NUMBERS))
    path.write_bytes(made())
    connection = _opened(path)
    use_tables(connection)
    return connection


@cache
def made() -> bytes:
    """The file of an empty store, which takes long to make."""
    path = Path(FILES.name) / "made"
    with _opened(path) as connection:
        migrate(connection)
        install_views(connection, "SELECT 1")
    return path.read_bytes()


def _opened(path: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(str(path), config={"threads": 1, **SMALL})
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return connection


def put(connection: duckdb.DuckDBPyConnection, *rows: Row) -> None:
    tables = Tables(connection)
    for row in rows:
        tables.insert([row])


def memory(memory_id: str, content: str = "", **fields: Any) -> MemoryRow:
    """A fact, or with `type="episodic"` a turn; `minutes` after BEGIN."""
    at = BEGIN + timedelta(minutes=fields.pop("minutes", 0))
    given: dict[str, Any] = {
        "scope": "s",
        "type": "fact",
        "content": content or memory_id,
        "normalized_content": (content or memory_id).lower(),
        "content_hash": f"hash-{memory_id}",
        "dedup_key": None,
        "embedding_key": f"key-{memory_id}",
        "importance": 0.5,
        "confidence": 0.9,
        "occurred_at": at,
        "created_at": at,
        "updated_at": at,
        "updated_by": "test",
    }
    return MemoryRow(memory_id=memory_id, **given | fields)


def turn(memory_id: str, content: str = "", **fields: Any) -> MemoryRow:
    return memory(memory_id, content, **{"type": "episodic", "session_id": "a", **fields})


def edge(source: str, relation: str, target: str, **fields: Any) -> EdgeRow:
    given: dict[str, Any] = {"scope": "s", **fields}
    return EdgeRow(source_id=source, target_id=target, relation_type=relation, **given)


def entity(entity_id: str, name: str, **fields: Any) -> NameRow:
    """An entity by its main name."""
    given: dict[str, Any] = {
        "scope": "s",
        "canonical_name": name.lower(),
        "entity_type": "person",
        "first_seen": BEGIN,
        "updated_at": BEGIN,
    }
    return NameRow(name_id=entity_id, entity_id=entity_id, name=name, **given | fields)


def alias(entity_id: str, name: str) -> NameRow:
    """Another name of an entity."""
    fields = {"name_id": f"{entity_id}: {name}", "is_alias": True, "mentions": 0}
    return replace(entity(entity_id, name), **fields)


def relation(source: str, target: str, kind: str = "knows", **fields: Any) -> RelationRow:
    given: dict[str, Any] = {"scope": "s", "confidence": 0.8, **fields}
    return RelationRow(source_name_id=source, target_name_id=target, relation_type=kind, **given)


def mention(memory_id: str, name_id: str, **fields: Any) -> MentionRow:
    """The text that `memory` gives a memory has a name."""
    given: dict[str, Any] = {"scope": "s", "mention_text": name_id, "confidence": 0.9, **fields}
    return MentionRow(memory_id=memory_id, name_id=name_id, text_key=f"key-{memory_id}", **given)


def indexed(connection: duckdb.DuckDBPyConnection, scope: str = "s") -> ScopeIndex:
    """The index of a scope's living memories, each of one term."""
    connection.execute(
        "INSERT INTO fts_docs SELECT memory_id, scope, 1 FROM memory_rows WHERE NOT is_deleted"
        " AND memory_id NOT IN (SELECT memory_id FROM fts_docs)"
    )
    return load_index(connection, scope, "none", 8)


def graph_of(
    connection: duckdb.DuckDBPyConnection, scope: str = "s", stored: bool = False
) -> Graph:
    """The graph of a scope, in memory or as `stored`."""
    index = indexed(connection, scope)
    return StoredGraph(lambda: nullcontext(connection), scope) if stored else index.graph
