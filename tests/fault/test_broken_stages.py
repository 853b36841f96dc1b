"""A stage that raises over one record: that record is a dead letter, and nothing else shows it,
whatever the batches and wherever the process ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from palimpsest.streams.runtime.runner import STEPS
from palimpsest.streams.stage import Context, Message, Process, Stage
from palimpsest.streams.topology import STAGE_NAMES
from tests.harness import FULL, Crash, Pipeline, differing, pipeline_settings
from tests.spoken_model import ScriptedModel, spoken

TALK = (
    "Ana lives in Oslo / Ana > lives_in > Oslo",
    "Ana likes POISON / Ana > likes > POISON",
    "Now Ana lives in Bergen / Ana likes tea",
    "Same Ana likes tea",
)


def raising(name: str) -> Callable[[Stage], Stage]:
    """The stage raises over every message that has the word in it."""

    def spoiled(stage: Stage) -> Stage:
        def process(message: Message, context: Context) -> Process:
            step = yield from stage.process(message, context)
            # Not by its context, in which a good turn shows the bad one before it.
            if "POISON" in message.body.model_dump_json(exclude={"context"}):
                raise ZeroDivisionError("a bug")
            return step

        return replace(stage, process=process) if stage.name == name else stage

    return spoiled


def prepare(folder: Path, stage: str, batch: int = 3) -> Pipeline:
    pipeline = Pipeline(
        folder,
        pipeline_settings(FULL, "model"),
        ScriptedModel(spoken),
        batch=batch,
        spoiled=raising(stage),
    )
    pipeline.say(*TALK)
    pipeline.say(*reversed(TALK), scope="ben")
    return pipeline


@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_one_record_that_a_stage_fails_at_is_dead_and_counted(stage: str, tmp_path: Path) -> None:
    states = []
    for batch in (1, 3, 256):
        with prepare(tmp_path / str(batch), stage, batch) as pipeline:
            pipeline.run()
            dead_letters = [x for x in pipeline.dead_letters() if x.failure == "unexpected"]
            assert {dead_letter.stage for dead_letter in dead_letters} == {stage}
            assert all("ZeroDivisionError" in dead_letter.reason for dead_letter in dead_letters)
            balance = pipeline.balance()
            assert balance.holds
            assert (balance.turns["in_flight"], balance.facts["in_flight"]) == (0, 0)
            assert balance.turns["accepted"] == 8
            assert {"Ana likes tea", "Now Ana lives in Bergen"} <= set(pipeline.memories())
            states.append(pipeline.state_by_table())
    assert differing(states[0], states[1]) == differing(states[0], states[2]) == []


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_a_stop_around_a_failing_record_changes_nothing(
    stage: str, step: str, tmp_path: Path
) -> None:
    with prepare(tmp_path / "whole", stage) as pipeline:
        pipeline.run()
        uninterrupted = pipeline.state_by_table()
        happened = pipeline.happened[stage, step]
    assert happened >= 3
    for nth in (2, 3):  # how many there are in all depends on who waits for whom
        with prepare(tmp_path / str(nth), stage) as pipeline:
            pipeline.crash_at(stage, step, nth)
            with pytest.raises(Crash):
                pipeline.run()
            assert pipeline.balance().holds
            pipeline.reopen().run()
            assert differing(pipeline.state_by_table(), uninterrupted) == []
            assert pipeline.balance().holds
