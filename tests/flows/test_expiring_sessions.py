"""Sessions come and expire day by day, and the store does not grow by them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from palimpsest.schemas.session_rows import ShortTermRow
from palimpsest.stores.shard import DATABASE_FILE
from palimpsest.streams.store_port import ExpireShortTerm, Load, Progress, Put
from tests.memory_rows import open_shard
from tests.messages import BEGIN

DAYS, SESSIONS, BATCH = 4, 6_000, 3_000
"""25,000 a day take ten times as long, and come to the same."""


def test_the_store_does_not_grow_by_sessions_that_expire(tmp_path: Path) -> None:
    """Each day's sessions live a day; opening the store anew writes what a checkpoint would."""
    sizes, rows = [], []
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
    assert rows == [SESSIONS] * DAYS
    # Of the second day the file has the first one's pages still; from then on it uses them again.
    # How full its last pages are depends on the moment of its checkpoints.
    assert max(sizes[2:]) <= sizes[1] * 1.25, sizes
