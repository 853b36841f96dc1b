"""The coarse check for contradictions, which flags what a model proposes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.streams.claims.contradiction import (
    ANTONYMS,
    NEGATIONS,
    shared_tokens,
    tokens,
    words_oppose,
)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Ana likes green tea", "Ana doesn't like green tea"),
        ("Ana likes green tea", "Ana doesn\u2019t like green tea"),
        ("we don't deploy on Friday", "we deploy Friday"),
        ("the cache is enabled", "the cache is disabled"),
        ("guests: allow uploads of files", "guests: deny uploads of files"),
        ("the server accepts plain passwords", "the server rejects plain passwords"),
        ("always run the tests", "never run the tests"),
        ("the light is on", "the light is off"),
        ("the flag is true", "the flag is false"),
        ("Ana works without a net", "Ana works with a net"),
        ("Ana not only likes tea, Ana doesn't like milk", "Ana likes milk"),
    ],
)
def test_opposing_words_are_found_from_both_sides(a: str, b: str) -> None:
    assert words_oppose(a, b)
    assert words_oppose(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Ana likes green tea", "Ana likes black tea"),
        # Only one shared word.
        ("Ana likes tea", "Ben doesn't like tea"),
        # Both sides negate.
        ("Ana never eats meat", "Ana doesn't eat meat, never"),
        # The same half of a pair, and both halves on one side: no opposition.
        ("the cache is enabled", "the cache is enabled now"),
        ("turn the light on and off", "turn the light on"),
        ("notebook of Ana", "the notebook of Ana"),
        ("", ""),
    ],
)
def test_no_opposing_words(a: str, b: str) -> None:
    assert not words_oppose(a, b)


@pytest.mark.parametrize(
    "said",
    [
        "Ana plays not only chess but go",
        "Ana has no problem with chess",
        "Ana plays, not just chess",
    ],
)
def test_a_wording_with_not_or_no_that_negates_nothing_flags_nothing(said: str) -> None:
    assert not words_oppose(said, "Ana plays chess with Ben and has a board")


def test_apostrophes_are_removed_and_short_tokens_left_out() -> None:
    assert tokens("I don't, can\u2019t & a B-52 won't") == {"dont", "cant", "52", "wont"}
    assert tokens("don't") == {"dont"} <= NEGATIONS


def test_shared_tokens_counts_words_once() -> None:
    assert shared_tokens("tea tea and cake", "Tea, cake, cake!") == 2


def test_the_lists_hold_what_tokens_can_give() -> None:
    for word in {*NEGATIONS, *(half for pair in ANTONYMS for half in pair)}:
        assert tokens(word) == {word}


@given(st.text(), st.text())
def test_symmetric_and_never_with_itself(a: str, b: str) -> None:
    assert words_oppose(a, b) == words_oppose(b, a)
    assert not words_oppose(a, a)
