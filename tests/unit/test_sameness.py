"""Two texts are one statement only where their telling words agree, in order."""

from __future__ import annotations

import pytest

from palimpsest.streams.claims.contradiction import same_fact


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Ana likes green tea.", "Ana likes the green tea"),
        ("Ana doesn't eat meat", "Ana doesn’t eat meat!"),
        ("Café Müller opens at 9", "café müller OPENS at 9."),
        ("東京に住んでいる", "東京に住んでいる。"),
        ("to be", "to be!"),
    ],
)
def test_the_same_in_the_same_words(a: str, b: str) -> None:
    assert same_fact(a, b)
    assert same_fact(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Ana prefers tea over coffee", "Ana prefers coffee over tea"),
        ("Ana eats meat", "Ana does not eat meat"),
        ("The build takes 16 minutes", "The build takes 17 minutes"),
        ("Ana moved to Berlin", "Ana moved to Hamburg"),
        ("Ana lent Ben money", "Ben lent Ana money"),
        ("to be", "not to be"),
        ("東京に住んでいる", "大阪に住んでいる"),
    ],
)
def test_another_statement_however_close(a: str, b: str) -> None:
    assert not same_fact(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Ana is not just tired", "Ana is not tired"),
        ("Plan A failed", "Plan failed"),
        ("run with --force", "run with force"),
        ("the ratio is .5", "the ratio is 5"),
        ("कि", "का"),
    ],
)
def test_signs_and_small_words_count_where_they_carry_meaning(a: str, b: str) -> None:
    assert not same_fact(a, b)


def test_a_contraction_is_the_words_that_it_stands_for() -> None:
    assert same_fact("Ana can't swim and won't learn it", "Ana cannot swim and will not learn it")


def test_texts_without_words_say_the_same_only_where_they_are_equal() -> None:
    assert same_fact("👍", "👍")
    assert not same_fact("👍", "👎")
