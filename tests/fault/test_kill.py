"""kill -9 at random moments: the conservation law holds after each, and the end is the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.examples import examples
from tests.fault.driver import opened, run, run_and_kill
from tests.fault.test_boundaries import TALK
from tests.harness import Pipeline, differing

KILLS = 10
SEEDS = range(examples(1))
State = dict[str, str]
MOST_STEPS = 45


def publish(pipeline: Pipeline, number: int) -> None:
    """More turns of three scopes; each round says other things than the one before."""
    first = 1 + 100 * number
    pipeline.say(*(f"{text} {number}" for text in TALK[:8]), first=first)
    pipeline.say(*TALK[4:9], scope="ben", first=first, session_id=f"r{number}")
    # Identical adds from everywhere at once.
    pipeline.say(*["Cleo keeps bees on the roof"] * 5, scope="cleo", first=first)


@pytest.fixture(scope="module")
def whole_states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], State]]:
    """What an uninterrupted run of so many rounds ends in."""
    with opened(tmp_path_factory.mktemp("whole"), batch=256) as pipeline:
        states: list[State] = []

        def after(rounds: int) -> State:
            while len(states) < rounds:
                publish(pipeline, len(states))
                states.append(pipeline.run().state_by_table())
            return states[rounds - 1]

        yield after


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_at_random_moments(
    seed: int, tmp_path: Path, whole_states: Callable[[int], State]
) -> None:
    chance = random.Random(seed)
    rounds = kills = 0
    places = []
    while kills < KILLS:
        with opened(tmp_path) as pipeline:
            publish(pipeline, rounds)
        rounds += 1
        while kills < KILLS:
            place = run_and_kill(run, tmp_path, after=chance.randint(1, MOST_STEPS))
            if place is None:
                break
            places.append(place)
            kills += 1
    with opened(tmp_path) as pipeline:
        assert pipeline.balance().holds
        pipeline.run()
        balance = pipeline.balance()
        assert balance.holds
        assert (balance.turns["in_flight"], balance.facts["in_flight"]) == (0, 0)
        assert balance.turns["stored"] == rounds * 18
        assert pipeline.memories("cleo") == ["Cleo keeps bees on the roof"]
        assert differing(pipeline.state_by_table(), whole_states(rounds)) == [], places
