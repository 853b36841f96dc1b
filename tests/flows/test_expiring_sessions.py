"""Sessions come and expire day by day, and the store does not grow by them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from palimpsest.schemas.rows.sessions import ShortTermRow
from palimpsest.stores.shard import DATABASE_FILE
from palimpsest.streams.store_port import ExpireShortTerm, Load, Progress, Put
from tests.memory_rows import open_shard
from tests.messages import BEGIN

DAYS, SESSIONS, BATCH = 14, 6_000, 3_000
"""25,000 a day take ten times as long, and come to the same."""


@pytest.mark.soak
def test_the_store_does_not_grow_by_sessions_that_expire(tmp_path: Path) -> None:
    """Each day's sessions live a day; opening the store anew writes what a checkpoint would."""
    sizes, rows, in_use = [], [], []
    for day in range(DAYS):
        shard = open_shard(tmp_path)
        for batch in range(SESSIONS // BATCH):
            at = BEGIN + timedelta(days=day, seconds=batch)
            unit = shard.unit()
            ids = [f"{day}-{batch}-{number}" for number in range(BATCH)]
            unit.prefetch([Load("ana", session_id=session_id) for session_id in ids])
            unit.stage([ExpireShortTerm(at)])
            unit.stage(
                [
                    Put(
                        ShortTermRow(
                            scope="ana",
                            session_id=session_id,
                            turns=tuple(f"{session_id}-{turn}" for turn in range(5)),
                            turns_expire_at=at + timedelta(hours=12),
                            summary=f"They talked of {session_id} and what comes of it. " * 4,
                            summary_expires_at=at + timedelta(hours=24),
                            expires_at=at + timedelta(hours=24),
                        )
                    )
                    for session_id in ids
                ]
            )
            unit.commit(Progress("test", {}, (), (), 0))
        with shard.reading() as reader:
            [(count,)] = reader.execute("SELECT count(*) FROM short_term_rows").fetchall()
        rows.append(count)
        shard.close()
        sizes.append((tmp_path / DATABASE_FILE).stat().st_size)
        in_use.append(blocks_in_use(tmp_path / DATABASE_FILE))
    assert rows == [SESSIONS] * DAYS
    # Of the second day the file has the first one's pages still; from then on it uses them again,
    # where they lie together: within the first week it has all that it will ever need.
    assert max(in_use[2:]) <= in_use[1] * 1.1, in_use
    assert max(sizes[7:]) <= max(sizes[:7]), sizes


def blocks_in_use(path: Path) -> int:
    """Of the file; the others are free for what comes."""
    with duckdb.connect(path, read_only=True) as connection:
        row = connection.execute("SELECT used_blocks FROM pragma_database_size()").fetchone()
    assert row is not None
    return int(row[0])
