"""Upkeep: how long it rests between two syncs."""

from __future__ import annotations

from ops.upkeep import LOOK_SECONDS, MOST_SECONDS, SHARE, pause_after


def test_syncs_take_their_share_of_the_time_and_no_more() -> None:
    assert pause_after(0.0) == LOOK_SECONDS
    assert 0.1 / (0.1 + pause_after(0.1)) <= SHARE
    assert pause_after(30.0) == MOST_SECONDS
