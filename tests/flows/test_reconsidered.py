"""A decision whose memory changed or went meanwhile is taken anew: no fact is lost on the way."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from palimpsest.schemas.commands import ConfirmCommand, ForgetCommand, MemoryPatch, ModifyCommand
from palimpsest.streams.runtime.runner import STEPS
from palimpsest.streams.settings import Flags
from tests.fault.stops import distinct, run_and_copy
from tests.harness import CAREFUL, FULL, Pipeline, differing, pipeline_settings
from tests.spoken_model import ScriptedModel, spoken

OLD = "Ana lives in Oslo near the harbour"
WHERE = "SELECT memory_id FROM memory_rows WHERE type <> 'episodic'"


def opened(folder: Path, flags: Flags, batch: int = 256) -> Pipeline:
    settings = pipeline_settings(flags, "model")
    return Pipeline(folder, settings, ScriptedModel(spoken), batch=batch)


def overtaken(folder: Path, said: Sequence[str], meanwhile: str, flags: Flags = FULL) -> Pipeline:
    """A pipeline in whose log a command lies before the decisions that did not know of it."""
    pipeline = opened(folder, flags)
    pipeline.say(OLD)
    pipeline.run()
    [target] = pipeline.values(WHERE)
    pipeline.say(*said, first=2)
    pipeline.run("normalize", "apply-writes").run("extract")
    if meanwhile == "forgotten":
        pipeline.command(ForgetCommand(memory_ids=(target,), reason="wrong"))
    elif meanwhile == "changed":
        patch = MemoryPatch(memory_id=target, content="Rita lives in Bodø near the harbour")
        pipeline.command(ModifyCommand(patches=(patch,), reason="wrong"))
    else:
        pipeline.command(ConfirmCommand(memory_id=target))
    pipeline.run("normalize").run("decide")
    return pipeline


@pytest.mark.parametrize("flags", [FULL, CAREFUL], ids=["full", "careful"])
@pytest.mark.parametrize("word", ["Now", "Gone", "Same"])
def test_no_fact_is_lost_with_a_memory_that_was_forgotten_meanwhile(
    word: str, flags: Flags, tmp_path: Path
) -> None:
    said = f"{word} Ana lives in Oslo near the harbour with Rita"
    with overtaken(tmp_path, [said], "forgotten", flags) as pipeline:
        pipeline.run()
        assert pipeline.memories() == [said]
        assert pipeline.values("SELECT round FROM proposals ORDER BY round") == [0, 0, 1]
        assert pipeline.values("SELECT event FROM history_rows WHERE event = 'reconsidered'")
        balance = pipeline.balance()
        assert balance.holds
        assert (balance.facts["created"], balance.facts["in_flight"]) == (2, 0)


def test_what_is_known_is_decided_anew_when_the_memory_says_something_else(tmp_path: Path) -> None:
    with overtaken(tmp_path, [OLD], "changed") as pipeline:
        pipeline.run()
        assert pipeline.memories() == [OLD, "Rita lives in Bodø near the harbour"]
        assert pipeline.balance().holds


def test_what_is_known_stays_known_when_only_its_version_moved_on(tmp_path: Path) -> None:
    with overtaken(tmp_path, [OLD], "confirmed") as pipeline:
        pipeline.run()
        assert pipeline.memories() == [OLD]
        assert pipeline.balance().facts["none"] == 1
        # Word for word it is still there: nobody need be asked again.
        assert pipeline.values("SELECT max(round) FROM proposals") == [0]


TALK = (
    "Same Ana lives in Oslo near the harbour with Rita",
    "Now Ana lives in Bergen near the harbour",
    OLD,
    "Gone Ana lives in Oslo near the harbour or so",
    "Same Ana lives in Bergen near the harbour by now",
)


@pytest.mark.parametrize("meanwhile", ["forgotten", "changed"])
def test_reconsidering_does_not_depend_on_batches_or_crashes(
    meanwhile: str, tmp_path: Path
) -> None:
    with overtaken(tmp_path / "begun", TALK, meanwhile) as pipeline:
        begun = pipeline.folder

    def running(name: str, batch: int) -> Pipeline:
        return opened(shutil.copytree(begun, tmp_path / name), FULL, batch)

    with running("whole", 256) as pipeline:
        pipeline.run()
        assert pipeline.values("SELECT max(round) FROM proposals")[0] > 0
        assert pipeline.balance().holds
        whole = pipeline.state_by_table()
    last = {"decide": 2 if meanwhile == "forgotten" else 1, "apply-writes": 2}
    stops = {(stage, step, nth) for stage, nth in last.items() for step in STEPS}
    with running("2", 2) as pipeline:
        stopped = run_and_copy(pipeline, stops.__contains__, tmp_path)
        assert differing(pipeline.state_by_table(), whole) == []
    assert stopped.keys() == stops
    for folder in distinct(stopped.values()):
        with opened(folder, FULL, 2) as pipeline:
            assert differing(pipeline.run().state_by_table(), whole) == [], folder
            assert pipeline.balance().holds
