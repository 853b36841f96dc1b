"""A store from before decide wrote no tables: audit goes on with extractions where decide was."""

from __future__ import annotations

from pathlib import Path

import duckdb

from palimpsest.stores.database.migrations import MIGRATIONS, migrate
from palimpsest.stores.shard import DATABASE_FILE
from tests.memory_rows import open_shard

NAME = "decisions-are-applied"
BEFORE = [each.name for each in MIGRATIONS]
BEFORE = BEFORE[: next(i for i, name in enumerate(BEFORE) if NAME in name)]


def test_cursors_of_before(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    folder.mkdir()
    with duckdb.connect(str(folder / DATABASE_FILE)) as before:
        migrate(before, BEFORE)
        before.execute(
            "INSERT INTO cursors (stage, topic, next_offset) VALUES"
            " ('decide', 'facts-extracted', 7), ('audit', 'dead-letters', 2)"
        )
        for stage in ("decide", "audit"):
            before.execute(
                "INSERT INTO seen_messages (stage, message_id, seen_offset) VALUES (?, 'm', 1)",
                [stage],
            )
    shard = open_shard(folder)
    try:
        assert shard.cursor_of("audit", "facts-extracted") == 7
        assert shard.cursor_of("audit", "dead-letters") == 2
        assert shard.cursor_of("decide", "facts-extracted") == 0
        assert (shard.seen("decide", ["m"]), shard.seen("audit", ["m"])) == (set(), {"m"})
    finally:
        shard.close()
