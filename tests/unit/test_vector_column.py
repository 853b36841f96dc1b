"""Vectors beyond a size lie in a file that leaves nothing behind; a full disk stops nobody."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from palimpsest.stores.index.vector_column import MAPPED_FROM, VectorColumn

DIMENSIONS = 8
DRAWN = np.random.default_rng(5).normal(size=(4 * MAPPED_FROM, DIMENSIONS)).astype(np.float16)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def filled(column: VectorColumn, count: int) -> VectorColumn:
    column.grow(count)
    column.write(0, DRAWN[:count])
    return column


def test_few_stay_in_memory(tmp_path: Path) -> None:
    column = filled(VectorColumn(DIMENSIONS, tmp_path), MAPPED_FROM - 1)
    assert column.resident_bytes == column.rows.nbytes


def test_many_lie_in_a_file_without_a_name(tmp_path: Path) -> None:
    column = filled(VectorColumn(DIMENSIONS, tmp_path), MAPPED_FROM)
    assert column.resident_bytes == 0
    assert np.array_equal(column.rows, DRAWN[:MAPPED_FROM])
    assert list(tmp_path.iterdir()) == []


def test_what_was_taken_before_it_grew_stays_and_follows(tmp_path: Path) -> None:
    column = filled(VectorColumn(DIMENSIONS, tmp_path), MAPPED_FROM)
    taken = column.rows
    column.grow(2 * MAPPED_FROM)
    assert not column.rows[MAPPED_FROM:].any()
    column.write(MAPPED_FROM, DRAWN[MAPPED_FROM : 2 * MAPPED_FROM])
    column.write(3, DRAWN[-1:])
    assert np.array_equal(column.rows[MAPPED_FROM:], DRAWN[MAPPED_FROM : 2 * MAPPED_FROM])
    assert np.array_equal(column.rows[3], DRAWN[-1])
    assert np.array_equal(taken[:3], DRAWN[:3])


@pytest.mark.parametrize("room", [0, MAPPED_FROM * DIMENSIONS * 2])
def test_a_full_disk_leaves_them_in_memory(tmp_path: Path, room: int) -> None:
    with files_of_at_most(room):
        column = filled(VectorColumn(DIMENSIONS, tmp_path), MAPPED_FROM)
        column.grow(2 * MAPPED_FROM)
        column.write(MAPPED_FROM, DRAWN[MAPPED_FROM : 2 * MAPPED_FROM])
    assert column.resident_bytes == column.rows.nbytes
    assert np.array_equal(column.rows, DRAWN[: 2 * MAPPED_FROM])
    column.grow(3 * MAPPED_FROM)
    assert np.array_equal(column.rows[: 2 * MAPPED_FROM], DRAWN[: 2 * MAPPED_FROM])
