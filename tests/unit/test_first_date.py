"""A memory that was updated is dated by its newest statement; the first date stands beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import duckdb

from palimpsest.schemas.rows import MemoryRow
from palimpsest.stores.database.migrations import MIGRATIONS
from palimpsest.stores.database.tables import select
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.stores.shard import DATABASE_FILE, Shard
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.memory_rows import memory, open_shard, write
from tests.messages import published, turn
from tests.spoken_model import ScriptedModel, spoken

FIRST = datetime(2026, 1, 5, 12, tzinfo=UTC)
NEWEST = datetime(2026, 2, 7, 12, tzinfo=UTC)
NUMBER = [migration.name for migration in MIGRATIONS].index("0003-first-occurred-at")
MIDDLE = datetime(2026, 1, 20, tzinfo=UTC)


def since(shard: Shard, at: datetime) -> list[str]:
    asked = Query("ana", "Where does Ana live?", since=at, types=("fact",))
    found = Retriever(shard).search(asked)
    return [result.content for result in found.results]


def test_lists_and_recall_date_an_updated_memory_by_its_newest_statement(tmp_path: Path) -> None:
    """Also after a restart, when the resident index is read anew."""
    old, new = "Ana lives in Oslo near the harbour", "Now Ana lives in Bergen near the harbour"
    with Pipeline(tmp_path, pipeline_settings(FULL, "model"), ScriptedModel(spoken)) as pipeline:
        pipeline.publish(published(turn(old, 1), occurred_at=FIRST))
        pipeline.run()
        assert since(pipeline.shard, MIDDLE) == []
        assert since(pipeline.shard, FIRST) == [old]
        pipeline.publish(published(turn(new, 2), occurred_at=NEWEST))
        pipeline.run()
        assert pipeline.rows(
            "SELECT content, version, occurred_at, first_occurred_at FROM memories"
            " WHERE type <> 'episodic'"
        ) == [{"content": new, "version": 2, "occurred_at": NEWEST, "first_occurred_at": FIRST}]
        assert since(pipeline.shard, MIDDLE) == [new]
        pipeline.reopen()
        assert since(pipeline.shard, MIDDLE) == [new]


def test_a_store_of_the_version_before_gets_the_column(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    folder.mkdir()
    with duckdb.connect(str(folder / DATABASE_FILE)) as before:
        before.execute("CREATE TABLE migrations (name VARCHAR PRIMARY KEY, position BIGINT)")
        for position, migration in enumerate(MIGRATIONS[:NUMBER]):
            for statement in migration.statements:
                before.execute(statement)
            before.execute("INSERT INTO migrations VALUES (?, ?)", [migration.name, position])
        before.execute(
            "INSERT INTO memory_rows BY NAME SELECT 'm1' AS memory_id, 'ana' AS scope,"
            " 'fact' AS type, 'Ana likes tea' AS content, 'ana likes tea' AS normalized_content,"
            " repeat('0', 64) AS content_hash, 'k' AS dedup_key, 'e' AS embedding_key,"
            " 0.5 AS importance, 0.9 AS confidence, 0.1 AS decay_rate, false AS pinned,"
            " [] AS tags, [] AS categories, '' AS who, '' AS why, '' AS session_id,"
            " '' AS source_type, 'persistent' AS temporal_kind, $at AS occurred_at,"
            " $at AS created_at, $at AS updated_at, '' AS updated_by, 0 AS access_count,"
            " 1 AS version, false AS is_deleted, '{}' AS metadata, 1 AS write_seq",
            {"at": FIRST},
        )
    shard = open_shard(folder)
    try:
        assert MIGRATIONS[NUMBER].name in shard.migrated
        with shard.reading() as reader:
            [row] = select(reader, MemoryRow, "memory_id = ?", ["m1"])
        assert (row.occurred_at, row.first_occurred_at) == (FIRST, None)
        write(shard, [memory("m2", "Ana likes cake", 2, first_occurred_at=FIRST)])
        with shard.reading() as reader:
            [row] = select(reader, MemoryRow, "memory_id = ?", ["m2"])
        assert row.first_occurred_at == FIRST
    finally:
        shard.close()
