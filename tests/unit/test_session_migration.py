"""A store from before sessions ended: its newest session of a scope is the open one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import duckdb

from palimpsest.schemas.rows import OpenSessionsRow, SessionRow
from palimpsest.stores.database.migrations import MIGRATIONS, migrate
from palimpsest.stores.database.tables import select
from palimpsest.stores.shard import DATABASE_FILE
from tests.memory_rows import open_shard

NAME = "sessions-and-short-term"
BEFORE = [each.name for each in MIGRATIONS if NAME not in each.name]
BEFORE = BEFORE[: next(i for i, each in enumerate(MIGRATIONS) if NAME in each.name)]
OLD, NEW = datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 1, 6, tzinfo=UTC)


def test_sessions_of_before(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    folder.mkdir()
    with duckdb.connect(str(folder / DATABASE_FILE)) as before:
        migrate(before, BEFORE)
        for turn, session, at in (("t1", "a", OLD), ("t2", "b", NEW), ("t3", "", NEW)):
            before.execute(
                "INSERT INTO memory_rows BY NAME SELECT $turn AS memory_id, 'ana' AS scope,"
                " 'episodic' AS type, 'x' AS content, 'x' AS normalized_content,"
                " repeat('0', 64) AS content_hash, NULL AS dedup_key, 'e' AS embedding_key,"
                " 0.5 AS importance, 0.9 AS confidence, 0.1 AS decay_rate, false AS pinned,"
                " [] AS tags, [] AS categories, '' AS who, '' AS why, $session AS session_id,"
                " '' AS source_type, 'persistent' AS temporal_kind, $at AS occurred_at,"
                " $at AS created_at, $at AS updated_at, '' AS updated_by, 0 AS access_count,"
                " 1 AS version, false AS is_deleted, '{}' AS metadata, 1 AS write_seq",
                {"turn": turn, "session": session, "at": at},
            )
            before.execute(
                "INSERT INTO session_rows BY NAME SELECT 'ana' AS scope, $session AS session_id,"
                " $turn AS last_turn, 1 AS turns, $at AS first_at, $at AS last_at,"
                " [$turn] AS extracted_turns",
                {"turn": turn, "session": session, "at": at},
            )
    shard = open_shard(folder)
    try:
        with shard.reading() as reader:
            rows = {row.session_id: row for row in select(reader, SessionRow, "true", [])}
            opened = select(reader, OpenSessionsRow, "true", [])
        ends = {name: (row.ended_by, row.ended_at, row.ends) for name, row in rows.items()}
        assert ends == {
            "a": ("new-session", OLD, 1),
            "b": (None, None, 0),
            "": (None, None, 0),
        }
        assert (rows["a"].first_turn, rows["b"].last_recorded_at) == ("t1", NEW)
        assert opened == [OpenSessionsRow(scope="ana", session_ids=("b",))]
    finally:
        shard.close()
