"""Sessions and short-term memory under random batches, crashes and kill -9: always the same state,
the log's times included."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from palimpsest.schemas.commands import Command, SessionEndCommand, UpdateShortTermCommand
from palimpsest.streams.runtime.runner import STEPS
from tests.examples import examples
from tests.fault.driver import opened, run, run_and_kill
from tests.harness import FULL, Crash, Pipeline, differing, pipeline_settings
from tests.messages import commanded, published, turn
from tests.spoken_model import ScriptedModel, spoken

SEEDS = range(examples(1))
MESSAGES = 40
TABLES = ("session_rows", "open_sessions", "short_term_rows")
HOURS = (0, 0, 0, 0, 0, 0.2, 0.6, 5, 11, 13, 25, -3)
"""What the log's clock goes on by between two messages; it may be set back."""


def intents(folder: Path, seed: int) -> Pipeline:
    """Turns and commands of two scopes, each with a time of its own on the write-ahead log."""
    chance = random.Random(seed)
    pipeline = Pipeline(folder, pipeline_settings(FULL, "model"), ScriptedModel(spoken))
    for number in range(MESSAGES):
        scope, session = chance.choice(("one", "two")), chance.choice(("a", "b", "c", ""))
        if chance.random() < 0.25:
            command: Command = UpdateShortTermCommand(
                session_id=session, summary=f"So far {number}"
            )
            if session and chance.random() < 0.5:
                command = SessionEndCommand(session_id=session)
            pipeline.publish(commanded(command, number, scope))
        else:
            words = chance.choice(("Ana likes tea", "Remember: Ana likes tea", "Ana has seen Oslo"))
            spoken_turn = turn(f"{words} {number}", number, session_id=session)
            pipeline.publish(published(spoken_turn, scope))
        pipeline.run("normalize")
        pipeline.clock.advance(hours=chance.choice(HOURS))
    return pipeline


def state(pipeline: Pipeline) -> dict[str, str]:
    timed = pipeline.state_with_times(TABLES)
    return {**pipeline.state_by_table(), **{f"{name} timed": timed[name] for name in timed}}


@pytest.mark.parametrize("seed", SEEDS)
def test_neither_batches_nor_crashes_show(seed: int, tmp_path: Path) -> None:
    with intents(tmp_path / "whole", seed) as pipeline:
        whole = state(pipeline.run())
        assert pipeline.values("SELECT count(*) FROM sessions WHERE ends > 0") > [0]
    chance = random.Random(1_000 + seed)
    with intents(tmp_path / "crashed", seed) as pipeline:
        pipeline.batch = chance.choice((1, 2, 3, 7))
        crashes = []
        for _ in range(3):
            place = ("apply-writes", chance.choice(STEPS), chance.randint(1, 5))
            pipeline.crash_at(*place)
            try:
                pipeline.run()
            except Crash:
                crashes.append(place)
                assert pipeline.reopen().balance().holds
        pipeline.disarm()
        pipeline.run()
        assert pipeline.balance().holds
        assert differing(state(pipeline), whole) == [], (pipeline.batch, crashes)


def test_kill_9_loses_nothing_that_is_kept(tmp_path: Path) -> None:
    with intents(tmp_path / "whole", 99) as pipeline:
        at = pipeline.clock.time
        pipeline.run()
        whole = pipeline.state_with_times(TABLES)
        sessions = pipeline.values("SELECT session_id FROM short_term_memory ORDER BY ALL")
    folder = tmp_path / "killed"
    intents(folder, 99).close()
    chance = random.Random(99)
    places = [run_and_kill(run, folder, after=chance.randint(8, 40)) for _ in range(5)]
    assert None not in places
    with opened(folder) as pipeline:
        pipeline.clock.time = at
        pipeline.run()
        assert pipeline.state_with_times(TABLES) == whole
        assert pipeline.values("SELECT session_id FROM short_term_memory ORDER BY ALL") == sessions
