from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.contradiction import ANTONYMS, NEGATIONS, contradicts, shared_tokens, tokens


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
    ],
)
def test_a_contradiction_is_found_from_both_sides(a: str, b: str) -> None:
    assert contradicts(a, b)
    assert contradicts(b, a)


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
def test_no_contradiction(a: str, b: str) -> None:
    assert not contradicts(a, b)


def test_apostrophes_are_removed_and_short_tokens_left_out() -> None:
    assert tokens("I don't, can\u2019t & a B-52 won't") == {"dont", "cant", "52", "wont"}
    assert tokens("don't") == {"dont"} <= NEGATIONS


def test_shared_tokens_counts_words_once() -> None:
    assert shared_tokens("tea tea and cake", "Tea, cake, cake!") == 2


def test_the_lists_hold_what_tokens_can_give() -> None:
    for word in {*NEGATIONS, *(half for pair in ANTONYMS for half in pair)}:
        assert tokens(word) == {word}


@given(st.text(), st.text())
@settings(deadline=None)
def test_symmetric_and_never_with_itself(a: str, b: str) -> None:
    assert contradicts(a, b) == contradicts(b, a)
    assert not contradicts(a, a)
