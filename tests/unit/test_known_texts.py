"""A text that is remembered again: what the request says beyond the text is kept, and another
person's words are another memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from palimpsest.ops.operations.answers import command_results, completed
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.requests import ExportRequest
from palimpsest.ops.service.exporting import export_scope
from palimpsest.schemas.commands import (
    ForgetCommand,
    ImportCommand,
    MemoryPatch,
    ModifyCommand,
    RememberCommand,
)
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.messages import EDITION
from palimpsest.schemas.rows.memories import MemoryRow
from tests.harness import Pipeline
from tests.unit.by_hand import Store
from tests.unit.commands_by_hand import TEA, carry_out, result

KIWI = "I am allergic to kiwi"


@pytest.mark.parametrize(
    ("wish", "names", "values"),
    [
        ({"content": f"critical: {TEA.content}"}, ("pinned", "importance"), (True, 1.0)),
        ({"content": f"[shop, tea]: {TEA.content}"}, ("tags",), (("old", "shop", "tea"),)),
        ({"pinned": True}, ("pinned",), (True,)),
        ({"importance": 0.1}, ("importance",), (0.1,)),
        ({"tags": ("old", "new")}, ("tags",), (("old", "new"),)),
        ({"type": "rule"}, ("type",), ("rule",)),
        ({"project": "garden"}, ("project",), ("garden",)),
        ({"metadata": {"b": 2}}, ("metadata",), ('{"a": 1, "b": 2}',)),
        ({"lineage": 3}, ("metadata",), ('{"a": 1, "lineage": 3}',)),
    ],
)
def test_a_known_text_gets_what_the_request_says(
    wish: dict[str, object], names: tuple[str, ...], values: tuple[object, ...]
) -> None:
    known = replace(TEA, tags=("old",), metadata='{"a": 1}')
    command = RememberCommand.model_validate({"content": known.content, **wish})
    driven = carry_out(command, Store.of(known))
    [row] = driven.rows(MemoryRow)
    assert tuple(getattr(row, name) for name in names) == values
    assert (row.memory_id, row.version, row.content) == ("tea", 4, TEA.content)
    found = result(driven)
    assert (found["deduped"], found["status"], found["version"]) == (True, "updated", 4)
    assert found["why"] == f"the text was known; changed: {', '.join(names)}"
    assert driven.ends() == [("modified", "remembered again")]
    again = carry_out(command, Store.of(row))
    assert result(again) == {"id": "tea", "deduped": True, "version": 4}


@pytest.mark.parametrize("own", [("manual", None), ("shop", None), ("shop", "other")])
def test_an_item_of_another_program_keeps_its_metadata_apart(own: tuple[str, str | None]) -> None:
    """Two items with one text: what the second is goes to a memory of its own, if at all."""
    known = replace(TEA, metadata='{"key": 1}', source_type=own[0], source_id=own[1])
    wish = {"source_type": "shop", "metadata": {"key": 2, "new": 3}, "project": "p", "type": "rule"}
    for source_id in (None, "item"):
        command = RememberCommand(content=TEA.content, source_id=source_id, **wish)
        driven = carry_out(command, Store.of(known))
        assert result(driven) == {"id": "tea", "deduped": True, "version": 3}
        assert driven.rows(MemoryRow) == []
    same = replace(known, source_type="shop", source_id="item")
    command = RememberCommand(content=TEA.content, source_id="item", **wish)
    assert result(carry_out(command, Store.of(same)))["status"] == "updated"


def test_nothing_that_a_known_memory_has_gets_lost() -> None:
    known = replace(TEA, pinned=True, importance=1.0, tags=("a",), project="p", metadata='{"k": 1}')
    driven = carry_out(RememberCommand(content=TEA.content), Store.of(known))
    assert driven.rows(MemoryRow) == []


@pytest.mark.parametrize("first", ["Ana", "ana", None])
def test_the_words_of_two_people_are_two_memories(tmp_path: Path, first: str | None) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.command(
            RememberCommand(content=KIWI, who=first),
            RememberCommand(content=KIWI, who="Ben"),
            RememberCommand(content=f"critical: {KIWI}", who="Ben"),
            RememberCommand(content=KIWI, who=first),
        )
        pipeline.run()
        rows = pipeline.rows(
            "SELECT memory_id, who, pinned FROM memory_rows WHERE content = ? AND NOT is_deleted"
            " AND why = 'explicit' ORDER BY pinned",
            KIWI,
        )
        assert [(row["who"], row["pinned"]) for row in rows] == [
            (rows[0]["who"], False),
            ("Ben", True),
        ]
        ben = rows[1]["memory_id"]
        tagged = ModifyCommand(patches=(MemoryPatch(memory_id=ben, tags=("x",)),), reason="r")
        pipeline.command(tagged, first=9)
        pipeline.run()
        _, [done] = pipeline.result(9)
        assert done["status"] == "updated"


def test_the_same_statement_about_someone_is_one_memory() -> None:
    known = replace(TEA, who="pipeline")
    driven = carry_out(RememberCommand(content=known.content, who="Ana"), Store.of(known))
    assert result(driven) == {"id": "tea", "deduped": True, "version": 3}


def test_an_import_keeps_both(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        people = ("Ana", "Ben")
        pipeline.command(*(RememberCommand(content=KIWI, who=who) for who in people))
        pipeline.run()
        known = (pipeline.settings, pipeline.log, {0: pipeline.shard}, 1, pipeline.embedding)
        path = tmp_path / "ana.ndjson"
        export_scope(Sources(*known, lambda _: None), ExportRequest("ana"), path)
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()][1:-1]
        numbered = [{"number": n, "line": line} for n, line in enumerate(lines, 2)]
        command = ImportCommand.model_validate({"from_scope": "ana", "lines": numbered})
        pipeline.command(command, command, first=3, scope="eve")
        pipeline.run()
        assert [pipeline.result(n, "eve")[1]["refused"] for n in (3, 4)] == [[], []]
        query = "SELECT who FROM memory_rows WHERE scope = 'eve' AND content = ? ORDER BY who"
        assert pipeline.values(query, KIWI) == ["Ana", "Ben"]


# --- what a change answers -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "stored", "added"),
    [
        (
            "remember",
            {"id": "m", "deduped": False, "version": 1},
            {
                "current_version": None,
                "new_version": 1,
                "dedup": {"action": "stored_new", "existing_id": None},
            },
        ),
        (
            "remember",
            {"id": "m", "deduped": True, "version": 2, "status": "updated"},
            {
                "current_version": 1,
                "new_version": 2,
                "dedup": {"action": "updated_existing", "existing_id": "m"},
            },
        ),
        (
            "remember",
            {"id": "m", "deduped": True, "version": 2},
            {
                "current_version": 2,
                "new_version": None,
                "dedup": {"action": "duplicate_exact", "existing_id": "m"},
            },
        ),
        (
            "modify",
            {"id": "m", "status": "updated", "version": 3, "embedded": False},
            {"current_version": 2, "new_version": 3, "content_changed": True},
        ),
        (
            "modify",
            {"id": "m", "status": "no_changes", "version": 3},
            {"current_version": 3, "new_version": None, "content_changed": False},
        ),
        (
            "modify",
            {"id": "m", "status": "version_conflict", "version": 3},
            {"current_version": 3, "new_version": None},
        ),
        (
            "recover",
            {"id": "m", "status": "recovered", "version": 3},
            {"current_version": 2, "new_version": 3},
        ),
        ("recover", {"id": "m", "status": "expired"}, {}),
        ("alias", {"status": "added", "entity_id": "m"}, {}),
    ],
)
def test_a_change_answers_its_versions_and_what_became_of_a_text(
    command: str, stored: dict[str, object], added: dict[str, object]
) -> None:
    assert completed(command, stored) == stored | added
    assert completed(command, [stored]) == [stored | added]


def test_the_event_of_a_deletion_has_no_new_content() -> None:
    gone = ForgetCommand(memory_ids=("tea",), reason="wrong")
    for edition, content in ((EDITION, None), (None, TEA.content)):
        [event] = carry_out(gone, Store.of(TEA), edition=edition).outcomes()
        assert (event.old_content, event.new_content) == (TEA.content, content)


def test_two_who_remember_one_text_are_told_how_it_is_stored(tmp_path: Path) -> None:
    """Also where both results are asked for at once, as by callers that wait together."""
    with Pipeline(tmp_path) as pipeline:
        pipeline.command(RememberCommand(content=KIWI), RememberCommand(content=KIWI))
        pipeline.run()
        known = (pipeline.settings, pipeline.log, {0: pipeline.shard}, 1, pipeline.embedding)
        ids = [derived_id("test-command", "ana", number) for number in (1, 2)]
        found = command_results(Sources(*known, lambda _: None), ids)
        [first, second] = (found[each]["result"] for each in ids)
    assert (first["dedup"]["action"], second["dedup"]["action"]) == (
        "stored_new",
        "duplicate_exact",
    )
    for each in (first, second):
        assert (each["importance"], each["temporal_kind"], each["valid_until"]) == (
            0.8,
            "persistent",
            None,
        )
        assert "diet" in each["categories"]
