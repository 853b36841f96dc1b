"""Records that are in the log and never come are told, and only those."""

from __future__ import annotations

from streams.logs.kafka_gaps import Gaps

A, B = ("turns", 0), ("turns", 1)


def test_what_stands_at_two_looks_is_fetched_again() -> None:
    gaps: Gaps[tuple[str, int]] = Gaps()
    assert gaps.found({A: 3, B: 7}, {A: 9, B: 7}) == {}
    assert gaps.found({A: 3, B: 7}, {A: 12, B: 8}) == {A: 3}
    assert gaps.found({A: 3, B: 7}, {A: 12, B: 8}) == {A: 3, B: 7}


def test_what_moves_or_is_at_work_is_left_alone() -> None:
    gaps: Gaps[tuple[str, int]] = Gaps()
    assert gaps.found({A: 3}, {A: 9}) == {}
    assert gaps.found({A: 5}, {A: 9}) == {}
    assert gaps.found({}, {}) == {}
    assert gaps.found({A: 5}, {A: 9}) == {}
    assert gaps.found({A: 9}, {A: 9}) == {}
