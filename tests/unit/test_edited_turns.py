"""A turn whose text was edited where it was said has its newest text, and facts of that."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest.schemas.commands import ConfirmCommand, ForgetCommand, MemoryPatch, ModifyCommand
from palimpsest.schemas.identity import turn_memory_id
from tests.erased_bytes import where
from tests.flows.test_erased_fields import execute
from tests.harness import FULL, Pipeline, differing, pipeline_settings
from tests.messages import turn

TURN = turn_memory_id("ana", "t1")


def day(number: int) -> datetime:
    return datetime(2026, 3, number, tzinfo=UTC)


def said(folder: Path, *texts: tuple[str, int | None]) -> Pipeline:
    """A pipeline that took these texts of one turn, each edited on that day of March."""
    pipeline = Pipeline(folder, pipeline_settings(FULL))
    for text, edited in texts:
        say(pipeline, text, edited)
    return pipeline


def say(pipeline: Pipeline, text: str, edited: int | None, **fields: Any) -> None:
    revised_at = None if edited is None else day(edited)
    pipeline.ingest(turn(text, 1, revised_at=revised_at, **fields))
    pipeline.run()


def facts(pipeline: Pipeline) -> list[str]:
    return pipeline.values(
        "SELECT content FROM memory_rows WHERE NOT is_deleted AND type <> 'episodic' ORDER BY 1"
    )


def text(pipeline: Pipeline) -> str:
    [found] = pipeline.values("SELECT content FROM memory_rows WHERE memory_id = ?", TURN)
    return str(found)


def test_the_newest_text_is_current_and_facts_are_drawn_again(tmp_path: Path) -> None:
    with said(tmp_path, ("I live in Graz.", None), ("I live in Linz.", 4)) as pipeline:
        assert text(pipeline) == "I live in Linz."
        assert facts(pipeline) == ["Ana lives in Linz."]
        archived = pipeline.values("SELECT content FROM memory_archive ORDER BY 1")
        assert archived == ["Ana lives in Graz.", "I live in Graz."]
        assert pipeline.dead_letters() == []
        assert pipeline.balance().holds


@pytest.mark.parametrize("edited", [None, 3])
def test_an_earlier_text_changes_nothing(tmp_path: Path, edited: int | None) -> None:
    with said(tmp_path, ("I live in Linz.", 4), ("I live in Graz.", edited)) as pipeline:
        assert text(pipeline) == "I live in Linz."
        assert facts(pipeline) == ["Ana lives in Linz."]
        assert pipeline.dead_letters() == []
        assert pipeline.balance().holds


def test_an_edit_may_be_taken_back(tmp_path: Path) -> None:
    edits = [("I live in Graz.", None), ("I live in Linz.", 4), ("I live in Graz.", 5)]
    with said(tmp_path, *edits) as pipeline:
        assert text(pipeline) == "I live in Graz."
        assert facts(pipeline) == ["Ana lives in Graz."]


def test_every_order_of_edits_ends_with_the_newest(tmp_path: Path) -> None:
    with said(tmp_path, ("I live in Rome.", 6), ("I live in Linz.", 4)) as pipeline:
        say(pipeline, "I live in Graz.", None)
        assert (text(pipeline), facts(pipeline)) == ("I live in Rome.", ["Ana lives in Rome."])


def told_changes(pipeline: Pipeline) -> list[Any]:
    rows = "SELECT old_content || ' > ' || new_content FROM history_rows WHERE memory_id = ?"
    return pipeline.values(f"{rows} AND event = 'modified' ORDER BY created_at, rowid", TURN)


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        (
            [("Graz", None), ("Eisenstadt", 6), ("Linz", 4)],
            ["Graz > Eisenstadt", "Linz > Eisenstadt"],
        ),
        (
            [("Eisenstadt", 6), ("Linz", 4), ("Graz", None)],
            ["Linz > Eisenstadt", "Graz > Eisenstadt"],
        ),
        (
            [("Graz", None), ("Eisenstadt", 6), ("Linz", 4), ("Linz", 4)],
            ["Graz > Eisenstadt", "Linz > Eisenstadt"],
        ),
        (
            [("Graz", None), ("Eisenstadt", 6), ("Graz", None), ("Eisenstadt", 4)],
            ["Graz > Eisenstadt"],
        ),
    ],
)
def test_an_earlier_text_that_arrives_later_is_in_the_history(
    tmp_path: Path, edits: list[tuple[str, int | None]], expected: list[str]
) -> None:
    with said(tmp_path, *edits) as pipeline:
        assert text(pipeline) == "Eisenstadt"
        assert told_changes(pipeline) == expected
        assert pipeline.dead_letters() == []
        assert pipeline.balance().holds
        pipeline.command(ForgetCommand(memory_ids=(TURN,), cascade=True, hard=True, reason="no"))
        execute(pipeline)
        assert where(tmp_path, "Graz", "Linz", "Eisenstadt") == []


def test_an_earlier_text_of_what_a_person_changed_is_not_kept(tmp_path: Path) -> None:
    with said(tmp_path, ("I have a dog.", 4)) as pipeline:
        patch = MemoryPatch(memory_id=TURN, content="I have a pet.")
        pipeline.command(ModifyCommand(patches=(patch,), reason="private"))
        pipeline.run()
        say(pipeline, "I have a dog called Rex.", 3)
        assert text(pipeline) == "I have a pet."
        assert told_changes(pipeline) == ["I have a dog. > I have a pet."]


def test_without_an_edit_another_text_stays_a_conflict(tmp_path: Path) -> None:
    with said(tmp_path, ("I live in Graz.", None), ("I live in Linz.", None)) as pipeline:
        assert text(pipeline) == "I live in Graz."
        [dead] = pipeline.dead_letters()
        assert "turn_id_conflict" in dead.reason


def test_an_edit_by_somebody_else_is_a_conflict(tmp_path: Path) -> None:
    with said(tmp_path, ("I live in Graz.", None)) as pipeline:
        say(pipeline, "I live in Linz.", 4, speaker="Ben")
        assert text(pipeline) == "I live in Graz."
        assert len(pipeline.dead_letters()) == 1


def test_what_else_supports_a_fact_keeps_it(tmp_path: Path) -> None:
    with said(tmp_path, ("I have a dog.", None)) as pipeline:
        pipeline.ingest(turn("I have a dog.", 2))
        pipeline.run()
        say(pipeline, "I have a cat.", 4)
        assert facts(pipeline) == ["Ana has a cat.", "Ana has a dog."]


@pytest.mark.parametrize(
    ("again", "edited", "left"),
    [
        ((), "Never mind.", "Ana lives in Oslo."),
        ((), "I live in Lisbon now.", "Ana lives in Lisbon."),
        ((), "I live in Oslo now.", "Ana lives in Oslo."),
        ((), "I live in Bergen now!", "Ana lives in Bergen."),
        (("Ana lives in Bergen.",), "Never mind.", "Ana lives in Bergen."),
        (("Ana lives in Bergen.",), "I live in Lisbon now.", "Ana lives in Lisbon."),
    ],
)
def test_a_memory_that_the_text_changed_says_again_what_another_turn_says(
    tmp_path: Path, again: tuple[str, ...], edited: str, left: str
) -> None:
    """Nobody says any more that Ana moved, unless somebody else said so, too."""
    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as pipeline:
        pipeline.ingest(turn("I live in Oslo.", 2))
        pipeline.run()
        say(pipeline, "I live in Bergen now.", None)
        for number, text in enumerate(again, 3):
            pipeline.ingest(turn(text, number, speaker="Ben"))
            pipeline.run()
        assert facts(pipeline) == ["Ana lives in Bergen."]
        say(pipeline, edited, 4)
        assert facts(pipeline) == [left]
        before = pipeline.state_by_table()
        assert pipeline.balance().holds
    shutil.copytree(tmp_path / "live" / "log", tmp_path / "anew" / "log")
    with Pipeline(tmp_path / "anew", pipeline_settings(FULL)) as anew:
        anew.run("decide").run("apply-writes").run()
        assert set(differing(anew.state_by_table(), before)) <= {"proposals"}


def test_what_a_person_confirmed_stays(tmp_path: Path) -> None:
    with said(tmp_path, ("I have a dog.", None)) as pipeline:
        [fact] = pipeline.values("SELECT memory_id FROM memory_rows WHERE type <> 'episodic'")
        pipeline.command(ConfirmCommand(memory_id=fact, reason="sure"))
        pipeline.run()
        say(pipeline, "I have a cat.", 4)
        assert facts(pipeline) == ["Ana has a cat.", "Ana has a dog."]


def test_a_forgotten_turn_stays_forgotten(tmp_path: Path) -> None:
    with said(tmp_path, ("I have a dog.", None)) as pipeline:
        pipeline.command(ForgetCommand(memory_ids=(TURN,), cascade=True, reason="private"))
        pipeline.run()
        say(pipeline, "I have a cat.", 4)
        assert facts(pipeline) == []
        assert text(pipeline) == "I have a dog."
        assert pipeline.balance().holds


def test_what_a_person_made_of_a_turn_stays(tmp_path: Path) -> None:
    with said(tmp_path, ("I have a dog.", None)) as pipeline:
        patch = MemoryPatch(memory_id=TURN, content="I have a dog and a hen.")
        pipeline.command(ModifyCommand(patches=(patch,), reason="more"))
        pipeline.run()
        say(pipeline, "I have a cat.", 4)
        assert text(pipeline) == "I have a dog and a hen."


def test_a_rebuild_gives_the_same(tmp_path: Path) -> None:
    edits = [("I live in Graz.", None), ("I live in Linz.", 4)]
    with said(tmp_path / "a", *edits) as one, said(tmp_path / "b", *edits) as other:
        assert one.state_by_table() == other.state_by_table()


@pytest.mark.parametrize(
    "edits",
    [
        [("I live in Graz.", None), ("I live in Linz.", 4)],
        [("I live in Graz.", None), ("I live in Graz.", 3)],
        [("I live in Graz.", None), ("I live in Linz.", 4), ("I live in Graz.", 5)],
        [("I live in Linz.", 4), ("I live in Graz.", None)],
        [("I live in Graz.", None), ("I live in Linz.", 4), ("I live in Graz again.", 3)],
    ],
)
def test_what_is_left_of_an_erased_one_gives_the_same(
    tmp_path: Path, edits: list[tuple[str, int | None]]
) -> None:
    with said(tmp_path / "live", *edits) as pipeline:
        command = ForgetCommand(memory_ids=(TURN,), cascade=True, hard=True, reason="asked")
        pipeline.command(command)
        execute(pipeline)
        assert where(tmp_path / "live", "Graz", "Linz") == []
        before = pipeline.state_by_table()
    assert rebuilt_differs(tmp_path, before) <= {"proposals"}


def test_what_was_refused_of_an_erased_one_is_refused_again(tmp_path: Path) -> None:
    """An edit by somebody else, and one that came after the turn was forgotten."""
    with said(tmp_path / "live", ("I live in Linz.", 4)) as pipeline:
        say(pipeline, "I live in Rome.", 5, speaker="Ben")
        say(pipeline, "I live in Rome.", 4, speaker="Ben")
        pipeline.command(ForgetCommand(memory_ids=(TURN,), cascade=True, reason="private"))
        pipeline.run()
        say(pipeline, "I live in Graz.", 6)
        command = ForgetCommand(memory_ids=(TURN,), cascade=True, hard=True, reason="asked")
        pipeline.command(command, first=2)
        execute(pipeline)
        assert where(tmp_path / "live", "Graz", "Linz") == []
        before = pipeline.state_by_table()
    assert rebuilt_differs(tmp_path, before) <= {"proposals"}


def rebuilt_differs(folder: Path, before: dict[str, Any]) -> set[str]:
    """The tables that a rebuild of the `live` log gives other than `before`."""
    shutil.copytree(folder / "live" / "log", folder / "anew" / "log")
    with Pipeline(folder / "anew", pipeline_settings(FULL)) as again:
        again.run("decide").run("apply-writes").run()
        assert again.balance().holds
        return set(differing(again.state_by_table(), before))


def test_an_erased_one_keeps_its_edits_beside_others_of_the_same_texts(tmp_path: Path) -> None:
    """Each of its texts was said in other turns, too, which are erased with it."""
    with said(tmp_path / "live", ("I live in Graz.", None)) as pipeline:
        for number, text in enumerate(("I live in Graz.", "I live in Linz."), start=2):
            pipeline.ingest(turn(text, number))
        pipeline.run()
        say(pipeline, "I live in Linz.", 4)
        say(pipeline, "I live in Graz.", 5)
        ids = tuple(turn_memory_id("ana", f"t{number}") for number in (1, 2, 3))
        pipeline.command(ForgetCommand(memory_ids=ids, cascade=True, hard=True, reason="asked"))
        execute(pipeline)
        assert where(tmp_path / "live", "Graz", "Linz") == []
        before = pipeline.state_by_table()
    assert rebuilt_differs(tmp_path, before) <= {"proposals"}
