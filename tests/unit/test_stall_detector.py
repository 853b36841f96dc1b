"""Records that are in the log and never come are told, and only those."""

from __future__ import annotations

from palimpsest.streams.kafka.faust_agents import StallDetector

A, B = ("turns", 0), ("turns", 1)


def test_what_stands_at_two_looks_is_fetched_again() -> None:
    detector: StallDetector[tuple[str, int]] = StallDetector()
    assert detector.found({A: 3, B: 7}, {A: 9, B: 7}) == {}
    assert detector.found({A: 3, B: 7}, {A: 12, B: 8}) == {A: 3}
    assert detector.found({A: 3, B: 7}, {A: 12, B: 8}) == {A: 3, B: 7}


def test_what_moves_or_is_at_work_is_left_alone() -> None:
    detector: StallDetector[tuple[str, int]] = StallDetector()
    assert detector.found({A: 3}, {A: 9}) == {}
    assert detector.found({A: 5}, {A: 9}) == {}
    assert detector.found({}, {}) == {}
    assert detector.found({A: 5}, {A: 9}) == {}
    assert detector.found({A: 9}, {A: 9}) == {}
