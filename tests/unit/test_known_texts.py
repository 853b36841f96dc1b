"""A text that is remembered again: what the request says beyond the text is kept, and another
person's words are another memory."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palimpsest.ops.requests import ExportRequest
from palimpsest.ops.service.exporting import export_scope
from palimpsest.ops.service.sources import Sources
from palimpsest.schemas.commands import (
    ForgetCommand,
    ImportCommand,
    MemoryPatch,
    ModifyCommand,
    RememberCommand,
)
from palimpsest.schemas.messages import EDITION, MemoryWrite
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.topics import CACHE_INVALIDATIONS
from palimpsest.streams.apply.apply_writes import apply_writes_stage
from palimpsest.streams.decide.proposal_policy import SAID_BY_ITS_SOURCE
from tests.harness import Pipeline, pipeline_settings
from tests.messages import BEGIN
from tests.unit.by_hand import (
    TURN,
    Store,
    candidate,
    context,
    drive,
    fact,
    memory,
    proposal,
    proposals,
    write_message,
)
from tests.unit.commands_by_hand import AGENT, TEA, carry_out, result

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
    again = result(carry_out(command, Store.of(row)))
    assert (again["id"], again["deduped"], again["version"]) == ("tea", True, 4)
    assert "status" not in again
    assert "not_merged" not in found | again


@pytest.mark.parametrize("own", [("manual", None), ("shop", None), ("shop", "other")])
def test_an_item_of_another_program_keeps_its_metadata_apart(own: tuple[str, str | None]) -> None:
    """Two items with one text: what the second is goes to a memory of its own, if at all."""
    known = replace(TEA, metadata='{"key": 1}', source_type=own[0], source_id=own[1])
    wish = {"source_type": "shop", "metadata": {"key": 2, "new": 3}, "project": "p", "type": "rule"}
    for source_id in (None, "item"):
        command = RememberCommand(content=TEA.content, source_id=source_id, **wish)
        driven = carry_out(command, Store.of(known))
        found = result(driven)
        assert (found["id"], found["deduped"], found["version"]) == ("tea", True, 3)
        apart = ["type", "project", *(["source_id"] if source_id else []), "metadata"]
        assert found["not_merged"] == apart
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
    assert (result(driven)["id"], result(driven)["not_merged"]) == ("tea", ["who"])


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


# --- in other words --------------------------------------------------------------------------

NUTS = "I am allergic to nuts"


@pytest.mark.parametrize("again", ["I'm allergic to nuts.", "I’m really allergic to the nuts!"])
def test_a_text_that_says_the_same_is_no_second_memory(tmp_path: Path, again: str) -> None:
    """By two writers at once, too: one batch has both commands."""
    with Pipeline(tmp_path) as pipeline:
        pipeline.command(
            RememberCommand(content=NUTS),
            RememberCommand(content=again),
            RememberCommand(content=f"critical: {again}", source_id="note-7"),
        )
        pipeline.run()
        assert pipeline.memories() == [NUTS]
        (_, first), (_, same), (_, pinned) = (pipeline.result(number) for number in (1, 2, 3))
        assert (first["deduped"], same["deduped"], same["id"]) == (False, True, first["id"])
        assert same["not_merged"] == ["content"]
        assert (pinned["id"], pinned["status"], pinned["importance"]) == (first["id"], "updated", 1)
        assert pinned["why"] == "the text was known; changed: pinned, importance"
        assert pinned["not_merged"] == ["content", "source_id"]


@pytest.mark.parametrize(
    ("known", "other", "who"),
    [
        (NUTS, "I'm not allergic to nuts", None),
        (NUTS, "I'm allergic to nuts", "Ben"),
        ("Der Code ist 4711", "Der Code ist auch 4712", None),
        ("Ana lent Ben a book", "Ben lent Ana the book", None),
        ("Je suis allergique aux noix", "Je ne suis pas allergique aux noix", None),
        ("東京に住んでいる", "東京に住んでいない", None),
        ('The code word is "tea"', 'The code word is not "tea"', None),
    ],
)
def test_what_says_something_else_is_a_memory_of_its_own(
    tmp_path: Path, known: str, other: str, who: str | None
) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.command(RememberCommand(content=known, who=who and "Ana"))
        pipeline.run()
        pipeline.command(RememberCommand(content=other, who=who), first=2)
        pipeline.run()
        assert not pipeline.result(2)[1]["deduped"]
        assert {known, other} <= {*pipeline.memories()}


def test_a_fact_of_a_turn_that_says_the_same_is_the_memory(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.say("I live in Porto.", speaker="Ana")
        pipeline.run()
        [fact] = pipeline.values("SELECT memory_id FROM memory_rows WHERE type = 'fact'")
        pipeline.command(RememberCommand(content="Ana really lives in Porto", tags=("home",)))
        pipeline.run()
        _, found = pipeline.result(1)
        assert (found["id"], found["status"], found["deduped"]) == (fact, "updated", True)
        assert found["categories"] == ["home"]


def test_an_older_record_compares_nothing() -> None:
    """A store that an earlier release has left has both memories; so must its rebuild."""
    known = memory("tea", "The permit is valid until 2027-03-31")
    command = RememberCommand(content="The permit is really valid until 2027-03-31.")
    store = Store.of(known, candidates=lambda ask: [candidate(known)])
    assert result(carry_out(command, store))["id"] == "tea"
    driven = carry_out(command, store, edition=None)
    [row] = driven.rows(MemoryRow)
    assert (row.temporal_kind, row.valid_until) == ("persistent", None)
    assert result(driven) == {"id": row.memory_id, "deduped": False, "version": 1}
    gone = ForgetCommand(memory_ids=("tea",), reason="wrong")
    for edition, content in ((EDITION, None), (None, TEA.content)):
        [event] = carry_out(gone, Store.of(TEA), edition=edition).outcomes()
        assert (event.old_content, event.new_content) == (TEA.content, content)


# --- how long it holds -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("The office is closed until 14 May 2026", "2026-05-14"),
        ("The code 4711 is valid until Friday.", "2026-03-06"),
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
    ],
)
def test_a_text_that_says_when_it_ends_is_temporal(text: str, end: str | None) -> None:
    monday = datetime(2026, 3, 2, 9, tzinfo=UTC)
    driven = carry_out(RememberCommand(content=text), occurred_at=monday)
    until = f"{end}T23:59:59+00:00" if end else None
    found = result(driven)
    assert found["valid_until"] == until
    assert found["temporal_kind"] == ("temporal" if end else "persistent")
    [row] = driven.rows(MemoryRow)
    assert (row.valid_until and row.valid_until.isoformat(), row.temporal_kind) == (
        until,
        found["temporal_kind"],
    )


def test_until_friday_is_another_friday_a_week_later() -> None:
    text, monday = "The code 4711 is valid until Friday", datetime(2026, 3, 2, 9, tzinfo=UTC)
    command = RememberCommand(content=text)
    [first] = carry_out(command, occurred_at=monday).rows(MemoryRow)
    same = result(carry_out(command, Store.of(first), occurred_at=monday + timedelta(days=1)))
    assert (same["version"], same["valid_until"][:10]) == (1, "2026-03-06")
    week = monday + timedelta(days=7)
    later = result(carry_out(command, Store.of(first), occurred_at=week))
    assert (later["id"], later["status"]) == (first.memory_id, "updated")
    assert (later["version"], later["valid_until"][:10]) == (2, "2026-03-13")
    # What no machine may change keeps its end.
    pinned = replace(first, pinned=True)
    kept = result(carry_out(command, Store.of(pinned), actor=AGENT, occurred_at=week))
    assert (kept["version"], kept["valid_until"][:10]) == (1, "2026-03-06")
    # Said again without an end, it holds again.
    gone = replace(memory("trip", "Ana is in Rome"), valid_until=monday, temporal_kind="temporal")
    again = RememberCommand(content="Ana is in Rome")
    back = result(carry_out(again, Store.of(gone), occurred_at=week))
    assert (back["id"], back["temporal_kind"], back["valid_until"]) == ("trip", "persistent", None)


def test_a_corrected_text_ends_when_it_says_so() -> None:
    monday = datetime(2026, 3, 2, 9, tzinfo=UTC)
    command = RememberCommand(content="The code is valid until Friday")
    [known] = carry_out(command, occurred_at=monday).rows(MemoryRow)
    for content, end in (
        ("The code is valid until 20 March", datetime(2026, 3, 20, 23, 59, 59, tzinfo=UTC)),
        ("The code is 4711", None),
        ("The door code is valid until Friday", known.valid_until),
    ):
        patch = MemoryPatch(memory_id=known.memory_id, content=content)
        change = ModifyCommand(patches=(patch,), reason="wrong")
        later = monday + timedelta(days=7)
        [row] = carry_out(change, Store.of(known), occurred_at=later).rows(MemoryRow)
        assert (row.valid_until, row.temporal_kind == "temporal") == (end, end is not None)
        # What something else has ended stays as it ended.
        past = replace(known, valid_from=BEGIN, valid_until=BEGIN)
        [row] = carry_out(change, Store.of(past), occurred_at=monday).rows(MemoryRow)
        assert row.valid_until == BEGIN
        [row] = carry_out(change, Store.of(known), edition=None, occurred_at=monday).rows(MemoryRow)
        assert row.valid_until == known.valid_until


# --- what its facts say of it ----------------------------------------------------------------


def test_a_text_has_the_categories_and_the_end_of_its_facts(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.command(RememberCommand(content="I live in Lisbon and I am allergic to nuts."))
        pipeline.run()
        assert pipeline.result(1)[1]["categories"] == []
        [row] = pipeline.rows("SELECT categories, version, valid_until FROM memory_rows")
        assert {"home", "health"} <= {*row["categories"]}
        assert (row["version"], row["valid_until"]) == (1, None)
        assert {*row["categories"]} <= {
            *pipeline.values("SELECT unnest(names) FROM scope_categories")
        }


@pytest.mark.parametrize("edition", [EDITION, None])
@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("The shop is shut till mid-May", BEGIN),
        ("The shop is shut till mid-May. Ana runs it.", None),
    ],
)
def test_the_end_that_a_model_reads_is_that_of_its_text(
    text: str, end: datetime | None, edition: int | None
) -> None:
    known = memory("note", text, categories=("work",))
    said = TURN.model_copy(update={"memory_id": "note", "content_hash": known.content_hash})
    drawn = fact(text, temporal_kind="temporal", valid_until=BEGIN, categories=("shops", "works"))
    none = proposal(text, "NONE", target_id="note", reason=SAID_BY_ITS_SOURCE, fact=drawn)
    write = MemoryWrite(write=proposals(none, turn=said), edition=edition)
    stage = apply_writes_stage(pipeline_settings())
    driven = drive(
        stage.process(write_message(write), context()), Store.of(known, categories=("work",))
    )
    rows = driven.rows(MemoryRow)
    if edition is None:
        assert rows == []
        return
    assert [(row.version, row.valid_until, row.categories) for row in rows] == [
        (1, end, ("work", "shops"))
    ]
    assert len(driven.emitted(CACHE_INVALIDATIONS)) == 1
