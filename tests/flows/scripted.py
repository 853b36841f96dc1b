"""A pipeline with a scripted model, and what holds when it has processed everything."""

from __future__ import annotations

from pathlib import Path

from palimpsest.streams.settings import Flags
from tests.harness import CAREFUL, Pipeline, pipeline_settings
from tests.spoken_model import ScriptedModel, spoken


def scripted(folder: Path, flags: Flags = CAREFUL, batch: int = 256) -> Pipeline:
    return Pipeline(folder, pipeline_settings(flags, "model"), ScriptedModel(spoken), batch=batch)


def assert_settled(pipeline: Pipeline) -> None:
    balance = pipeline.balance()
    assert balance.holds
    assert (balance.turns["in_flight"], balance.facts["in_flight"]) == (0, 0)
