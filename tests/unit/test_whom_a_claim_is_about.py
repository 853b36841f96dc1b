"""Whom a sentence is about: the speaker by their own name, and nobody that is only supposed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from palimpsest.streams.claims.conflict import is_ambiguous
from palimpsest.streams.claims.turn import claims_of_turn


@pytest.mark.parametrize(
    "text",
    [
        "Petra's name is Petra.",
        "Petra's full name is Petra Berg.",
        "Petra’s nickname is Petra.",
        "The user's name is Petra.",
    ],
)
def test_the_own_name_is_no_namesake(text: str) -> None:
    assert not is_ambiguous("Petra moved to Linz.", [text])


@pytest.mark.parametrize(
    "text",
    [
        "Ana's sister Petra lives in Graz.",
        "Ana's sister is called Petra.",
        "Ana's sister's name is Petra.",
        "Petra from work lives in Graz.",
    ],
)
def test_another_person_of_the_name_is_one(text: str) -> None:
    assert is_ambiguous("Petra moved to Linz.", [text])


@pytest.mark.parametrize(
    "text",
    ["Assume I am vegan.", "Presume I am vegan.", "Assume we have a dog.", "Say I am vegan."],
)
def test_what_is_only_assumed_is_no_fact(text: str) -> None:
    assert claims_of_turn(text, "Ana", datetime(2026, 3, 1, tzinfo=UTC)) == []
