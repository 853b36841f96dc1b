"""At every boundary of the runner, for every stage: stop there, restart, end in the same state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
)
from palimpsest.streams.runtime.runner import STEPS
from palimpsest.streams.topology import STAGE_NAMES
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


def prepare(folder: Path, batch: int, two_steps: bool = False) -> Pipeline:
    """A pipeline with everything that may happen lying in its log."""
    pipeline = Pipeline(
        folder,
        pipeline_settings(FULL, "model"),
        ScriptedModel(spoken),
        batch=batch,
        two_steps=two_steps,
    )
    pipeline.say(*TALK)
    pipeline.raw(CONVERSATION_TURNS, b"{ no turn")
    pipeline.say(*TALK[5:1:-1], scope="ben", session_id="s2")
    pipeline.ingest(turn(" ", "empty"), turn("a secret", "secret", privacy="full"))
    return pipeline


@dataclass(frozen=True)
class Uninterrupted:
    state: dict[str, str]
    happened: Counter[tuple[str, str]]
    dead: int


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uninterrupted]:
    with prepare(tmp_path_factory.mktemp("uninterrupted"), BATCH) as pipeline:
        pipeline.run()
        settled = pipeline.facts_settled()
        # Else the comparison would prove little.
        assert {"created", "modified", "deleted", "none", "skipped", "dropped"} <= {
            event for event, _ in settled
        }
        dead = len(pipeline.values("SELECT letter_id FROM dead_letter_rows"))
        assert dead == 3
        assert_nothing_lost(pipeline)
        yield Uninterrupted(pipeline.state_by_table(), Counter(pipeline.happened), dead)


def assert_nothing_lost(pipeline: Pipeline) -> None:
    balance = pipeline.balance()
    assert balance.holds
    assert (balance.turns["in_flight"], balance.facts["in_flight"]) == (0, 0)


NOTHING_DURABLE = ("decode", "deduplicate", "ask")
"""Before the step nothing is written: one stop there is like any other."""


def occurrences(happened: int) -> list[int]:
    """The first and one in the middle: how many there are in all depends on who waits for whom."""
    return sorted({1, (happened + 1) // 2})


def test_batches_do_not_show(tmp_path: Path, uninterrupted: Uninterrupted) -> None:
    for other in (1, 3, 256):
        with prepare(tmp_path / str(other), other) as pipeline:
            pipeline.run()
            assert differing(pipeline.state_by_table(), uninterrupted.state) == []


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_a_stop_at_a_boundary_changes_nothing(
    stage: str, step: str, tmp_path: Path, uninterrupted: Uninterrupted
) -> None:
    for nth in occurrences(uninterrupted.happened[stage, step])[step in NOTHING_DURABLE :]:
        with prepare(tmp_path / str(nth), BATCH) as pipeline:
            pipeline.crash_at(stage, step, nth)
            with pytest.raises(Crash):
                pipeline.run()
            assert pipeline.balance().holds
            pipeline.reopen()
            assert pipeline.balance().holds
            pipeline.run()
            assert differing(pipeline.state_by_table(), uninterrupted.state) == []
            assert_nothing_lost(pipeline)


@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_a_broker_that_repeats_changes_nothing(
    stage: str, tmp_path: Path, uninterrupted: Uninterrupted
) -> None:
    """A stop between the append of the output and the note of the position."""
    for nth in occurrences(uninterrupted.happened[stage, "send"]):
        with prepare(tmp_path / str(nth), BATCH, two_steps=True) as pipeline:
            pipeline.crash_at(stage, "between", nth)
            with pytest.raises(Crash):
                pipeline.run()
            assert pipeline.balance().holds
            # The crash may have met other stages halfway too.
            halfway = set(pipeline.halfway)
            assert stage in halfway
            pipeline.reopen().run()
            assert differing(pipeline.state_by_table(), uninterrupted.state) == []
            assert_nothing_lost(pipeline)
            # A stage with a store sees in the log what it has sent; others repeat themselves.
            if stage in WITHOUT_STORE:
                assert repeated(pipeline)
            elif not halfway & WITHOUT_STORE:
                assert not repeated(pipeline)


def repeated(pipeline: Pipeline) -> int:
    """How many messages lie in the log more than once."""
    ids = Counter(message.id for topic in SENT for message in pipeline.messages(topic))
    return sum(count > 1 for count in ids.values())


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


@pytest.mark.parametrize("step", ["decode", "step", "commit", "send"])
@pytest.mark.parametrize("stage", ["normalize", "apply-writes", "graph-persist", "audit"])
def test_commands_survive_a_stop(stage: str, step: str, tmp_path: Path) -> None:
    def prepared(folder: Path) -> Pipeline:
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

    with prepared(tmp_path / "whole") as pipeline:
        whole = pipeline.run().state_by_table()
        stops = pipeline.happened[stage, step]
        assert pipeline.result(13)[0].startswith("duplicate_content_hash")
    for nth in range(1, 4):
        with prepared(tmp_path / f"stopped-{nth}") as pipeline:
            pipeline.crash_at(stage, step, min(nth, stops))
            with pytest.raises(Crash):
                pipeline.run()
            pipeline.reopen().run()
            assert differing(pipeline.state_by_table(), whole) == []
