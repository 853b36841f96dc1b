"""A store from before the views had a schema of their own, and what a reader must not write."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from palimpsest.stores.database.migrations import MIGRATIONS, migrate
from palimpsest.stores.database.views import VIEWS
from palimpsest.stores.shard import Shard, StoreError
from tests.memory_rows import MODEL, open_shard, turn, write
from tests.memory_rows import options as shard_options

PRIMARY_KEYS = (
    "SELECT table_name, constraint_column_names FROM duckdb_constraints()"
    " WHERE schema_name = 'internal' AND constraint_type = 'PRIMARY KEY' ORDER BY 1"
)


def old_store(path: Path) -> None:
    """As it was when all lay in one schema, with a view of that time and a row."""
    with duckdb.connect(str(path)) as store:
        store.execute("CREATE TABLE migrations (name VARCHAR PRIMARY KEY, position BIGINT)")
        for statement in MIGRATIONS[0].statements:
            store.execute(statement)
        store.execute("INSERT INTO migrations VALUES (?, 0)", [MIGRATIONS[0].name])
        store.execute("CREATE VIEW sessions AS SELECT * FROM session_rows")
        store.execute("CREATE VIEW memory_history AS SELECT * FROM history_rows")
        store.execute("INSERT INTO cursors VALUES ('audit', 'memory-changes', 7)")
        store.execute("INSERT INTO accepted_turns VALUES ('t1', 'home', 0, now())")


def test_the_tables_of_an_older_store_are_moved(tmp_path: Path) -> None:
    old_store(tmp_path / "memory.duckdb")
    shard = Shard(tmp_path, shard_options())
    assert shard.cursor_of("audit", "memory-changes") == 7
    shard.close()
    with duckdb.connect(str(tmp_path / "memory.duckdb"), read_only=True) as plain:
        assert {name for (name,) in plain.execute("SHOW TABLES").fetchall()} == set(VIEWS)
        [found] = plain.execute("SELECT scope, turns_accepted FROM pipeline_balance").fetchall()
        assert found == ("home", 1)
        kept = plain.execute(PRIMARY_KEYS).fetchall()
    with duckdb.connect() as fresh:
        migrate(fresh)
        assert kept == fresh.execute(PRIMARY_KEYS).fetchall()


def test_a_move_that_was_interrupted_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "memory.duckdb"
    old_store(path)
    with duckdb.connect(str(path)) as store:
        store.execute("DROP VIEW sessions")
        store.execute("DROP VIEW memory_history")
        store.execute("CREATE SCHEMA internal")
        store.execute("CREATE TABLE internal.cursors AS FROM cursors")
        store.execute("DROP TABLE cursors")
    shard = Shard(tmp_path, shard_options())
    assert shard.cursor_of("audit", "memory-changes") == 7
    shard.close()


def test_tables_in_both_places_are_refused(tmp_path: Path) -> None:
    open_shard(tmp_path).close()
    with duckdb.connect(str(tmp_path / "memory.duckdb")) as store:
        store.execute("CREATE TABLE outbox (stage VARCHAR)")
    with pytest.raises(ValueError, match=r"main\.outbox and internal\.outbox"):
        Shard(tmp_path, shard_options())


def test_opening_a_store_again_writes_nothing(tmp_path: Path) -> None:
    shard = open_shard(tmp_path)
    write(shard, [turn("t1", "a line about hats", 1)])
    shard.close()
    before = (tmp_path / "memory.duckdb").read_bytes()
    again = open_shard(tmp_path)
    assert not (tmp_path / "memory.duckdb.wal").exists()
    again.close()
    assert (tmp_path / "memory.duckdb").read_bytes() == before


def test_views_are_made_anew_when_a_table_got_another_column(tmp_path: Path) -> None:
    shard = open_shard(tmp_path)
    with shard.reading() as reader:
        reader.execute("ALTER TABLE internal.memory_rows ADD COLUMN novelty DOUBLE")
        reader.execute("INSERT INTO internal.shard_state VALUES ('marker', 'x')")
        reader.execute("DELETE FROM internal.shard_state WHERE name = 'views'")
    shard.close()
    again = open_shard(tmp_path)
    with again.reading() as reader:
        assert reader.execute("SELECT novelty FROM main.memories").fetchall() == []
    again.close()


def test_a_store_that_cannot_be_brought_up_to_date_is_told(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "memory.duckdb")) as store:
        store.execute("CREATE SCHEMA internal")
        store.execute("CREATE TABLE internal.migrations (other INTEGER)")
    with pytest.raises(StoreError, match="cannot be brought up to date"):
        Shard(tmp_path, shard_options())


def test_a_memory_with_vectors_of_two_models_is_one_row(tmp_path: Path) -> None:
    shard = open_shard(tmp_path)
    write(shard, [turn("t1", "Ana moved to Lisbon")])
    shard.close()
    with duckdb.connect(str(tmp_path / "memory.duckdb")) as store:
        store.execute(
            "INSERT INTO internal.embeddings SELECT embedding_key, 'a newer one', vector, tokens"
            " FROM internal.embeddings"
        )
        found = store.execute("SELECT memory_id, embedding_model FROM memories").fetchall()
    assert found == [("t1", f"a newer one, {MODEL}")]
