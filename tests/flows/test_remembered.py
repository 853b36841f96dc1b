"""What is drawn from remembered texts and turns, and what of it goes when they are forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.operations.selection import PreviewForget
from palimpsest.schemas.commands import (
    ApplyProposalsCommand,
    Command,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    RememberCommand,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.identity import command_memory_id, forget_token, turn_memory_id
from palimpsest.streams.decide.proposal_policy import SAID_BY_ITS_SOURCE
from palimpsest.streams.runtime.runner import STEPS
from palimpsest.streams.settings import Flags
from tests.flows.scripted import assert_settled, scripted
from tests.harness import CAREFUL, FULL, Crash, Pipeline, differing, pipeline_settings
from tests.messages import commanded
from tests.sessions_by_hand import ask
from tests.spoken_model import ScriptedModel, spoken

TALK = "Ana lives in Oslo / Ana keeps bees at home / Ana > lives_in > Oslo"
FACTS = ["Ana keeps bees at home", "Ana lives in Oslo"]
TURN = turn_memory_id("ana", "t1")
SAVED = command_memory_id("ana", commanded(RememberCommand(content="x"), 1).id)


def forgotten(*ids: str, **fields: Any) -> ForgetCommand:
    return ForgetCommand(memory_ids=ids, reason="private", **fields)


def told(pipeline: Pipeline, kind: str) -> str:
    """The id of a turn, or of a remembered text, in which TALK is said."""
    if kind == "turn":
        pipeline.say(TALK)
        return TURN
    pipeline.command(RememberCommand(content=TALK))
    return SAVED


def test_a_remembered_text_is_the_memory_of_its_facts(tmp_path: Path) -> None:
    with scripted(tmp_path) as pipeline:
        pipeline.command(RememberCommand(content=TALK))
        pipeline.run()
        assert pipeline.memories() == [TALK]
        assert dict(pipeline.facts_settled()) == {("none", SAID_BY_ITS_SOURCE): 2}
        assert pipeline.values("SELECT DISTINCT memory_id FROM outcomes") == [SAVED]
        # The graph takes what it tells all the same.
        assert pipeline.values("SELECT count(*) FROM relations") == [1]
        assert_settled(pipeline)
        # It is no turn: none was accepted, none is shown to a model with the next ones.
        assert pipeline.balance().turns["accepted"] == 0


def test_the_same_text_again_is_not_extracted_again(tmp_path: Path) -> None:
    with scripted(tmp_path) as pipeline:
        pipeline.command(*[RememberCommand(content=TALK)] * 3)
        pipeline.run()
        assert pipeline.memories() == [TALK]
        assert pipeline.values("SELECT count(*) FROM extractions") == [1]


@pytest.mark.parametrize("word", ["Now", "Gone"])
def test_no_fact_changes_the_text_that_it_was_drawn_from(word: str, tmp_path: Path) -> None:
    text = f"Ana keeps bees at home in Oslo / {word} Ana keeps bees at home"
    with scripted(tmp_path, FULL) as pipeline:
        pipeline.command(RememberCommand(content=text))
        pipeline.run()
        assert pipeline.values(
            "SELECT content FROM memory_rows WHERE memory_id = ? AND version = 1", SAVED
        ) == [text]
        assert pipeline.memories() == [text]


@pytest.mark.parametrize("word", ["Now", "Gone"])
def test_a_remembered_text_takes_the_place_of_what_it_contradicts(
    word: str, tmp_path: Path
) -> None:
    text = f"{word} Ana lives in Bergen near the harbour"
    with scripted(tmp_path, FULL) as pipeline:
        pipeline.say("Ana lives in Oslo near the harbour")
        pipeline.run()
        [old] = pipeline.values("SELECT memory_id FROM memory_rows WHERE type = 'fact'")
        pipeline.command(RememberCommand(content=text))
        pipeline.run()
        assert pipeline.memories() == [text]
        assert pipeline.rows(
            "SELECT source_id, target_id FROM memory_edges WHERE relation_type = 'supersedes'"
        ) == [{"source_id": SAVED, "target_id": f"{old}@1"}]
        assert pipeline.facts_settled()[("deleted", f"it says {word}")] == 1
        assert_settled(pipeline)


def test_what_a_remembered_text_contradicts_waits_where_nothing_may_change(tmp_path: Path) -> None:
    old, text = "Ana lives in Oslo near the harbour", "Now Ana lives in Bergen near the harbour"
    with scripted(tmp_path) as pipeline:
        pipeline.say(old)
        pipeline.run()
        pipeline.command(RememberCommand(content=text))
        pipeline.run()
        assert pipeline.memories() == sorted([old, text])
        [held] = pipeline.rows("SELECT item_id, action FROM held_proposals")
        assert held["action"] == "DELETE"
        pipeline.command(
            ApplyProposalsCommand(item_ids=(held["item_id"],), reason="so it is"), first=2
        )
        pipeline.run()
        assert statuses(pipeline, 2) == ["deleted"]
        assert pipeline.memories() == [text]
        assert pipeline.values(
            "SELECT source_id FROM memory_edges WHERE relation_type = 'supersedes'"
        ) == [SAVED]
        assert_settled(pipeline)


@pytest.mark.parametrize("by", ["turn", "remembered"])
@pytest.mark.parametrize("flags", [FULL, CAREFUL])
def test_a_remembered_move_ends_the_home_that_was_known(
    by: str, flags: Flags, tmp_path: Path
) -> None:
    with Pipeline(tmp_path, pipeline_settings(flags, near=0.0, min_score=0.0)) as pipeline:
        if by == "turn":
            pipeline.say("I live in Lisbon.", speaker="Ana")
        else:
            pipeline.command(RememberCommand(content="I live in Lisbon.", who="Ana"), first=2)
        pipeline.run()
        [old] = pipeline.memories()
        pipeline.command(RememberCommand(content="I moved to Berlin.", who="Ana"))
        pipeline.run()
        kept = [] if flags == FULL else [old]
        assert pipeline.memories() == sorted(["I moved to Berlin.", *kept])
        superseding = "SELECT source_id FROM memory_edges WHERE relation_type = 'supersedes'"
        assert pipeline.values(superseding) == ([SAVED] if flags == FULL else [])
        assert pipeline.values("SELECT action FROM held_proposals") == (
            [] if flags == FULL else ["DELETE"]
        )
        assert_settled(pipeline)


def test_what_somebody_else_remembers_of_themselves_is_another_persons(tmp_path: Path) -> None:
    with Pipeline(tmp_path, pipeline_settings(FULL, near=0.0, min_score=0.0)) as pipeline:
        pipeline.command(RememberCommand(content="I live in Lisbon.", who="Ben"))
        pipeline.run()
        pipeline.command(RememberCommand(content="I moved to Berlin.", who="Ana"), first=2)
        pipeline.run()
        assert pipeline.memories() == ["I live in Lisbon.", "I moved to Berlin."]


def test_what_the_rules_draw_from_remembered_texts_makes_no_memories(tmp_path: Path) -> None:
    texts = sorted(
        [f"I live in Lisbon with my sister Nora{number}." for number in range(15)]
        + [
            f"Customer alice{number}@example.org subscribed to plan {number}."
            for number in range(15)
        ]
        + [
            f"I am allergic to nut number {number} and my cat is named Cat{number}."
            for number in range(15)
        ]
    )
    with Pipeline(tmp_path) as pipeline:
        pipeline.command(*(RememberCommand(content=text) for text in texts))
        pipeline.run()
        assert pipeline.memories() == texts
        ids = {
            row["content"]: row["memory_id"]
            for row in pipeline.rows("SELECT content, memory_id FROM memory_rows")
        }
        patch = MemoryPatch(memory_id=ids[texts[1]], content="Nora lives in Porto.")
        pipeline.command(forgotten(ids[texts[0]]), first=100)
        pipeline.command(ModifyCommand(patches=(patch,), reason="wrong"), first=101)
        pipeline.run()
        assert pipeline.memories() == sorted([*texts[2:], "Nora lives in Porto."])
        assert_settled(pipeline)


def test_a_text_that_was_corrected_meanwhile_brings_back_nothing(tmp_path: Path) -> None:
    with scripted(tmp_path) as pipeline:
        told(pipeline, "remembered")
        pipeline.run("normalize", "apply-writes").run("extract")
        patch = MemoryPatch(memory_id=SAVED, content="Ana lives in Bergen")
        pipeline.command(ModifyCommand(patches=(patch,), reason="she moved"), first=2)
        pipeline.run("normalize", "apply-writes")
        pipeline.run()
        assert pipeline.memories() == ["Ana lives in Bergen"]
        assert set(pipeline.facts_settled()) == {("skipped", "source_changed")}
        # That of the corrected text, and none of the text before.
        told_of = "SELECT name FROM relations JOIN known_entities ON entity_id = target_entity_id"
        assert pipeline.values(told_of) == ["Bergen"]
        assert_settled(pipeline)


# --- the fence --------------------------------------------------------------------------------

PLACES = ["stored", "extracted", "decided", "applied"]


def brought_to(pipeline: Pipeline, place: str) -> None:
    pipeline.run("normalize", "apply-writes")
    for stage, reached in zip(("extract", "decide", "apply-writes"), PLACES[1:], strict=True):
        if PLACES.index(place) >= PLACES.index(reached):
            pipeline.run(stage)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["turn", "remembered"])
def test_nothing_in_flight_outlives_what_is_forgotten(
    kind: str, place: str, tmp_path: Path
) -> None:
    """What is decided before the forget is known lies before it in the log: it is a memory then,
    for as long as it takes to read on, and goes with the cascade."""
    with scripted(tmp_path) as pipeline:
        source = told(pipeline, kind)
        brought_to(pipeline, place)
        pipeline.command(forgotten(source, cascade=True), first=2)
        pipeline.run("normalize", "apply-writes")
        assert pipeline.memories() == []
        pipeline.run()
        assert pipeline.memories() == []
        assert_settled(pipeline)
        if place in ("decided", "applied"):
            kept = "created" if kind == "turn" else "none"
            assert {event for event, _ in pipeline.facts_settled()} == {kept}
        else:
            assert set(pipeline.facts_settled()) == {("skipped", "source_forgotten")}
            assert pipeline.values("SELECT count(*) FROM relations") == [0]


@pytest.mark.parametrize("step", STEPS)
def test_the_fence_and_the_cascade_survive_a_stop(step: str, tmp_path: Path) -> None:
    def prepared(folder: Path) -> Pipeline:
        settings = pipeline_settings(FULL, "model")
        pipeline = Pipeline(folder, settings, ScriptedModel(spoken), batch=2)
        told(pipeline, "turn")
        pipeline.run()
        pipeline.command(RememberCommand(content="Ana sails / Ana sails in the fjord"))
        pipeline.run("normalize", "apply-writes").run("extract")
        pipeline.command(forgotten(TURN, SAVED, cascade=True), first=2)
        pipeline.run("normalize").run("decide")
        return pipeline

    with prepared(tmp_path / "whole") as pipeline:
        whole = pipeline.run().state_by_table()
        assert pipeline.memories() == []
    with prepared(tmp_path / "stopped") as pipeline:
        pipeline.crash_at("apply-writes", step)
        with pytest.raises(Crash):
            pipeline.run()
        pipeline.reopen().run()
        assert differing(pipeline.state_by_table(), whole) == []
        assert_settled(pipeline)


# --- the cascade ------------------------------------------------------------------------------


def statuses(pipeline: Pipeline, number: int) -> list[str]:
    error, result = pipeline.result(number)
    assert error is None, error
    return [row["status"] for row in result]


def test_without_the_cascade_what_was_drawn_stays(tmp_path: Path) -> None:
    with scripted(tmp_path) as pipeline:
        told(pipeline, "turn")
        pipeline.run()
        pipeline.command(forgotten(TURN))
        pipeline.run()
        assert pipeline.memories() == FACTS


@pytest.mark.parametrize("again", ["Ana lives in Oslo", "Same Ana lives in Oslo"])
def test_what_another_turn_says_too_stays(again: str, tmp_path: Path) -> None:
    """Also where that is known only by the outcome of its fact: it made no edge."""
    with scripted(tmp_path) as pipeline:
        told(pipeline, "turn")
        pipeline.run()
        pipeline.say(again, first=2)
        pipeline.run()
        pipeline.command(forgotten(TURN, cascade=True))
        pipeline.run()
        assert pipeline.memories() == ["Ana lives in Oslo"]
        assert statuses(pipeline, 1) == ["forgotten", "forgotten"]
        # With the other turn it goes after all.
        pipeline.command(forgotten(turn_memory_id("ana", "t2"), cascade=True), first=2)
        pipeline.run()
        assert pipeline.memories() == []


def test_a_cascade_takes_a_memory_back_to_what_another_turn_says(tmp_path: Path) -> None:
    """That turn stays as it is, and what the memory said may be said again."""
    with Pipeline(tmp_path, pipeline_settings(FULL)) as pipeline:
        for number, text in enumerate(("I live in Oslo.", "I live in Bergen now."), 1):
            pipeline.say(text, first=number, speaker="Ana")
            pipeline.run()
        turn = turn_memory_id("ana", "t2")
        [shown] = ask(pipeline, PreviewForget(memory_ids=(turn,), scope="ana"))["cascade"]
        assert (shown["content"], shown["left"]) == ("Ana lives in Bergen.", "Ana lives in Oslo.")
        pipeline.command(forgotten(turn, cascade=True))
        pipeline.run()
        assert statuses(pipeline, 1) == ["forgotten", "updated"]
        assert pipeline.memories() == ["Ana lives in Oslo."]
        turns = "SELECT content FROM memory_rows WHERE type = 'episodic' AND NOT is_deleted"
        assert pipeline.values(turns) == ["I live in Oslo."]
        pipeline.say("I live in Bergen now.", first=3, speaker="Ana")
        pipeline.run()
        assert pipeline.memories() == ["Ana lives in Bergen."]


def test_a_preview_of_an_erasure_takes_nothing_forgotten_back(tmp_path: Path) -> None:
    with Pipeline(tmp_path, pipeline_settings(FULL)) as pipeline:
        said = ("I live in Oslo. I like tea.", "I live in Bergen now.")
        for number, text in enumerate(said, 1):
            pipeline.say(text, first=number, speaker="Ana")
            pipeline.run()
        home = "SELECT memory_id FROM memory_rows WHERE content = 'Ana lives in Bergen.'"
        [memory] = pipeline.values(home)
        pipeline.command(forgotten(memory))
        pipeline.run()
        ids = (turn_memory_id("ana", "t2"),)
        [shown] = ask(pipeline, PreviewForget(memory_ids=ids, scope="ana", hard=True))["cascade"]
        assert (shown["id"], shown["left"]) == (memory, None)


def test_what_a_person_saved_stays_whoever_repeats_it(tmp_path: Path) -> None:
    with scripted(tmp_path) as pipeline:
        pipeline.command(RememberCommand(content="Ana lives in Oslo"))
        pipeline.run()
        told(pipeline, "turn")
        pipeline.run()
        pipeline.command(forgotten(TURN, cascade=True), first=2)
        pipeline.run()
        assert pipeline.memories() == ["Ana lives in Oslo"]


def test_the_cascade_respects_what_people_protect(tmp_path: Path) -> None:
    bot = Actor(id="bot", type="agent")
    with scripted(tmp_path) as pipeline:
        told(pipeline, "turn")
        pipeline.run()
        [bees] = pipeline.values("SELECT memory_id FROM memory_rows WHERE content = ?", FACTS[0])
        pin = MemoryPatch(memory_id=bees, pinned=True)
        pipeline.command(ModifyCommand(patches=(pin,), reason="dear"))
        pipeline.command(forgotten(TURN, cascade=True), first=2, actor=bot)
        pipeline.run()
        error = str(pipeline.result(2)[0])
        assert error.startswith(f"forbidden: nothing was forgotten: of memory {bees}")
        assert pipeline.memories() == FACTS


def test_a_source_that_stays_keeps_what_was_drawn_from_it(tmp_path: Path) -> None:
    with scripted(tmp_path) as pipeline:
        told(pipeline, "turn")
        pipeline.run()
        pin = MemoryPatch(memory_id=TURN, pinned=True)
        pipeline.command(ModifyCommand(patches=(pin,), reason="dear"))
        pipeline.command(forgotten(TURN, cascade=True), first=2)
        pipeline.run()
        assert str(pipeline.result(2)[0]).startswith("pinned: nothing was forgotten")
        assert pipeline.memories() == FACTS


def test_another_scope_is_out_of_reach(tmp_path: Path) -> None:
    with scripted(tmp_path) as pipeline:
        told(pipeline, "turn")
        pipeline.run()
        pipeline.command(forgotten(TURN, cascade=True), scope="ben")
        pipeline.run()
        assert [row["status"] for row in pipeline.result(1, "ben")[1]] == ["not_found"]
        assert pipeline.memories() == FACTS


# --- the token --------------------------------------------------------------------------------


def test_a_token_holds_for_what_was_shown_alone(tmp_path: Path) -> None:
    with scripted(tmp_path) as pipeline:
        told(pipeline, "turn")
        pipeline.run()
        ids = pipeline.values("SELECT memory_id FROM memory_rows")
        everything = forget_token("ana", dict.fromkeys(ids, 1))
        refused: list[Command] = [
            forgotten(TURN, confirm_token="made up"),
            forgotten(TURN, confirm_token=everything),  # without the cascade it is one alone
            forgotten(TURN, cascade=True, confirm_token=forget_token("ana", {TURN: 1})),
            forgotten(*ids, confirm_token=forget_token("ben", dict.fromkeys(ids, 1))),
            forgotten(*ids, confirm_token=forget_token("ana", dict.fromkeys(ids, 2))),
        ]
        pipeline.command(*refused)
        pipeline.run()
        for number in range(1, len(refused) + 1):
            assert str(pipeline.result(number)[0]).startswith("confirm_mismatch"), number
        assert pipeline.memories() == FACTS
        pipeline.command(forgotten(TURN, cascade=True, confirm_token=everything), first=20)
        pipeline.run()
        assert statuses(pipeline, 20) == ["forgotten"] * 3


def test_many_at_once_need_a_token(tmp_path: Path) -> None:
    with scripted(tmp_path) as pipeline:
        ids = tuple(f"m{number}" for number in range(26))
        pipeline.command(forgotten(*ids), forgotten(*ids[:25], *ids[:25]))
        pipeline.run()
        assert str(pipeline.result(1)[0]).startswith("confirmation_required: 26 memories")
        assert set(statuses(pipeline, 2)) == {"not_found"}
