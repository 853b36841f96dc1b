"""A store that is opened again, and what a reader must not write."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from palimpsest.stores.shard import Shard, StoreError
from tests.memory_rows import MODEL, open_shard, turn, write
from tests.memory_rows import options as shard_options


def test_a_store_that_an_old_version_worked_on_is_refused(tmp_path: Path) -> None:
    open_shard(tmp_path).close()
    with duckdb.connect(str(tmp_path / "memory.duckdb")) as store:
        store.execute("CREATE TABLE outbox (stage VARCHAR)")
    with pytest.raises(ValueError, match=r"older than what .* `palimpsest replay rebuild"):
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
            "INSERT INTO internal.embeddings BY NAME"
            " SELECT * REPLACE ('a newer one' AS model) FROM internal.embeddings"
        )
        found = store.execute("SELECT memory_id, embedding_model FROM memories").fetchall()
    assert found == [("t1", f"a newer one, {MODEL}")]
