"""Categories of new memories are called as the scope calls them already."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from palimpsest.schemas.commands import ApplyProposalsCommand, ForgetCommand
from palimpsest.schemas.rows.pipeline import CategoriesRow
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.stores.database.migrations import MIGRATIONS, migrate
from palimpsest.stores.database.tables import select
from palimpsest.stores.shard import DATABASE_FILE
from palimpsest.streams.models.base import Prompt
from palimpsest.streams.settings import Flags
from tests.harness import CAREFUL, FULL, Pipeline, differing, pipeline_settings
from tests.memory_rows import open_shard
from tests.spoken_model import ScriptedModel, spoken

NAME = "scope-categories"


def categorized(prompt: Prompt) -> str:
    """As `spoken`; what a part of the turn has after `#` are the categories of its fact."""
    if prompt.purpose != "extract":
        return spoken(prompt)
    facts = []
    for part in str(prompt.subject["content"]).split(" / "):
        text, _, names = part.partition(" #")
        facts.append({"content": text, "confidence": 0.9, "categories": names.split()})
    return json.dumps({"facts": facts, "entities": []})


def pipeline(folder: Path, flags: Flags = CAREFUL, batch: int = 256) -> Pipeline:
    settings = pipeline_settings(flags, "model")
    return Pipeline(folder, settings, ScriptedModel(categorized), batch=batch)


def of_memories(running: Pipeline, scope: str = "ana") -> dict[str, list[str]]:
    found = running.rows(
        "SELECT content, categories FROM memory_rows WHERE scope = ? AND type <> 'episodic'"
        " AND NOT is_deleted ORDER BY ALL",
        scope,
    )
    return {row["content"]: row["categories"] for row in found}


def names(running: Pipeline) -> list[list[str]]:
    return running.values("SELECT names FROM scope_categories ORDER BY scope")


TURNS = (
    "Ana paints the kitchen #home_improvement hobbies / Ana has a dog named Oscar #pets",
    "Ana builds a shelf of oak #home-improvements Hobby / Ana feeds two cats at night #Pet cats",
    "Ana drives an old Volvo #car / Ana looks after her uncle #care",
)


def test_new_names_are_folded_and_the_fact_keeps_its_own(tmp_path: Path) -> None:
    with pipeline(tmp_path) as running:
        running.say(*TURNS)
        running.say("Ben has a parrot #pet", scope="ben", first=9)
        running.run()
        assert of_memories(running) == {
            "Ana paints the kitchen": ["home_improvement", "hobbies"],
            "Ana has a dog named Oscar": ["pets"],
            "Ana builds a shelf of oak": ["home_improvement", "hobbies"],
            "Ana feeds two cats at night": ["pets", "cats"],
            "Ana drives an old Volvo": ["car"],
            "Ana looks after her uncle": ["care"],
        }
        # Another scope has words of its own.
        assert of_memories(running, "ben") == {"Ben has a parrot": ["pet"]}
        told = running.values("SELECT categories FROM fact_rows WHERE content LIKE '%oak'")
        assert told == [["home_improvements", "hobby"]]
        assert names(running) == [
            ["car", "care", "cats", "hobbies", "home_improvement", "pets"],
            ["pet"],
        ]
        assert running.balance().holds


@pytest.mark.parametrize("batch", [1, 2])
def test_batches_and_a_rebuild_come_to_the_same(tmp_path: Path, batch: int) -> None:
    with pipeline(tmp_path / "whole", FULL) as whole:
        whole.say(*TURNS, "Now Ana paints the cellar #crafts")
        whole.run()
        state, records = whole.state_by_table(), whole.records(MEMORY_WRITES)
    with pipeline(tmp_path / "parts", FULL, batch) as parts:
        for record in records:
            parts.clock.time = record.timestamp
            parts.raw(MEMORY_WRITES, record.value)
        parts.run("apply-writes")
        rebuilt = parts.state_by_table()
    assert [t for t in differing(state, rebuilt) if t in ("memory_rows", "scope_categories")] == []


def test_a_change_that_is_let_happen_later_is_folded_too(tmp_path: Path) -> None:
    with pipeline(tmp_path) as running:
        running.say("Ana has a dog named Oscar #pets")
        running.run()
        running.say("Now Ana has a dog named Rex #pet dogs", first=2)
        running.run()
        held = running.values("SELECT item_id FROM held_proposals")
        running.command(ApplyProposalsCommand(item_ids=tuple(held), reason="it is so"))
        running.run()
        assert of_memories(running) == {"Now Ana has a dog named Rex": ["pets", "dogs"]}
        assert names(running) == [["dogs", "pets"]]


def test_nothing_tells_of_a_category_of_what_was_erased(tmp_path: Path) -> None:
    with pipeline(tmp_path) as running:
        running.say("Ana leaves her husband #divorce family", "Ana has a sister #family")
        running.run()
        ids = running.values("SELECT memory_id FROM memory_rows WHERE content LIKE '%husband%'")
        running.command(ForgetCommand(memory_ids=tuple(ids), reason="asked for", hard=True))
        running.run()
        assert names(running) == [["family"]]


def test_a_store_of_before_knows_the_categories_of_its_memories(tmp_path: Path) -> None:
    folder, at = tmp_path / "shard", datetime(2026, 1, 5, tzinfo=UTC)
    folder.mkdir()
    known = [each.name for each in MIGRATIONS]
    with duckdb.connect(str(folder / DATABASE_FILE)) as before:
        migrate(before, known[: next(i for i, each in enumerate(known) if NAME in each)])
        for number, categories in enumerate((["work", "family"], ["family"], [])):
            before.execute(
                "INSERT INTO memory_rows BY NAME SELECT $id AS memory_id, 'ana' AS scope,"
                " 'fact' AS type, 'x' AS content, 'x' AS normalized_content,"
                " repeat('0', 64) AS content_hash, NULL AS dedup_key, 'e' AS embedding_key,"
                " 0.5 AS importance, 0.9 AS confidence, 0.1 AS decay_rate, false AS pinned,"
                " [] AS tags, $categories AS categories, '' AS who, '' AS why, '' AS session_id,"
                " '' AS source_type, 'persistent' AS temporal_kind, $at AS occurred_at,"
                " $at AS created_at, $at AS updated_at, '' AS updated_by, 0 AS access_count,"
                " 1 AS version, false AS is_deleted, '{}' AS metadata, 1 AS write_seq",
                {"id": f"m{number}", "categories": categories, "at": at},
            )
    shard = open_shard(folder)
    try:
        with shard.reading() as reader:
            rows = select(reader, CategoriesRow, "true", [])
        assert rows == [CategoriesRow(scope="ana", names=("family", "work"))]
    finally:
        shard.close()
