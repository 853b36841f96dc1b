"""A text that is remembered again: what the request says beyond the text is kept, and another
person's words are another memory."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
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
    RecoverCommand,
    RememberCommand,
)
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.messages import EDITION
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.topics import CACHE_INVALIDATIONS
from tests.harness import Pipeline
from tests.messages import BEGIN
from tests.unit.by_hand import Store, memory
from tests.unit.commands_by_hand import AGENT, TEA, execute, result

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
    driven = execute(command, Store.of(known))
    [row] = driven.rows(MemoryRow)
    assert tuple(getattr(row, name) for name in names) == values
    assert (row.memory_id, row.version, row.content) == ("tea", 4, TEA.content)
    found = result(driven)
    assert (found["deduped"], found["status"], found["version"]) == (True, "updated", 4)
    assert found["why"] == f"the text was known; changed: {', '.join(names)}"
    assert driven.ends() == [("modified", "remembered again")]
    again = execute(command, Store.of(row))
    assert result(again) == {"id": "tea", "deduped": True, "version": 4}


@pytest.mark.parametrize("own", [("manual", None), ("shop", None), ("shop", "other")])
def test_an_item_of_another_program_keeps_its_metadata_apart(own: tuple[str, str | None]) -> None:
    """Two items with one text: what the second is goes to a memory of its own, if at all."""
    known = replace(TEA, metadata='{"key": 1}', source_type=own[0], source_id=own[1])
    wish = {"source_type": "shop", "metadata": {"key": 2, "new": 3}, "project": "p", "type": "rule"}
    for source_id in (None, "item"):
        command = RememberCommand(content=TEA.content, source_id=source_id, **wish)
        driven = execute(command, Store.of(known))
        assert result(driven) == {"id": "tea", "deduped": True, "version": 3}
        assert driven.rows(MemoryRow) == []
    same = replace(known, source_type="shop", source_id="item")
    command = RememberCommand(content=TEA.content, source_id="item", **wish)
    assert result(execute(command, Store.of(same)))["status"] == "updated"


def test_nothing_that_a_known_memory_has_gets_lost() -> None:
    known = replace(TEA, pinned=True, importance=1.0, tags=("a",), project="p", metadata='{"k": 1}')
    driven = execute(RememberCommand(content=TEA.content), Store.of(known))
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
    driven = execute(RememberCommand(content=known.content, who="Ana"), Store.of(known))
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
        [event] = execute(gone, Store.of(TEA), edition=edition).outcomes()
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


# --- what a text says of itself --------------------------------------------------------------

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)
WEEK = timedelta(days=7)


def end(row: MemoryRow) -> str | None:
    assert (row.temporal_kind == "temporal") == (row.valid_until is not None)
    return None if row.valid_until is None else row.valid_until.isoformat()


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("The office is closed until 14 May 2026", "2026-05-14"),
        ("The code 4711 is valid until Friday.", "2026-03-06"),
        ("The offer expires tomorrow at 9", "2026-03-03"),
        ("Das Büro ist bis 14. Mai 2026 geschlossen", "2026-05-14"),
        ("オフィスは5月14日まで閉まっています。", "2026-05-14"),
        ("My mother and my father are here until Friday", "2026-03-06"),
        ("The office is closed until 14 May 2026. Ana has the key.", None),
        ("The office is closed until May 14. Ana has the key.", None),
        ("オフィスは5月14日まで閉まっています。アナは鍵を持っています。", None),
        ("The office is closed until 14 May and Ana has the key", None),
        ("- closed until Friday\n- Ana has the key", None),
        ("Ana works until 5 every day", None),
        ("Ana was here until Friday", None),
        ("The code does not expire on Friday", None),
        ("If it rains the shop is closed until Friday", None),
        ('Ana said "the shop was closed until Friday"', None),
        (f"The office is closed until 14 May 2026{' indeed' * 400}", None),
    ],
)
def test_a_text_that_says_when_it_ends_is_temporal(text: str, day: str | None) -> None:
    [row] = execute(RememberCommand(content=text), occurred_at=MONDAY).rows(MemoryRow)
    assert end(row) == (f"{day}T23:59:59+00:00" if day else None)
    [before] = execute(RememberCommand(content=text), edition=1, occurred_at=MONDAY).rows(MemoryRow)
    assert end(before) is None


@pytest.mark.parametrize(
    ("text", "categories"),
    [
        ("I live in Lisbon and I am allergic to nuts.", ("home", "health", "diet")),
        ("I live in Lisbon. I am allergic to nuts.", ("home", "health", "diet")),
        ('Ben said "I am allergic to nuts"', ()),
        ("Am I allergic to nuts?", ()),
        (f"I live in Lisbon. {'The sun is out. ' * 200}", ()),
    ],
)
def test_a_text_has_the_categories_of_all_that_it_states(
    text: str, categories: tuple[str, ...]
) -> None:
    [row] = execute(RememberCommand(content=text, who="Ana")).rows(MemoryRow)
    assert row.categories == categories
    [before] = execute(RememberCommand(content=text, who="Ana"), edition=1).rows(MemoryRow)
    assert before.categories == ()


def test_until_friday_is_another_friday_a_week_later() -> None:
    command = RememberCommand(content="The code 4711 is valid until Friday")
    [first] = execute(command, occurred_at=MONDAY).rows(MemoryRow)
    same = execute(command, Store.of(first), occurred_at=MONDAY + timedelta(days=1))
    assert same.rows(MemoryRow) == []
    later = execute(command, Store.of(first), occurred_at=MONDAY + WEEK)
    # Its result is that of any text which is known: it tells nothing of what the text says.
    assert result(later) == {"id": first.memory_id, "deduped": True, "version": 1}
    assert [end(row) for row in later.rows(MemoryRow)] == ["2026-03-13T23:59:59+00:00"]
    assert len(later.emitted(CACHE_INVALIDATIONS)) == 1
    wish = RememberCommand(content=command.content, tags=("door",))
    [tagged] = execute(wish, Store.of(first), occurred_at=MONDAY + WEEK).rows(MemoryRow)
    assert (tagged.version, end(tagged)) == (2, "2026-03-13T23:59:59+00:00")
    # An earlier record that comes later takes nothing back, nor does one of an earlier release.
    for given in ({"occurred_at": MONDAY - WEEK}, {"occurred_at": MONDAY + WEEK, "edition": 1}):
        assert execute(command, Store.of(first), **given).rows(MemoryRow) == []
    # What no machine may change keeps its end.
    pinned = Store.of(replace(first, pinned=True))
    assert execute(command, pinned, AGENT, occurred_at=MONDAY + WEEK).rows(MemoryRow) == []


def test_what_has_ended_holds_again_when_it_is_said_again() -> None:
    trip = memory("trip", "Ana is in Rome", valid_until=MONDAY, temporal_kind="temporal")
    command = RememberCommand(content=trip.content)
    [row] = execute(command, Store.of(trip), occurred_at=MONDAY + WEEK).rows(MemoryRow)
    assert (row.memory_id, row.version, end(row)) == ("trip", 1, None)


def test_a_corrected_text_ends_when_it_says_so() -> None:
    command = RememberCommand(content="The code is valid until Friday")
    [known] = execute(command, occurred_at=MONDAY).rows(MemoryRow)
    known = replace(known, categories=("doors",))
    for content, until in (
        ("The code is valid until 20 March", datetime(2026, 3, 20, 23, 59, 59, tzinfo=UTC)),
        ("I live in Lisbon", None),
        ("The door code is valid until Friday", known.valid_until),
    ):
        patch = MemoryPatch(memory_id=known.memory_id, content=content)
        change = ModifyCommand(patches=(patch,), reason="wrong")
        later = MONDAY + WEEK
        [row] = execute(change, Store.of(known), occurred_at=later).rows(MemoryRow)
        assert (row.valid_until, row.temporal_kind == "temporal") == (until, until is not None)
        assert row.categories == (("home", "doors") if "Lisbon" in content else ("doors",))
        # What something else has ended stays as it ended.
        past = replace(known, valid_from=BEGIN, valid_until=BEGIN)
        [row] = execute(change, Store.of(past), occurred_at=MONDAY).rows(MemoryRow)
        assert row.valid_until == BEGIN
        [row] = execute(change, Store.of(known), edition=1, occurred_at=MONDAY).rows(MemoryRow)
        assert (row.valid_until, row.categories) == (known.valid_until, ("doors",))


def test_a_hidden_sentence_takes_its_categories_along(tmp_path: Path) -> None:
    """A category would tell what was forgotten."""
    text = "I live in Lisbon. I am allergic to nuts."
    query = "SELECT categories FROM memory_rows WHERE why = 'explicit'"
    with Pipeline(tmp_path) as pipeline:
        pipeline.say("I am allergic to nuts.", speaker="Ana")
        pipeline.run()
        pipeline.command(RememberCommand(content=text, who="Ana"))
        pipeline.run()
        assert pipeline.values(query) == [["home", "health", "diet"]]
        [fact] = pipeline.values(
            "SELECT memory_id FROM memory_rows WHERE type = 'fact' AND why <> 'explicit'"
        )
        pipeline.command(ForgetCommand(memory_ids=(fact,), reason="asked"), first=2)
        pipeline.run()
        assert pipeline.values("SELECT content FROM memory_rows WHERE why = 'explicit'") == [
            "I live in Lisbon. [forgotten]"
        ]
        assert pipeline.values(query) == [["home"]]
        pipeline.command(RecoverCommand(memory_id=fact), first=3)
        pipeline.run()
        assert pipeline.values(query) == [["home", "health", "diet"]]
