"""kill -9 at random moments of a fold: it goes on where it stopped, and ends in the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fault.driver import run_and_kill
from tests.fault.fold_driver import opened, run
from tests.folded_history import beside, ends_of, fold, hashes, live
from tests.harness import differing

pytestmark = pytest.mark.soak

KILLS = 4


def test_kills_at_random_moments_of_a_fold(tmp_path: Path) -> None:
    chance = random.Random(3)
    with opened(tmp_path / "lived") as lived:
        live(lived)
        before = hashes(lived)
        beside(lived, tmp_path / "folded").close()
    folder = tmp_path / "folded"
    kills = 0
    while kills < KILLS:
        # Some batches in a process, so that the last kills fall into the last stages.
        batches = chance.randint(1, 7)
        within = chance.random() / 50
        if run_and_kill(run, folder, lived.folder, after=batches, within=within) is None:
            break
        kills += 1
    assert kills == KILLS
    with opened(folder) as folded:
        result = fold(folded, ends_of(folded), lived.folder)
        assert result.records > 0
        assert differing(hashes(folded), before) == []
        assert folded.balance().holds
