from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.streams.models.hashing import HashingEmbeddingModel, hashed

EXPECTED = [0.0, 0.0, 0.0, 0.0, -0.5391639, -0.3234983, -0.6469966, 0.4313311]


@given(st.text(), st.sampled_from([8, 64, 256, 384]))
def test_every_text_has_a_finite_unit_vector(text: str, dimensions: int) -> None:
    vector = hashed(text, dimensions)
    assert vector.shape == (dimensions,)
    assert vector.dtype == np.float32
    assert np.linalg.norm(vector.astype(np.float64)) == pytest.approx(1.0, abs=1e-6)


@given(st.text())
def test_the_same_text_gives_the_same_bits(text: str) -> None:
    assert hashed(text).tobytes() == hashed(text).tobytes()


def test_case_and_punctuation_do_not_count() -> None:
    assert np.array_equal(hashed("Ana adopted a DOG!"), hashed("ana adopted a dog"))


def test_the_vectors_stay_what_they_were() -> None:
    # Stored vectors are compared with new ones: a change needs a new model name.
    vector = hashed("Ana adopted a dog", 8)
    assert HashingEmbeddingModel().model == "hashing-1-256"
    assert vector.tolist() == pytest.approx(EXPECTED, abs=1e-6)


def test_near_texts_are_near_and_others_far() -> None:
    dog = hashed("Caroline adopted a dog")
    assert dog @ hashed("Caroline has adopted a dog.") > 0.8
    assert 0.5 < dog @ hashed("Caroline adopted a cat") < 0.9
    assert abs(dog @ hashed("the server runs on port 5433")) < 0.2


@pytest.mark.parametrize("dimensions", [0, 7, 70_000])
def test_dimensions_out_of_range_are_refused(dimensions: int) -> None:
    with pytest.raises(ValueError, match="dimensions"):
        HashingEmbeddingModel(dimensions)


def test_a_huge_text_and_half_a_surrogate_pair_are_fine() -> None:
    assert hashed("word " * 1_000_000).shape == (256,)
    assert hashed("half \ud83d pair").shape == (256,)
