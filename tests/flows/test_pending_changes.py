"""A change that waits for a person can always be decided, whatever became of its memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest import Memory
from palimpsest.schemas.commands import (
    ApplyProposalsCommand,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
)
from tests.harness import CAREFUL, FULL, Pipeline
from tests.unit.test_order_of_statements import Said, active, loaded, past, pending, say

GRAZ, PORTO = (2023, "I live in Graz."), (2025, "I live in Porto.")
"""The home that is known, and the one that waits."""


def of_text(pipeline: Pipeline, text: str) -> str:
    [key] = pipeline.values("SELECT memory_id FROM memory_rows WHERE content = ?", text)
    return str(key)


def approved(pipeline: Pipeline, *ids: str, first: int, force: bool = False) -> list[str]:
    pipeline.command(
        ApplyProposalsCommand(item_ids=ids, reason="she moved", force=force), first=first
    )
    pipeline.run()
    error, results = pipeline.result(first)
    assert error is None
    return [each["status"] for each in results]


def test_a_change_of_anything_but_the_text_is_no_conflict(tmp_path: Path) -> None:
    with loaded(tmp_path, [GRAZ, PORTO], CAREFUL) as pipeline:
        graz = of_text(pipeline, "Ana lives in Graz.")
        tagged = MemoryPatch(memory_id=graz, tags=("home",), importance=0.9)
        pipeline.command(ModifyCommand(patches=(tagged,), reason="sorted"))
        pipeline.run()
        assert approved(pipeline, *pending(pipeline), first=2) == ["updated"]
        assert [row[0] for row in active(pipeline)] == ["Ana lives in Porto."]
        assert pipeline.balance().holds


def test_what_its_memory_says_now_is_changed_only_by_force(tmp_path: Path) -> None:
    with loaded(tmp_path, [GRAZ, PORTO], CAREFUL) as pipeline:
        graz = of_text(pipeline, "Ana lives in Graz.")
        said = MemoryPatch(memory_id=graz, content="Ana lives in Vienna.")
        pipeline.command(ModifyCommand(patches=(said,), reason="corrected"))
        pipeline.run()
        [waiting] = pending(pipeline)
        assert approved(pipeline, waiting, first=2) == ["version_conflict"]
        assert [row[0] for row in active(pipeline)] == ["Ana lives in Vienna."]
        assert approved(pipeline, waiting, first=3, force=True) == ["updated"]
        assert [row[0] for row in active(pipeline)] == ["Ana lives in Porto."]
        assert pending(pipeline) == []
        assert pipeline.balance().holds


def test_the_statement_outlives_its_memory(tmp_path: Path) -> None:
    with loaded(tmp_path, [GRAZ, PORTO], CAREFUL) as pipeline:
        graz = of_text(pipeline, "Ana lives in Graz.")
        pipeline.command(ForgetCommand(memory_ids=(graz,), reason="wrong"))
        pipeline.run()
        assert approved(pipeline, *pending(pipeline), first=2) == ["added"]
        assert active(pipeline) == [("Ana lives in Porto.", 2025, 2025)]
        assert pending(pipeline) == []
        assert pipeline.balance().holds


def test_two_changes_are_approved_one_by_one(tmp_path: Path) -> None:
    said = [(2020, "I work at Lidl."), (2021, "I quit Lidl."), (2022, "I work at Bosch.")]
    with loaded(tmp_path, said, CAREFUL) as pipeline:
        waiting = {
            row["content"]: row["item_id"]
            for row in pipeline.rows("SELECT content, item_id FROM held_proposals")
        }
        assert approved(pipeline, waiting["Ana quit Lidl."], first=1) == ["updated"]
        assert approved(pipeline, waiting["Ana works at Bosch."], first=2) == ["added"]
        assert [row[0] for row in active(pipeline)] == ["Ana quit Lidl.", "Ana works at Bosch."]
        assert pipeline.balance().holds


@pytest.mark.parametrize("hard", [False, True])
def test_a_repeat_brings_nothing_forgotten_back(tmp_path: Path, hard: bool) -> None:
    with loaded(tmp_path, [GRAZ, PORTO], CAREFUL) as pipeline:
        turn = of_text(pipeline, PORTO[1])
        pipeline.command(ForgetCommand(memory_ids=(turn,), reason="private", hard=hard))
        pipeline.run()
        say(pipeline, [(2026, GRAZ[1])])
        assert [row[0] for row in active(pipeline)] == ["Ana lives in Graz."]
        assert past(pipeline) == []
        assert pipeline.balance().holds


def test_later_statements_that_waited_wait_for_each_other(tmp_path: Path) -> None:
    said: list[Said] = [
        (2020, "I work at Lidl."), (2022, "I work at Bosch."), (2023, "I work at Siemens."),
    ]  # fmt: skip
    with loaded(tmp_path, said, FULL) as pipeline:
        assert len(pending(pipeline)) == 2
        say(pipeline, [(2021, "I quit Lidl.")])
        assert [row[0] for row in active(pipeline)] == ["Ana quit Lidl.", "Ana works at Bosch."]
        [siemens] = pending(pipeline)
        assert approved(pipeline, siemens, first=1) == ["updated"]
        assert [row[0] for row in active(pipeline)] == ["Ana quit Lidl.", "Ana works at Siemens."]
        assert pipeline.balance().holds


@pytest.mark.parametrize(
    "said", ["My aunt says I quit Lidl.", "I quit Lidl, as far as my aunt knows."]
)
def test_what_is_not_all_that_was_said_settles_nothing(tmp_path: Path, said: str) -> None:
    known: list[Said] = [(2022, "I work at Bosch."), (2020, "I work at Lidl.")]
    with loaded(tmp_path, [*known, (2021, said)], FULL, [1]) as pipeline:
        assert len(pending(pipeline)) == 1
        assert past(pipeline) == []


def test_it_is_listed_with_what_became_of_its_memory(tmp_path: Path) -> None:
    settings = {"embedding.provider": "hashing", "llm.provider": "rules"}
    with Memory(tmp_path, scope="ana", settings=settings, wait_seconds=120.0) as memory:

        def listed() -> tuple[str | None, str]:
            [found] = memory.proposals().proposals
            return found.memory, found.state

        for year, text in (GRAZ, PORTO):
            turn = {"content": text, "speaker": "Ana", "occurred_at": f"{year}-01-01T10:00:00Z"}
            memory.add([turn], wait=False)
            memory.wait_until_processed()
        [fact] = [each for each in memory.list().memories if each.type != "episodic"]
        assert listed() == ("Ana lives in Graz.", "ready")
        memory.modify(fact.id, reason="sorted", tags=["home"])
        assert listed() == ("Ana lives in Graz.", "ready")
        memory.modify(fact.id, reason="sorted", pinned=True)
        assert listed() == ("Ana lives in Graz.", "pinned")
        memory.modify(fact.id, reason="sorted", pinned=False, content="Ana lives in Vienna.")
        assert listed() == ("Ana lives in Vienna.", "version_conflict")
        memory.modify(fact.id, reason="sorted", content="Ana lives in Graz.")
        assert listed() == ("Ana lives in Graz.", "ready")
        memory.forget([fact.id], reason="wrong")
        assert listed() == (None, "target_gone")
        [added] = memory.apply_proposals(all=True, reason="she moved").changes
        assert (added.status, memory.get(added.memory_id or "").content) == (
            "added", "Ana lives in Porto.",
        )  # fmt: skip


@pytest.mark.parametrize("hard", [False, True])
def test_what_was_forgotten_waits_for_nobody(tmp_path: Path, hard: bool) -> None:
    """Nor is it shown beside the memory, until its turn is recovered."""
    settings = {"embedding.provider": "hashing", "llm.provider": "rules"}
    with Memory(tmp_path, scope="ana", settings=settings, wait_seconds=120.0) as memory:

        def shown() -> tuple[int, int, bool, bool]:
            block = memory.context("Where does Ana live?", session_id="s")
            assert block is not None
            listed = memory.list().memories
            marks = [mark for each in listed for mark in each.marks]
            pending = memory.status().pending
            waits = "waits for review" in block.text
            return len(memory.proposals().proposals), len(marks), bool(pending), waits

        for year, text in (GRAZ, PORTO):
            turn = {"content": text, "speaker": "Ana", "occurred_at": f"{year}-01-01T10:00:00Z"}
            memory.add([{**turn, "session_id": "s"}], wait=False)
            memory.wait_until_processed()
        assert shown() == (1, 2, True, True)
        [porto] = [each for each in memory.list().memories if each.content == PORTO[1]]
        change = memory.erase if hard else memory.forget
        change([porto.id], reason="private")
        assert shown() == (0, 0, False, False)
        if not hard:
            memory.recover(porto.id)
            assert shown() == (1, 2, True, True)


def test_what_an_edit_took_back_waits_no_more(tmp_path: Path) -> None:
    settings = {"embedding.provider": "hashing", "llm.provider": "rules"}
    with Memory(tmp_path, scope="ana", settings=settings, wait_seconds=120.0) as memory:

        def add(content: str, year: int, **more: str) -> None:
            at = f"{year}-01-01T10:00:00Z"
            memory.add([{"content": content, "speaker": "Ana", "occurred_at": at, **more}])
            memory.wait_until_processed()

        add("I live in Graz.", 2020)
        add("I live in Porto with my brother.", 2022, turn_id="edited")
        assert [each.fact for each in memory.proposals().proposals] == [
            "Ana lives in Porto with their brother."
        ]
        add("I live in Lyon.", 2022, turn_id="edited", revised_at="2022-01-02T10:00:00Z")
        assert [each.fact for each in memory.proposals().proposals] == ["Ana lives in Lyon."]
        [graz] = [each for each in memory.list().memories if each.content == "Ana lives in Graz."]
        assert [mark.text for mark in graz.marks] == ["Ana lives in Lyon."]
        # Nor does it come back as what held until then.
        add("I live in Graz.", 2024)
        assert not [each for each in memory.list().memories if "Porto" in each.content]
        assert memory.status().balance["holds"]
