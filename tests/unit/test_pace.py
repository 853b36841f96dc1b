"""How many records are taken at once: about a second's worth, whatever a record costs."""

from __future__ import annotations

import pytest

from palimpsest.streams.logs.base import Record
from palimpsest.streams.runtime.pace import Pace, pace_of
from palimpsest.streams.settings import WorkerSettings
from tests.messages import BEGIN
from tests.unit.runner_parts import ECHO, stage


def records(*scopes: str) -> list[Record]:
    return [Record("t", 0, n, scope.encode(), b"v", BEGIN) for n, scope in enumerate(scopes)]


MANY = records(*["s"] * 10_000)


def worked(pace: Pace, cost: float, batches: int, fixed: float = 0.0) -> list[int]:
    """The sizes of batches where a record costs so many seconds, and a batch `fixed` ones."""
    sizes = []
    for _ in range(batches):
        batch = pace.taken(MANY)
        sizes.append(len(batch))
        pace.note(batch, fixed + cost * len(batch))
    return sizes


def test_quick_records_are_soon_taken_by_the_most() -> None:
    assert worked(Pace(1.0, 512), 0.0005, 8) == [1, 16, 256, 512, 512, 512, 512, 512]


@pytest.mark.parametrize("cost", [0.01, 0.3, 0.9, 5.0])
def test_no_batch_takes_much_more_than_the_time(cost: float) -> None:
    pace = Pace(1.0, 512)
    sizes = worked(pace, cost, 30)
    assert all(size * cost <= max(1.0, cost) for size in sizes)
    assert sizes[-1] == max(1, int(1.0 / cost))


def test_a_model_that_becomes_slow_is_met_by_smaller_batches_at_once() -> None:
    pace = Pace(1.0, 512)
    worked(pace, 0.001, 8)
    assert worked(pace, 0.5, 3) == [512, 2, 2]
    assert worked(pace, 0.001, 6)[-1] == 512


def test_what_a_batch_costs_by_itself_does_not_keep_batches_small() -> None:
    assert worked(Pace(1.0, 512), 0.0005, 10, fixed=0.4)[-1] == 512


@pytest.mark.parametrize(("width", "sizes"), [(None, [512, 512]), (0, [8, 128]), (4, [4, 8])])
def test_where_no_model_is_waited_for_the_first_batch_is_a_full_one(
    width: int | None, sizes: list[int]
) -> None:
    pace = pace_of(stage(ECHO), WorkerSettings(), width)
    assert worked(pace, 0.0005, 2) == sizes


def test_few_records_at_a_time_leave_the_size_as_it_was() -> None:
    pace = Pace(1.0, 512)
    worked(pace, 0.0005, 8)
    for _ in range(20):
        pace.note(records("s"), 0.05)
    assert pace.size == 512


def test_a_model_that_answers_several_is_asked_several_however_slow() -> None:
    pace = Pace(1.0, 8, width=4)
    for _ in range(3):
        batch = pace.taken(records(*["s"] * 20))
        assert len(batch) == 4
        pace.note(batch, 10.0)
    pace.note(records(*["s"] * 4), 0.1)
    assert pace.size == 8


def test_what_is_asked_one_after_another_in_a_scope_is_taken_one_by_one() -> None:
    pace = Pace(1.0, 8, width=4, by_scope=True)
    assert len(pace.taken(records("a", "a", "a"))) == 1
    assert len(pace.taken(records("a", "b", "c", "d", "e"))) == 4
    pace.note(records("a", "b"), 0.25)
    assert len(pace.taken(records("a", "a", "a", "a", "b", "c", "a"))) == 6
    pace.note(records("a", "a", "a", "a"), 20.0)
    assert len(pace.taken(records("a", "a"))) == 1


def test_nothing_is_taken_of_nothing() -> None:
    assert list(Pace(1.0, 8).taken([])) == []
