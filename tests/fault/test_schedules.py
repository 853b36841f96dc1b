"""Random conversations under random schedules of batches and crashes: always the same state."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from palimpsest.streams.runtime.runner import STEPS
from palimpsest.streams.topology import STAGE_NAMES
from tests.examples import examples
from tests.harness import FULL, Crash, Pipeline, differing, pipeline_settings
from tests.spoken_model import ScriptedModel, spoken

SEEDS = range(examples(2))
PEOPLE = ("Ana", "Ben", "Rita", "東京", "علي")
PLACES = ("Oslo", "OSLO", "New York", "York", "Bergen", "Node.js", "R2D2", "大阪")
BEGINNINGS = ("", "", "", "Now ", "Gone ", "Same ", "Odd ", "Garbled ", "? ")


def sentence(chance: random.Random) -> str:
    verb = chance.choice(("lives in", "likes", "never likes", "works at", "has seen"))
    when = chance.choice(("", "", " since spring", " no more", "!"))
    weak = "~0.5" if chance.random() < 0.1 else ""
    person, place = chance.choice(PEOPLE), chance.choice(PLACES)
    return f"{chance.choice(BEGINNINGS)}{person} {verb} {place}{when}{weak}"


def spoken_turn(chance: random.Random) -> str:
    parts = [sentence(chance) for _ in range(chance.choice((1, 1, 2, 3)))]
    if chance.random() < 0.5:
        names = chance.sample((*PEOPLE, *PLACES), 2)
        parts.append(f"{names[0]} > {chance.choice(('knows', 'IN', 'in'))} > {names[1]}")
    return " / ".join(parts)


def talk(chance: random.Random) -> list[tuple[str, str, str]]:
    """(scope, session, content) of some turns."""
    return [
        (chance.choice(("one", "two")), chance.choice(("s1", "s2")), spoken_turn(chance))
        for _ in range(24)
    ]


def prepare(
    folder: Path, turns: list[tuple[str, str, str]], batch: dict[str, int], two_steps: bool
) -> Pipeline:
    pipeline = Pipeline(
        folder,
        pipeline_settings(FULL, "model"),
        ScriptedModel(spoken),
        batch=batch,
        two_steps=two_steps,
    )
    for number, (scope, session, content) in enumerate(turns):
        pipeline.say(content, scope=scope, first=number, session_id=session)
    return pipeline


@pytest.mark.parametrize("seed", SEEDS)
def test_the_schedule_does_not_show(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    turns = talk(chance)
    with prepare(tmp_path / "whole", turns, {}, False) as pipeline:
        whole = pipeline.run().state_by_table()
    batch = {name: chance.choice((1, 2, 3, 7, 30)) for name in STAGE_NAMES}
    two_steps = chance.random() < 0.5
    crashes = []
    with prepare(tmp_path / "crashed", turns, batch, two_steps) as pipeline:
        for _ in range(4):
            place = (chance.choice(STAGE_NAMES), chance.choice(STEPS), chance.randint(1, 6))
            pipeline.crash_at(*place)
            try:
                pipeline.run()
            except Crash:
                crashes.append(place)
                assert pipeline.reopen().balance().holds, (batch, crashes)
        pipeline.disarm()
        pipeline.run()
        balance = pipeline.balance()
        assert balance.holds
        assert (balance.turns["in_flight"], balance.facts["in_flight"]) == (0, 0)
        assert differing(pipeline.state_by_table(), whole) == [], (batch, two_steps, crashes)
