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
from tests.fault.stops import Stop, distinct, run_and_copy
from tests.harness import FULL, Pipeline, differing, pipeline_settings
from tests.spoken_model import ScriptedModel, spoken

soak = pytest.mark.soak
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


def opened(folder: Path, stage: str, batch: int = 256) -> Pipeline:
    settings = pipeline_settings(FULL, "model")
    model = ScriptedModel(spoken)
    return Pipeline(folder, settings, model, batch=batch, spoiled=raising(stage))


def prepare(folder: Path, stage: str, batch: int) -> Pipeline:
    pipeline = opened(folder, stage, batch)
    pipeline.say(*TALK)
    pipeline.say(*reversed(TALK), scope="ben")
    return pipeline


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(name, marks=() if name in ("normalize", "decide", "apply-writes") else soak)
        for name in STAGE_NAMES
    ],
)
def test_one_record_that_a_stage_fails_at_shows_nowhere_else(stage: str, tmp_path: Path) -> None:
    """It is dead and counted, whatever the batches and wherever the process ends."""

    def is_tried(stop: Stop) -> bool:
        return stop[0] == stage and stop[2] == 2

    with prepare(tmp_path / "whole", stage, 3) as pipeline:
        stopped = run_and_copy(pipeline, is_tried, tmp_path)
        state = pipeline.state_by_table()
        assert_dead_and_counted(pipeline, stage)
    with prepare(tmp_path / "at once", stage, 256) as pipeline:
        assert differing(pipeline.run().state_by_table(), state) == []
        assert_dead_and_counted(pipeline, stage)
    assert stopped.keys() == {(stage, step, 2) for step in STEPS}
    for folder in distinct(stopped.values()):
        with opened(folder, stage) as pipeline:
            assert pipeline.balance().holds, folder
            assert differing(pipeline.run().state_by_table(), state) == [], folder
            assert pipeline.balance().holds, folder


def assert_dead_and_counted(pipeline: Pipeline, stage: str) -> None:
    dead_letters = [x for x in pipeline.dead_letters() if x.failure == "unexpected"]
    assert {dead_letter.stage for dead_letter in dead_letters} == {stage}
    assert all("ZeroDivisionError" in dead_letter.reason for dead_letter in dead_letters)
    balance = pipeline.balance()
    assert balance.holds
    assert (balance.turns["in_flight"], balance.facts["in_flight"]) == (0, 0)
    assert balance.turns["accepted"] == 8
    assert {"Ana likes tea", "Now Ana lives in Bergen"} <= set(pipeline.memories())
