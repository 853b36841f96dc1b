"""Vectors as whole numbers: they follow the vectors, whenever and however these came."""

from __future__ import annotations

from collections import Counter

import numpy as np

from palimpsest.stores.index.segment import Segment
from tests.unit.small_store import memory

DIMENSIONS = 32


def unit_vectors(count: int) -> np.ndarray:
    drawn = np.random.default_rng(7).normal(size=(count, DIMENSIONS)).astype(np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), dtype=np.float32)


def test_codes_are_near_the_vectors_as_they_come_and_change() -> None:
    segment, vectors = Segment(DIMENSIONS), unit_vectors(40)
    for number in range(20):
        segment.put(memory(f"m{number}"), Counter(word=1), vectors[number] if number % 3 else None)
    query = vectors[-1]
    assert_near(segment, query)
    segment.set_vector("m0", vectors[0])
    segment.put(memory("m1", "said anew"), Counter(word=1), vectors[39])
    for number in range(20, 39):  # grows meanwhile
        segment.put(memory(f"m{number}"), Counter(word=1), vectors[number])
    assert_near(segment, query)
    assert segment.codes.products(query[None, :])[0][segment.place_of["m3"]] == 0.0


def assert_near(segment: Segment, query: np.ndarray) -> None:
    found = segment.codes.products(query[None, :])[0]
    assert found.shape == (segment.places,)
    assert np.abs(found - segment.vectors @ query).max() < 0.01
    assert np.array_equal(found, segment.codes.products(query[None, :])[0])
