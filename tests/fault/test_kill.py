"""kill -9 at random moments: the conservation law holds after each, and the end is the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fault.driver import opened, processes, run_and_kill
from tests.fault.test_boundaries import TALK
from tests.harness import Pipeline, differing

KILLS = 10
SEEDS = range(10)
MOST_STEPS = 45


def publish(pipeline: Pipeline, number: int) -> None:
    """More turns of three scopes; each round says other things than the one before."""
    first = 1 + 100 * number
    pipeline.say(*(f"{text} {number}" for text in TALK[:8]), first=first)
    pipeline.say(*TALK[4:9], scope="ben", first=first, session_id=f"r{number}")
    # Identical adds from everywhere at once.
    pipeline.say(*["Cleo keeps bees on the roof"] * 5, scope="cleo", first=first)


def whole_state(folder: Path, rounds: int) -> dict[str, str]:
    """What an uninterrupted run of the same turns ends in."""
    with opened(folder, batch=256) as pipeline:
        for number in range(rounds):
            publish(pipeline, number)
        pipeline.run()
        return pipeline.state_by_table()


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_at_random_moments(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    context = processes()
    folder = tmp_path / "killed"
    rounds = kills = 0
    places = []
    while kills < KILLS:
        with opened(folder) as pipeline:
            publish(pipeline, rounds)
        rounds += 1
        while kills < KILLS:
            place = run_and_kill(context, folder, chance.randint(1, MOST_STEPS))
            if place is None:
                break
            places.append(place)
            kills += 1
            # Every second time the next process finds what the killed one left.
            if kills % 2:
                with opened(folder) as pipeline:
                    assert pipeline.balance().holds, places
    with opened(folder) as pipeline:
        assert pipeline.balance().holds
        pipeline.run()
        balance = pipeline.balance()
        assert balance.holds
        assert (balance.turns["in_flight"], balance.facts["in_flight"]) == (0, 0)
        assert balance.turns["stored"] == rounds * 18
        assert pipeline.memories("cleo") == ["Cleo keeps bees on the roof"]
        state = pipeline.state_by_table()
    assert differing(state, whole_state(tmp_path / "whole", rounds)) == [], places
