"""A store of before names and texts had mentions of their own, opened by this version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pytest

from palimpsest.schemas.identity import entity_id
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.stores.database import migrations
from palimpsest.stores.database.migrations import MIGRATIONS, migrate
from palimpsest.stores.database.views import install_views
from palimpsest.streams.memory_rows import archived, changed, deleted, with_content
from tests.unit.by_hand import memory
from tests.unit.small_store import BEGIN, put

ANA, OSLO = entity_id("ana", "ana"), entity_id("ana", "oslo")


def put_entities(connection: duckdb.DuckDBPyConnection) -> None:
    entities = [(ANA, "Ana", "person", ["annie"], 4), (OSLO, "Oslo", "place", [], 2)]
    for key, name, kind, aliases, mentions in entities:
        connection.execute(
            "INSERT INTO entities VALUES (?, 'ana', ?, ?, ?, ?, NULL, ?, false, ?, ?)",
            [key, name, name.lower(), kind, aliases, mentions, BEGIN, BEGIN],
        )
    connection.execute(
        "INSERT INTO relations VALUES (?, ?, 'lives in', 'ana', 1.0, 2, 0.7)", [ANA, OSLO]
    )
    connection.execute(
        "INSERT INTO entity_aspects VALUES ('a1', ?, 'ana', 'Diet', 'diet', 0.5, ?)", [ANA, BEGIN]
    )
    connection.execute(
        "INSERT INTO entity_attributes VALUES ('a1', 'plain', 'ana', 'attribute', 'active', 1, 1)"
    )


def put_memories(connection: duckdb.DuckDBPyConnection) -> None:
    first = memory("moved", "Ana lives in Oslo")
    second = with_content(changed(first, BEGIN, "test", 2), "Ana lives in a tent")
    gone = memory("gone", "Oslo is far")
    turn = memory("turn", "it is cold", type="episodic", who="Ana")
    turn = replace(turn, embedding_key=embedding_key("Ana: it is cold"))
    put(
        connection,
        memory("plain", "Annie is careful"),
        second,
        archived(first, "test", BEGIN),
        deleted(changed(gone, BEGIN, "test", 2), BEGIN),
        archived(gone, "test", BEGIN),
        turn,
    )
    mentions = [
        ("plain", ANA, "Annie"),
        ("moved", ANA, "Ana"),
        ("moved", OSLO, "Oslo"),
        ("gone", OSLO, "Oslo"),
        ("turn", ANA, "Ana"),
        ("turn", OSLO, "the city"),  # by a triple
    ]
    for memory_id, entity, text in mentions:
        connection.execute(
            "INSERT INTO memory_entity_mentions VALUES (?, ?, 'ana', ?, 1.0)",
            [memory_id, entity, text],
        )


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    with monkeypatch.context() as before:
        earlier = [m.name for m in MIGRATIONS].index("0005-names-and-texts")
        before.setattr(migrations, "MIGRATIONS", MIGRATIONS[:earlier])
        migrate(connection)
        # Rows are put as this version has them; the column comes with its migration.
        connection.execute("ALTER TABLE memory_rows ADD COLUMN role VARCHAR DEFAULT ''")
    connection.execute("CREATE VIEW mentions AS SELECT * FROM memory_entity_mentions")
    put_entities(connection)
    put_memories(connection)
    connection.execute("ALTER TABLE memory_rows DROP COLUMN role")
    migrate(connection)
    install_views(connection, "SELECT 1")
    return connection


def seen(store: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return sorted(store.execute(query).fetchall())


def test_entities_keep_their_names_and_counts(store: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT entity_id, name, entity_type, aliases, times_told FROM entities"
    assert seen(store, query) == sorted(
        [(ANA, "Ana", "person", ["annie"], 4), (OSLO, "Oslo", "place", [], 2)]
    )
    assert seen(store, "SELECT name_id FROM name_rows WHERE is_alias") == [
        (entity_id("ana", "annie"),)
    ]
    kept = "SELECT source_name_id, target_name_id, relation_type, confidence FROM relation_rows"
    assert seen(store, kept) == [(ANA, OSLO, "lives in", 0.7)]
    # What said so was corrected before.
    assert seen(store, "SELECT * FROM relations") == []
    attributes = seen(store, "SELECT aspect_id, memory_id, status FROM entity_attributes")
    assert attributes == [("a1", "plain", "active")]


def test_mentions_are_held_for_the_texts_that_have_them(store: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT memory_id, entity_name, mention_text FROM mentions"
    assert seen(store, query) == [
        ("moved", "Ana", "Ana"),
        ("plain", "Ana", "Annie"),
        ("turn", "Ana", "Ana"),
        ("turn", "Oslo", "the city"),
    ]
    store.execute("UPDATE memory_rows SET is_deleted = false WHERE memory_id = 'gone'")
    assert ("gone", "Oslo", "Oslo") in seen(store, query)
