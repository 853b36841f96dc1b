"""Whom a sentence is about: the speaker by their own name, and nobody that is only supposed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from palimpsest.schemas.identity import turn_memory_id
from palimpsest.streams.claims.conflict import is_ambiguous
from palimpsest.streams.claims.turn import claims_of_turn
from tests.harness import Pipeline
from tests.messages import turn


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
        "I live in Rome (not really).",
        "I have a yacht. I wish.",
        "I have a yacht. Joke!",
        "I'm vegan. Oops, I mean vegetarian.",
        "I have a cat. Actually it's my sister's.",
        "As Dylan sang, I was born in Ohio.",
        "I'm allergic to Mondays.",
        "I have a million cats.",
        "My cat allergy is terrible.",
        "I live in Rome, I mean Milan.",
        "For example, I live in Rome and I have two dogs.",
        "E.g. I'm 40 and I work at Shell.",
        "A typical customer: I live in Berlin and I have a car.",
        "Here's a sample bio: I live in Rome. I'm a chef.",
        "As the song goes, I was born in Kansas.",
        "For this exercise, I am a diabetic and I take insulin.",
        "For this exercise I'm a nurse. I live in Rome.",
        "As a thought experiment, I am allergic to water and I live alone.",
        "As an example, I am vegan and I have two dogs.",
        "In this prompt, I am a vegan athlete. I live in Rome.",
        "In this scenario I am a nurse and I have two sons.",
        "For the purposes of this chat, I'm a diabetic. I take insulin.",
        "You play the doctor and I'm the patient. I have asthma.",
        "You be the waiter and I'm the guest. I'm vegan.",
        "You'll play Romeo, and I'll play the nurse. I live in Verona.",
        "You are a pilot. I am your copilot and I live in Lima.",
        "You are the teacher, I am the pupil. I live in Graz.",
        "Set the scene: I'm a spy and I live in Prague.",
        "Set the scene. I'm a spy. I live in Prague.",
        "As Hamlet I am a prince and I live in Denmark.",
        "As Ophelia, I live in Elsinore.",
        "My alter ego lives in Rome and I have a yacht.",
        "My persona works at Bosch and I have a horse.",
        "In the musical I'm a widow and I run a bakery.",
        "In the sketch I'm a butcher and I have a cow.",
        "In the series I'm a widow. I live in Rome.",
        "Once I'm rich I live in Nice and I have a yacht.",
        "When I'm old I live in Nice and I have a yacht.",
        "Once I win the lottery I live in Nice, I have a yacht.",
        "In ten years I live in Oslo and I have three kids.",
        "Ten years from now I live in Oslo and I have three kids.",
        "By 2040 I live in Oslo and I have three kids.",
        "The form wants: I am married, I have two kids.",
        "The form has I am married, I have two kids.",
        "The template says: I am married, I have two kids.",
        "The questionnaire reads: I am married, I have two kids.",
        "Example: I am vegan and I have two dogs. I live in Rome.",
        "In my dream last night I lived in Rome. I had two dogs.",
        "In a dream I lived in Rome. I had two dogs.",
        "Hi, this is Ben on Ana's phone. I'm allergic to nuts. I live in Rome.",
        "Ben here, using Ana's phone. I'm allergic to nuts.",
        "Hello, it's Ben writing from Ana's account. I'm allergic to nuts.",
        "This is her husband on her phone. I'm vegan.",
        "In the trial version of me, I am single.",
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
        ("I live in Rome. I wish it were warmer.", "Ana lives in Rome."),
        ("I have a cat. I mean, it is lovely.", "Ana has a cat."),
        ("I have a dog. It is my best friend.", "Ana has a dog."),
        ("My cat seems bored.", "Ana has a cat."),
        ("You're my therapist. I'm married.", "Ana is married."),
        ("A sample of my work is online. I live in Rome.", "Ana lives in Rome."),
        ("Okay, end of role play. I live in Graz.", "Ana lives in Graz."),
        ("Back to reality: I have a cat.", "Ana has a cat."),
        ("These days I play chess.", "Ana plays chess."),
        ("I'm not 40, I'm 41.", "Ana is 41 (as of March 2026)."),
        ("In the morning I run. I have two dogs.", "Ana has two dogs."),
        ("For this job, I live in Prague now.", "Ana lives in Prague."),
        ("As you know, I am vegan.", "Ana is vegan."),
        ("As a Muslim, I have two sons.", "Ana has two sons."),
        ("As German I love bread. I have two dogs.", "Ana has two dogs."),
        ("As Chair of the club I am busy. I have two dogs.", "Ana has two dogs."),
        ("In ten years I have never been ill; I live in Oslo.", "Ana lives in Oslo."),
        ("In two years I moved to Oslo. I have two kids.", "Ana has two kids."),
        ("When I'm stressed I run. I have two dogs.", "Ana has two dogs."),
        ("Once I'm home, I cook. I have two dogs.", "Ana has two dogs."),
        ("For the sake of my kids, I live in Graz.", "Ana lives in Graz."),
        ("In the exercise class I met Bo. I have two dogs.", "Ana has two dogs."),
        ("In my dream job I travel. I have two dogs.", "Ana has two dogs."),
        ("In the show I saw my friend. I have two dogs.", "Ana has two dogs."),
        ("I play in the musical Cats and I live in Graz.", "Ana lives in Graz."),
        ("The truth is: I have two dogs.", "Ana has two dogs."),
        ("My form is good. I have two dogs.", "Ana has two dogs."),
        ("I filled in the form. I have two kids.", "Ana has two kids."),
        ("You are a star! I am your biggest fan and I live in Graz.", "Ana lives in Graz."),
        ("You are right. I am the owner. I live in Graz.", "Ana lives in Graz."),
        ("You play the piano well. I have two dogs.", "Ana has two dogs."),
        ("Hi, this is Ana. I'm allergic to nuts.", "Ana is allergic to nuts."),
        ("Ana here, on Ben's phone. I'm allergic to nuts.", "Ana is allergic to nuts."),
        ("I'm on my mum's phone. I'm allergic to nuts.", "Ana is allergic to nuts."),
        ("Hi, this is Ben on Ana's phone. I'm vegan. Ana again. I have a dog.", "Ana has a dog."),
        (
            "Hi, this is Ben on Ana's phone. I'm vegan. Now Ana is back. I have a dog.",
            "Ana has a dog.",
        ),
    ],
)
def test_what_is_said_of_reality_counts(text: str, claim: str) -> None:
    found = claims_of_turn(text, "Ana", datetime(2026, 3, 1, tzinfo=UTC))
    assert [each.text for each in found] == [claim]


@pytest.mark.parametrize(
    ("first", "next_one", "memories"),
    [
        ("Let's role play: I'm a pirate.", "I live in Tortuga.", []),
        ("Can we do a role-play? You are the interviewer.", "I work at Google.", []),
        ("Pretend I'm a widow of 70.", "I have five grandchildren.", []),
        ("Let's role play: I'm a pirate.", "Back to reality: I have a cat.", ["Ana has a cat."]),
        ("Let's role play: I'm a pirate.", "Out of character: I have a cat.", ["Ana has a cat."]),
        ("Let's role play. No, let's stop the role play.", "I have a cat.", ["Ana has a cat."]),
        ("Is that a role-playing game?", "I have a cat.", ["Ana has a cat."]),
        ("Act as my therapist.", "I have a cat.", ["Ana has a cat."]),
    ],
)
def test_a_part_goes_on_in_the_next_turn_until_it_is_left(
    tmp_path: Path, first: str, next_one: str, memories: list[str]
) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.ingest(
            turn(first, 1), turn("Sure!", 2, role="assistant", speaker="Bot"), turn(next_one, 3)
        )
        pipeline.run()
        assert (
            pipeline.values("SELECT content FROM memory_rows WHERE type <> 'episodic'") == memories
        )


def test_a_part_is_played_until_it_is_left(tmp_path: Path) -> None:
    """However many turns ago it was set up, in its session and no other."""
    knight = [f"I have {number} horses." for number in range(2, 9)]
    said = ["Let's role play: I'm a knight.", *knight, "Okay, end of role play.", "I have a cat."]
    with Pipeline(tmp_path) as pipeline:
        pipeline.ingest(
            *(turn(text, number) for number, text in enumerate(said, 1)),
            turn("I have a dog.", 20, session_id="s2"),
        )
        pipeline.run()
        found = pipeline.values("SELECT content FROM memory_rows WHERE type <> 'episodic'")
        assert found == ["Ana has a cat.", "Ana has a dog."]
        assert pipeline.values("SELECT role_play FROM internal.session_rows") == [None, None]


@pytest.mark.parametrize(
    ("said", "is_set_up"),
    [
        ("Can we do a role-play? You are the interviewer.", True),
        ("Okay, let\u2019s do some role playing.", True),
        ("Pretend I'm a widow of 70.", True),
        ("Let's pretend you are my boss.", True),
        ("I'll play the role of the customer.", True),
        ("Let's role play. No, let's stop the role play.", False),
        ("Let's play a game tonight.", False),
        ("Do you want to play a game?", False),
        ("I don't want to role play today.", False),
        ("My kids want to role play all day.", False),
        ("We will role play at the training on Friday.", False),
        ("I want to role play with my class.", False),
        ("Can we pretend this never happened?", False),
        ("I want to pretend I'm fine.", False),
        ("I'd like to play a part in the school theatre.", False),
        ("Let's try a role-playing game.", False),
    ],
)
def test_only_a_plain_role_play_lasts_a_session(tmp_path: Path, said: str, is_set_up: bool) -> None:
    later = ("I have two horses.", "I own a castle.", "I have a cat.")
    with Pipeline(tmp_path) as pipeline:
        pipeline.ingest(*(turn(text, number) for number, text in enumerate((said, *later), 1)))
        pipeline.run()
        found = pipeline.values("SELECT content FROM memory_rows WHERE type <> 'episodic'")
    assert ("Ana has a cat." not in found) == is_set_up


def test_a_part_ends_with_its_session(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        said = ("Let's role play: I'm a knight.", "I own a castle.", "I have two horses.")
        pipeline.ingest(*(turn(text, number) for number, text in enumerate(said, 1)))
        pipeline.run()
        [play] = pipeline.values("SELECT role_play FROM sessions")
        assert play == turn_memory_id("ana", "t1")
        pipeline.clock.advance(days=1)
        pipeline.ingest(turn("I have a cat.", 4))
        pipeline.run()
        assert pipeline.values("SELECT role_play FROM sessions") == [None]
        found = pipeline.values("SELECT content FROM memory_rows WHERE type <> 'episodic'")
    assert found == ["Ana has a cat."]


def test_a_part_that_was_left_is_over(tmp_path: Path) -> None:
    """Although the turn that set it up is still among the earlier ones."""
    with Pipeline(tmp_path) as pipeline:
        pipeline.ingest(
            turn("Let's role play: I'm a pirate.", 1),
            turn("Okay, end of role play.", 2),
            turn("I have a cat.", 3),
        )
        pipeline.run()
        found = pipeline.values("SELECT content FROM memory_rows WHERE type <> 'episodic'")
    assert found == ["Ana has a cat."]
