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


@pytest.mark.parametrize(
    "text",
    [
        "In my novel I live in Rome and I have a horse.",
        "In my novel, I live in Rome, I have a horse and I work at Bosch.",
        "In my novel I live in Rome; my sister Rita has a horse.",
        "I live in Rome and I have a horse in my novel.",
        "In the game I have a horse and I live in Rome.",
        "In a dream I had a horse and my wife is Nadia.",
        "For my D&D campaign I am a baker and I have a horse.",
        "In my novel I live in Rome. I also have a horse.",
        "Assume I am vegan and I live in Rome.",
        "For the sake of argument, I am vegan and I have a dog.",
        "Assume I am vegan. I have two kids.",
        "Let's role play. I am a waiter at Chez Paul. I have two sons.",
        "Last night I dreamed I lived in Tokyo. I had three dogs.",
        "My story begins like this. I live in Venice and I work at a bakery.",
        "In the film I play a nurse. I live in Boston and I have two sons.",
        "Picture this: I live in Rome and I have a boat.",
        "On Minecraft I own a castle and I have six horses.",
        "I live in Rome. Just kidding, psych!",
        "As Dylan sang, I was born in Ohio.",
        "I'm allergic to Mondays.",
        "I have a million cats.",
        "My cat allergy is terrible.",
        "I live in Rome, I mean Milan.",
    ],
)
def test_a_fiction_covers_all_that_goes_on_from_it(text: str) -> None:
    assert claims_of_turn(text, "Ana", datetime(2026, 3, 1, tzinfo=UTC)) == []


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("In my novel I live in Rome, but in real life I live in Graz.", "Ana lives in Graz."),
        ("In real life I live in Graz, but in my novel I live in Rome.", "Ana lives in Graz."),
        ("In my novel I live in Rome but I actually live in Graz.", "Ana lives in Graz."),
        ("In my novel I live in Rome. I work at Bosch.", "Ana works at Bosch."),
        ("I work on my novel and I live in Rome.", "Ana lives in Rome."),
        ("For the record, I live in Rome.", "Ana lives in Rome."),
        ("Assume I am vegan. In real life I live in Graz.", "Ana lives in Graz."),
        ("I'm writing a novel. I live in Rome there.", "Ana is writing a novel."),
        ("I live in Rome. No, wait, I live in Milan.", "Ana lives in Milan."),
        ("I like jazz. Not really into rock.", "Ana likes jazz."),
        ("My cat seems bored.", "Ana has a cat."),
        ("You're my therapist. I'm married.", "Ana is married."),
    ],
)
def test_what_is_said_of_reality_counts(text: str, claim: str) -> None:
    found = claims_of_turn(text, "Ana", datetime(2026, 3, 1, tzinfo=UTC))
    assert [each.text for each in found] == [claim]
