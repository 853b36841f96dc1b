"""Sentences that state something are left out of a text, and no others where that can be told."""

from __future__ import annotations

import pytest

from palimpsest.streams.text.hiding import PLACEHOLDER, without_sentences, without_statements
from tests.processor_time import takes_at_most

CASES = (
    ("I live in Ghent. My bike is new.", "Jule lives in Ghent", "[forgotten] My bike is new."),
    (
        "I'm allergic to walnuts. A single walnut could kill me. I like plain rice.",
        "Jule is allergic to walnuts",
        "[forgotten] I like plain rice.",
    ),
    (
        "I have 3.5 acres, e.g. the wood. Dr. Brandt is nice! I drink black tea.",
        "Jule's doctor is Dr. Brandt",
        "I have 3.5 acres, e.g. the wood. [forgotten] I drink black tea.",
    ),
    ("I like pasta. I like old trains.", "Jule likes pasta", "[forgotten] I like old trains."),
    (
        "My ex is Claudia Stern. Claudia is mean. Bread rises well.",
        "Jule's ex is Claudia Stern",
        "[forgotten] Bread rises well.",
    ),
    (
        "私は東京に住んでいます。猫が好きです。",
        "ユレは東京に住んでいる",
        "[forgotten] 猫が好きです。",
    ),
    (
        "About me:\n  - I live in Ghent.\n  - My bike is new.\n\nBread rises well.",
        "Jule lives in Ghent",
        "About me:\n  [forgotten]\n  - My bike is new.\n\nBread rises well.",
    ),
)


@pytest.mark.parametrize(("text", "statement", "left"), CASES)
def test_the_stating_sentences_are_left_out(text: str, statement: str, left: str) -> None:
    assert without_statements(text, [statement], "Jule").text == left


def test_a_text_that_says_little_else_is_hidden() -> None:
    assert (
        without_statements("I live in Ghent. Bye now!", ["Jule lives in Ghent"], "Jule").text == ""
    )


def test_other_words_hide_all_of_it() -> None:
    left = without_statements("Yes, that is so. And I am tired.", ["Jule lives in Ghent"], "Jule")
    assert left.text == ""


def test_nothing_is_left_out_for_nothing() -> None:
    text = "I live in Ghent.  My bike\nis new."
    assert without_statements(text, [], "Jule") == (text, ())


def test_sentences_are_left_out_wherever_they_stand() -> None:
    kept = {"data": {"content": "Hello.\nI live in Ghent.", "n": 1}, "list": ["Ghent"]}
    hidden = without_sentences(kept, ["I live in Ghent."])
    assert hidden == {"data": {"content": f"Hello. {PLACEHOLDER}", "n": 1}, "list": ["Ghent"]}


@pytest.mark.parametrize("piece", [".", "a.", "x", "!!!a", "\n", "a' ", ".)", "'", "I live. "])
def test_the_time_grows_with_the_length(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    assert takes_at_most(5, lambda: without_statements(text, ["Jule lives in Ghent 42"], "Jule"))
