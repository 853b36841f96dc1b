"""Nearly equal vectors: what is found is near, and most of what is near is found."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.ops.health.checkup import nearly_equal
from tests.examples import examples

DIMENSIONS = 64


def pairs_by_hand(vectors: np.ndarray, groups: np.ndarray, cosine: float) -> set[tuple[int, int]]:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    near = (unit @ unit.T >= cosine) & (groups[:, None] == groups[None, :])
    return {(int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(near, 1)), strict=True)}


@settings(deadline=None, max_examples=examples(25))
@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.sampled_from([0.9, 0.98]))
def test_nothing_is_found_that_is_not_near(seed: int, count: int, cosine: float) -> None:
    chance = np.random.default_rng(seed)
    vectors = chance.standard_normal((count, DIMENSIONS)).astype(np.float32)
    half = count // 2
    noise = chance.standard_normal((half, DIMENSIONS)).astype(np.float32)
    vectors[count - half :] = vectors[:half] + noise * chance.uniform(0, 0.6)
    groups = chance.integers(0, 3, count)
    found = {(int(i), int(j)) for i, j in nearly_equal(vectors, groups, cosine)}
    slightly_less = pairs_by_hand(vectors, groups, cosine - 1e-5)
    assert found <= slightly_less


def test_most_pairs_are_found_among_many() -> None:
    chance = np.random.default_rng(0)
    vectors = chance.standard_normal((5_000, DIMENSIONS)).astype(np.float32)
    noise = chance.standard_normal((500, DIMENSIONS)).astype(np.float32)
    vectors[4_500:] = vectors[:500] + 0.15 * noise
    groups = np.zeros(5_000, dtype=np.int64)
    by_hand = pairs_by_hand(vectors, groups, 0.98)
    assert len(by_hand) > 450
    found = {(int(i), int(j)) for i, j in nearly_equal(vectors, groups, 0.98)}
    assert len(found & by_hand) > 0.9 * len(by_hand)


def test_no_vectors_and_zeros() -> None:
    none = np.empty((0, DIMENSIONS), dtype=np.float32)
    assert nearly_equal(none, np.empty(0, dtype=np.int64), 0.98).shape == (0, 2)
    zeros = np.zeros((5, DIMENSIONS), dtype=np.float32)
    assert nearly_equal(zeros, np.zeros(5, dtype=np.int64), 0.98).shape == (0, 2)
