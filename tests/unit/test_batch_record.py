"""Which records of a batch go on together."""

from __future__ import annotations

import pytest

from palimpsest.streams.logs.base import Record
from palimpsest.streams.runtime.batch_record import divided
from tests.messages import BEGIN


def record(offset: int) -> Record:
    return Record("memory-changes", 0, offset, None, b"{}", BEGIN)


@pytest.mark.parametrize(
    ("alone", "parts"),
    [
        ((), [[0], [1], [2], [3], [4]]),
        ((2,), [[0, 1], [2], [3, 4]]),
        ((0, 4), [[0], [1, 2, 3], [4]]),
        ((1, 2), [[0], [1], [2], [3, 4]]),
        ((9,), [[0, 1, 2, 3, 4]]),
    ],
)
def test_a_batch_is_divided_at_places(alone: tuple[int, ...], parts: list[list[int]]) -> None:
    places = {("memory-changes", offset) for offset in alone}
    found = divided([record(offset) for offset in range(5)], places)
    assert [[each.offset for each in part] for part in found] == parts
