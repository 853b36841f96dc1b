"""At every boundary of the runner, for every stage: stop there, restart, end in the same state."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from palimpsest.schemas.commands import (
    ConfirmCommand,
    ForgetCommand,
    RecoverCommand,
    RememberCommand,
)
from palimpsest.schemas.topics import (
    CONVERSATION_TURNS,
    DEAD_LETTERS,
    FACTS_EXTRACTED,
    GRAPH_CHANGES,
    MEMORY_CHANGES,
    MEMORY_HISTORY,
    MEMORY_WRITES,
    TURNS_NORMALIZED,
    Topic,
)
from palimpsest.streams.runtime.runner import STEPS
from palimpsest.streams.topology import STAGE_NAMES
from tests.fault.stops import Stop, distinct, run_and_copy, run_in_one_thread
from tests.harness import FULL, Crash, Pipeline, differing, pipeline_settings
from tests.messages import turn
from tests.spoken_model import ScriptedModel, spoken

# Adds, updates, deletes, repeats, a rephrasing, two names of one place, low confidence, a reply
# that is no JSON, decisions that name nobody and that cannot be read.
TALK = (
    "Ana lives in Oslo near the harbour / Ana > lives_in > Oslo",
    "Ana likes green tea a lot",
    "Now Ana lives in Bergen near the harbour / Ana > lives_in > Bergen",
    "Ana likes green tea a lot!",
    "We met Rita in OSLO / Rita works at Oceano~0.95 / RITA > works_at > Oceano",
    "Gone Ana likes green tea a lot or so",
    "?",
    "Garbled Ana lives in Bergen near the harbour / Ana likes long walks by the sea",
    "Odd Ana lives in Bergen near the harbour / weak claim about Oslo here~0.3",
    "Ana likes green tea a lot",
    "Now Rita works at Lumen since spring / Rita > works_at > Lumen",
    "Rita has two cats in Bergen / Rita > lives_in > Bergen",
)
BATCH = 5
WITHOUT_STORE = {"normalize", "extract"}
SENT = (
    TURNS_NORMALIZED,
    FACTS_EXTRACTED,
    MEMORY_WRITES,
    MEMORY_CHANGES,
    GRAPH_CHANGES,
    MEMORY_HISTORY,
    DEAD_LETTERS,
)


def opened(folder: Path, **fields: Any) -> Pipeline:
    return Pipeline(folder, pipeline_settings(FULL, "model"), ScriptedModel(spoken), **fields)


def prepare(folder: Path, batch: int, two_steps: bool = False) -> Pipeline:
    """A pipeline with everything that may happen lying in its log."""
    pipeline = opened(folder, batch=batch, two_steps=two_steps)
    pipeline.say(*TALK)
    pipeline.raw(CONVERSATION_TURNS, b"{ no turn")
    pipeline.say(*TALK[5:1:-1], scope="ben", session_id="s2")
    pipeline.ingest(turn(" ", "empty"), turn("a secret", "secret", privacy="full"))
    return pipeline


@dataclass(frozen=True)
class Uninterrupted:
    """`stopped` has what was left at each stop by a process that ended there: at every step of
    every stage once, in the middle of its work."""

    state: dict[str, str]
    stopped: dict[Stop, Path]

    def of(self, stage: str) -> list[Path]:
        """What the stops in this stage left."""
        return distinct(folder for stop, folder in self.stopped.items() if stop[0] == stage)

    def steps(self, stage: str) -> Counter[str]:
        """How many stops there were at each of its steps."""
        return Counter(step for name, step, _ in self.stopped if name == stage)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    with prepare(tmp_path_factory.mktemp("uninterrupted"), BATCH) as pipeline:
        run_in_one_thread(pipeline)
        settled = pipeline.facts_settled()
        # Else the comparison would prove little.
        assert {"created", "modified", "deleted", "none", "skipped", "dropped"} <= {
            event for event, _ in settled
        }
        assert len(pipeline.values("SELECT letter_id FROM dead_letter_rows")) == 3
        assert_nothing_lost(pipeline)
        state = pipeline.state_by_table()
        stops = {
            (stage, step, (happened + 1) // 2)
            for (stage, step), happened in pipeline.happened.items()
        }
    with prepare(tmp_path_factory.mktemp("stopped"), BATCH) as pipeline:
        copies = run_and_copy(pipeline, stops.__contains__, tmp_path_factory.mktemp("stops"))
        return Uninterrupted(state, copies)


def assert_nothing_lost(pipeline: Pipeline) -> None:
    balance = pipeline.balance()
    assert balance.holds
    assert (balance.turns["in_flight"], balance.facts["in_flight"]) == (0, 0)


def test_batches_do_not_show(tmp_path: Path, uninterrupted: Uninterrupted) -> None:
    for other in (1, 256):
        with prepare(tmp_path / str(other), other) as pipeline:
            pipeline.run()
            assert differing(pipeline.state_by_table(), uninterrupted.state) == []


@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_a_stop_at_a_boundary_changes_nothing(stage: str, uninterrupted: Uninterrupted) -> None:
    assert uninterrupted.steps(stage) == dict.fromkeys(STEPS, 1)
    for folder in uninterrupted.of(stage):
        with opened(folder) as pipeline:
            assert pipeline.balance().holds
            pipeline.run()
            assert differing(pipeline.state_by_table(), uninterrupted.state) == [], folder
            assert_nothing_lost(pipeline)


@pytest.fixture(scope="module")
def repeating(
    uninterrupted: Uninterrupted, tmp_path_factory: pytest.TempPathFactory
) -> Uninterrupted:
    """Stopped between the append of the output and the note of the position."""
    stops = {
        (stage, "between", nth) for stage, step, nth in uninterrupted.stopped if step == "send"
    }
    with prepare(tmp_path_factory.mktemp("repeating"), BATCH, two_steps=True) as pipeline:
        copies = run_and_copy(pipeline, stops.__contains__, tmp_path_factory.mktemp("stops"))
        assert differing(pipeline.state_by_table(), uninterrupted.state) == []
        return Uninterrupted(uninterrupted.state, copies)


@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_a_broker_that_repeats_changes_nothing(stage: str, repeating: Uninterrupted) -> None:
    assert repeating.steps(stage) == {"between": 1}
    for folder in repeating.of(stage):
        with opened(folder) as pipeline:
            assert pipeline.balance().holds
            pipeline.run()
            assert differing(pipeline.state_by_table(), repeating.state) == []
            assert_nothing_lost(pipeline)
            # A stage with a store sees in the log what it has sent, decide in the store what it has
            # proposed, but not on what it failed; others repeat themselves.
            expected = {DEAD_LETTERS} if stage == "decide" else set()
            assert bool(repeated(pipeline) - expected) == (stage in WITHOUT_STORE)


def repeated(pipeline: Pipeline) -> set[Topic]:
    """The topics with messages that lie in the log more than once."""
    ids = {topic: [message.id for message in pipeline.messages(topic)] for topic in SENT}
    return {topic for topic, found in ids.items() if len(set(found)) < len(found)}


def test_a_stop_in_every_stage_while_turns_come_changes_nothing(tmp_path: Path) -> None:
    """Each turn meets another stop, with what earlier stops left halfway."""
    stops = [(stage, step) for stage in STAGE_NAMES for step in ("commit", "send")]
    assert len(stops) == len(TALK)
    settings = pipeline_settings(FULL, "model")
    with Pipeline(tmp_path / "whole", settings, ScriptedModel(spoken), batch=7) as pipeline:
        pipeline.say(*TALK)
        whole = pipeline.run().state_by_table()
    with Pipeline(tmp_path / "stopped", settings, ScriptedModel(spoken), batch=7) as pipeline:
        for number, (line, (stage, step)) in enumerate(zip(TALK, stops, strict=True), 1):
            pipeline.say(line, first=number)
            pipeline.crash_at(stage, step)
            with pytest.raises(Crash):
                pipeline.run()
            pipeline.reopen()
        pipeline.run()
        assert differing(pipeline.state_by_table(), whole) == []
        assert_nothing_lost(pipeline)


COMMANDED = ("normalize", "apply-writes", "graph-persist", "audit")
COMMANDED_STEPS = ("decode", "step", "commit", "send")


def commanded(folder: Path) -> Pipeline:
    """A pipeline with commands lying in its log, about memories that are there."""
    pipeline = Pipeline(folder, batch=2)
    pipeline.command(*(RememberCommand(content=f"critical: Ana's note {n}") for n in range(4)))
    pipeline.run()
    ids = pipeline.values("SELECT memory_id FROM memory_rows ORDER BY content")
    pipeline.command(
        ForgetCommand(memory_ids=(ids[0], ids[1]), reason="wrong", force=True),
        RememberCommand(content="Ana's note 0"),
        RecoverCommand(memory_id=ids[1]),
        RecoverCommand(memory_id=ids[0]),
        ConfirmCommand(memory_id=ids[2]),
        RememberCommand(content="ANA'S NOTE 3!"),
        first=10,
    )
    return pipeline


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    def is_tried(stop: Stop) -> bool:
        return stop[0] in COMMANDED and stop[1] in COMMANDED_STEPS and stop[2] in (1, 3)

    with commanded(tmp_path_factory.mktemp("commands")) as pipeline:
        stopped = run_and_copy(pipeline, is_tried, tmp_path_factory.mktemp("stops"))
        assert pipeline.result(13)[0].startswith("duplicate_content_hash")
        return Uninterrupted(pipeline.state_by_table(), stopped)


@pytest.mark.parametrize("stage", COMMANDED)
def test_commands_survive_a_stop(stage: str, commands: Uninterrupted) -> None:
    assert commands.steps(stage) == dict.fromkeys(COMMANDED_STEPS, 2)
    for folder in commands.of(stage):
        with Pipeline(folder, batch=2) as pipeline:
            pipeline.run()
            assert differing(pipeline.state_by_table(), commands.state) == [], folder
