"""Two texts are one statement only where their telling words agree, in order."""

from __future__ import annotations

import pytest

from streams.sameness import same_statement


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
    assert same_statement(a, b)
    assert same_statement(b, a)


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
    assert not same_statement(a, b)
