"""A memory that was updated is dated by its newest statement; the first date stands beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.stores.shard import Shard
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.messages import published, turn
from tests.spoken_model import ScriptedModel, spoken

FIRST = datetime(2026, 1, 5, 12, tzinfo=UTC)
NEWEST = datetime(2026, 2, 7, 12, tzinfo=UTC)
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
