"""Counterparts by text: what says the same, what is nearest, and what has nothing in common."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.ops.replay.counterparts import Comparison, Likeness, shared_words
from palimpsest.streams.models.hashing import hashed

TEXTS = st.text(alphabet=st.sampled_from("abcdeé日 .'-"), min_size=0, max_size=24)


def comparison(*texts: str, near: float = 0.45) -> Comparison:
    return Comparison({text: hashed(text, 256) for text in texts}, near)


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_likeness_is_symmetric_and_between_nothing_and_one(a: str, b: str) -> None:
    for compared in (comparison(a, b), Comparison({}, 0.45)):
        there, back = compared.of(a, b), compared.of(b, a)
        assert there == back
        assert there is None or 0.0 <= there.score <= 1.0
        assert compared.of(a, a) == Likeness(1.0, "equal text")


@given(TEXTS, st.dictionaries(st.sampled_from("pqrs"), st.tuples(TEXTS, TEXTS)))
def test_the_nearest_are_those_that_no_other_is_nearer_than(
    text: str, among: dict[str, tuple[str, str]]
) -> None:
    compared = comparison(text, *(each for pair in among.values() for each in pair))
    found = compared.nearest((text,), among)
    scores = {key: compared.best((text,), pair) for key, pair in among.items()}
    known = [each.score for each in scores.values() if each is not None]
    assert bool(found) == bool(known)
    for key, each in scores.items():
        is_best = each is not None and each.score >= max(known) - 1e-6
        assert (key in found) == is_best


def test_case_space_and_final_marks_do_not_count() -> None:
    compared = comparison()
    assert compared.of("Ana  likes tea.", "ana likes TEA") == Likeness(1.0, "equal text")


def test_without_a_vector_common_words_tell() -> None:
    compared = Comparison({"Ana drinks green tea": None}, 0.45)
    assert compared.of("Ana drinks green tea", "Ana drinks black tea") == Likeness(0.75, "words")
    assert compared.of("Ana drinks green tea", "Ben has a bike") is None
    assert shared_words("...", "!") == 0.0


def test_a_vector_below_the_bar_is_no_counterpart() -> None:
    vectors = {"a": np.array([1.0, 0.0], np.float32), "b": np.array([0.6, 0.8], np.float32)}
    assert Comparison(vectors, 0.7).of("a", "b") is None
    found = Comparison(vectors, 0.5).of("a", "b")
    assert found is not None
    assert (round(found.score, 3), found.by) == (0.6, "embedding")
