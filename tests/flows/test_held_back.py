"""Changes that were held back, from the log to the balance: applied, dismissed, and at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.schemas.commands import (
    ApplyProposalsCommand,
    Command,
    DismissProposalsCommand,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.stores.recall.marks import marks_of
from palimpsest.stores.recall.query import Mark
from palimpsest.streams.runtime.runner import STEPS
from tests.harness import CAREFUL, Pipeline, differing, pipeline_settings
from tests.spoken_model import ScriptedModel, spoken

OLD = "Ana lives in Oslo near the harbour"
NEW = "Now Ana lives in Bergen near the harbour"
HELD = "SELECT item_id FROM outcomes WHERE event = 'blocked' ORDER BY item_id"


def opened(folder: Path, batch: int = 256) -> Pipeline:
    return Pipeline(folder, pipeline_settings(CAREFUL, "model"), ScriptedModel(spoken), batch=batch)


def holding(folder: Path, batch: int = 256) -> Pipeline:
    """A pipeline in which one update is held back."""
    pipeline = opened(folder, batch)
    pipeline.say(OLD)
    pipeline.say(NEW, first=2)
    pipeline.run()
    assert len(pipeline.values(HELD)) == 1
    return pipeline


def test_a_held_update_is_applied_by_a_person_and_counts_as_updated(tmp_path: Path) -> None:
    with holding(tmp_path) as pipeline:
        assert pipeline.balance().facts["blocked"] == 1
        assert pipeline.memories() == [OLD]
        command = ApplyProposalsCommand(item_ids=tuple(pipeline.values(HELD)), reason="she moved")
        pipeline.command(command)
        pipeline.run()
        refused, told = pipeline.result()
        assert refused is None
        assert told[0]["status"] == "updated"
        assert pipeline.memories() == [NEW]
        balance = pipeline.balance()
        assert balance.holds
        assert (balance.facts["blocked"], balance.facts["updated"]) == (0, 1)
        [event] = pipeline.rows(
            "SELECT changed_by, actor_type, reason FROM history_rows WHERE event = 'modified'"
        )
        assert event == {"changed_by": "local", "actor_type": "human", "reason": "she moved"}
        # Its vector was kept when it was held back.
        assert pipeline.values(
            "SELECT count(*) FROM memory_rows JOIN embeddings USING (embedding_key)"
            " WHERE content = ? AND type <> 'episodic'",
            NEW,
        ) == [1]
        # Settled: it cannot be applied or dismissed a second time.
        for number, again in enumerate(
            (command, DismissProposalsCommand(item_ids=command.item_ids, reason="no")), 2
        ):
            pipeline.command(again, first=number)
            pipeline.run()
            assert pipeline.result(number)[1][0]["status"] == "not_held"


def test_a_dismissed_change_counts_as_skipped(tmp_path: Path) -> None:
    with holding(tmp_path) as pipeline:
        pipeline.command(
            DismissProposalsCommand(item_ids=tuple(pipeline.values(HELD)), reason="a joke")
        )
        pipeline.run()
        assert pipeline.memories() == [OLD]
        balance = pipeline.balance()
        assert balance.holds
        assert (balance.facts["blocked"], balance.facts["skipped"]) == (0, 1)


def test_another_scope_s_held_change_is_not_there(tmp_path: Path) -> None:
    with holding(tmp_path) as pipeline:
        command = ApplyProposalsCommand(item_ids=tuple(pipeline.values(HELD)), reason="mine")
        pipeline.command(command, scope="ben")
        pipeline.run()
        assert pipeline.result(scope="ben")[1][0]["status"] == "not_held"
        assert pipeline.balance().facts["blocked"] == 1


def commands(item_id: str) -> list[Command]:
    """What two people may say at once."""
    return [
        DismissProposalsCommand(item_ids=("nobody",), reason="who"),
        ApplyProposalsCommand(item_ids=(item_id,), reason="yes"),
        DismissProposalsCommand(item_ids=(item_id,), reason="no"),
    ]


def test_the_batch_in_which_it_was_held_back_does_not_show(tmp_path: Path) -> None:
    """The proposal and the commands on it in one batch of apply-writes, or each in its own."""
    with holding(tmp_path / "before") as pipeline:
        [item_id] = pipeline.values(HELD)
    states = []
    for batch in (1, 256):
        with opened(tmp_path / str(batch)) as pipeline:
            pipeline.say(OLD)
            pipeline.run()
            pipeline.say(NEW, first=2)
            pipeline.run("normalize", "apply-writes").run("extract").run("decide")
            pipeline.command(*commands(item_id))
            pipeline.run("normalize")
            pipeline.batch = batch
            pipeline.run()
            assert pipeline.memories() == [NEW]
            assert [pipeline.result(n)[1][0]["status"] for n in (1, 2, 3)] == [
                "not_held",
                "updated",
                "not_held",
            ]
            assert pipeline.balance().holds
            states.append(pipeline.state_by_table())
    assert differing(*states) == []


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_while_it_is_applied_does_not_show(step: str, tmp_path: Path) -> None:
    states = []
    for crash in (False, True):
        with holding(tmp_path / str(crash)) as pipeline:
            pipeline.command(*commands(pipeline.values(HELD)[0]))
            if crash:
                pipeline.batch = 1
                pipeline.crash_at("apply-writes", step, 2)
            pipeline.run_through()
            assert pipeline.balance().holds
            states.append(pipeline.state_by_table())
    assert differing(*states) == []


def test_a_machine_may_not(tmp_path: Path) -> None:
    with holding(tmp_path) as pipeline:
        command = ApplyProposalsCommand(item_ids=tuple(pipeline.values(HELD)), reason="sure")
        pipeline.command(command, actor=Actor(id="bot", type="agent"))
        pipeline.run()
        assert str(pipeline.result()[0]).startswith("forbidden")
        assert pipeline.balance().facts["blocked"] == 1


# --- what was said again while its change was pending --------------------------------------------

HOMES = ("I live in Graz.", "I moved to Linz.", "I moved to Linz.")


def moved(folder: Path) -> Pipeline:
    """Of a home another one was said twice, a day apart, and the change waits."""
    pipeline = Pipeline(folder, pipeline_settings(CAREFUL))
    for number, home in enumerate(HOMES, start=1):
        pipeline.say(home, first=number)
        pipeline.run()
        pipeline.clock.advance(days=1)
    assert pipeline.memories() == ["Ana lives in Graz."]
    assert len(pipeline.values(HELD)) == 1
    return pipeline


def forget(pipeline: Pipeline, turn: int, number: int) -> None:
    ids = (turn_memory_id("ana", f"t{turn}"),)
    pipeline.command(ForgetCommand(memory_ids=ids, cascade=True, reason="private"), first=number)
    pipeline.run()


def test_what_waits_is_said_again_for_no_memory(tmp_path: Path) -> None:
    """It does not support the memory that it is against."""
    with moved(tmp_path) as pipeline:
        shard, now = pipeline.shard, pipeline.clock()
        with shard.reading() as reader:
            marks = marks_of(reader, "ana", None, now)
        [mark] = marks[turn_memory_id("ana", "t1")]
        assert mark == Mark("pending", "Ana lives in Graz.", "Ana moved to Linz.", mark.since)
        assert not {turn_memory_id("ana", f"t{number}") for number in (2, 3)} & marks.keys()
        forget(pipeline, 1, number=50)
        assert pipeline.memories() == []


def test_what_was_said_again_while_it_waited_is_marked_once_it_holds_no_longer(
    tmp_path: Path,
) -> None:
    with moved(tmp_path) as pipeline:
        items = tuple(pipeline.values(HELD))
        pipeline.command(ApplyProposalsCommand(item_ids=items, reason="she moved"), first=50)
        pipeline.run()
        [memory] = pipeline.values("SELECT memory_id FROM memory_rows WHERE type <> 'episodic'")
        patch = MemoryPatch(memory_id=memory, content="Ana lives in Rome.")
        pipeline.command(ModifyCommand(patches=(patch,), reason="she moved again"), first=51)
        pipeline.run()
        with pipeline.shard.reading() as reader:
            marks = marks_of(reader, "ana", None, pipeline.clock())
        for number in (2, 3):
            [mark] = marks[turn_memory_id("ana", f"t{number}")]
            assert (mark.statement, mark.text) == ("Ana moved to Linz.", "Ana lives in Rome.")


def test_what_was_said_again_while_it_waited_supports_it_once_it_is_applied(tmp_path: Path) -> None:
    with moved(tmp_path) as pipeline:
        items = tuple(pipeline.values(HELD))
        pipeline.command(ApplyProposalsCommand(item_ids=items, reason="she moved"), first=50)
        pipeline.run()
        assert pipeline.memories() == ["Ana moved to Linz."]
        for number, turn in enumerate((2, 1), start=51):
            forget(pipeline, turn, number)
            assert pipeline.memories() == ["Ana moved to Linz."]
        forget(pipeline, 3, number=53)
        assert pipeline.memories() == []
