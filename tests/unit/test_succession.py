"""What probably ended, or was followed by another, waits for a person; what may stand stays."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from palimpsest.streams.claims.conflict import contradicts
from palimpsest.streams.claims.polarity import opposes
from palimpsest.streams.claims.reading import claims_in
from palimpsest.streams.claims.turn import claims_of_turn
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.messages import published, turn
from tests.unit.test_order_of_statements import FAR

TODAY = date(2026, 3, 1)

WAITING = [
    # "Now" is not stored, and counts.
    ("I study law.", "I study medicine now."),
    ("I'm learning Dutch.", "I'm learning Korean now."),
    ("I major in biology.", "I now major in geology."),
    ("I play the cello.", "I play the drums now."),
    ("I drive a Volvo.", "I drive a Tesla now."),
    ("My hobby is pottery.", "My hobby is chess now."),
    ("My nickname is Bibi.", "My nickname is Lulu now."),
    ("My job is accountant.", "My job is baker now."),
    ("I'm a teacher.", "I'm a pilot now."),
    ("I live with my parents.", "I live alone now."),
    ("I prefer tea.", "I prefer coffee now."),
    ("My boss is Frank.", "My boss is Olga now."),
    # Another number, by the way.
    ("I have two dogs.", "I took my three dogs to the lake."),
    ("I have three chickens.", "Our five chickens lay well."),
    # A kind of what is denied, in other words.
    ("I don't drink alcohol.", "I love red wine."),
    ("I love whisky.", "I don't drink alcohol anymore."),
    ("I'm vegan.", "I love cheese."),
    ("I'm vegetarian.", "I love steak."),
    ("I don't drink coffee.", "I love espresso."),
    ("I have no children.", "My daughter Nina turned five."),
    ("I don't have a car.", "I drive a Fiat."),
    ("I don't speak German.", "I speak German fluently."),
    # An end that is told of another thing.
    ("I have a dog named Rex.", "Rex died yesterday."),
    ("My cat is called Luna.", "My cat died."),
    ("I have a horse.", "I sold my horse."),
    ("I work at Shell.", "I got laid off."),
    ("I work for Lidl.", "I left Lidl last month."),
    ("I'm unemployed.", "I work at Bosch."),
    ("I work as a waiter.", "I'm not a waiter anymore."),
    ("My girlfriend is Lisa.", "Lisa and I broke up."),
    ("I enjoy running.", "I've given up running."),
    ("I quit smoking.", "I started smoking again."),
    ("I decided to quit my job.", "I decided not to quit my job."),
    ("I'm moving to Spain next month.", "I'm not moving to Spain."),
    ("I live in Bonn.", "I moved to Aalen."),
    ("I live in Chur.", "I live in Visp now."),
    ("I live in Hobart.", "I now live in Launceston."),
    ("I have a dog named Rex.", "Rex died."),  # too short for a fact as it is
    ("I have a cat.", "We had to put our cat down."),
    ("I have a cat.", "I had to give my cat away."),
    ("My boss is Frank.", "My boss is Dana now."),
    ("My boss is Frank.", "My new boss is Dana."),
    ("My dentist is Ms Park.", "My dentist is Ms Reed now."),
    ("My name is Sara.", "My name isn't Sara, it's Zara."),
    ("I have one kid.", "I have two kids."),
    ("I have two kids.", "I have one kid."),
    # A retraction in other words.
    ("I love hiking.", "Hiking isn't my thing."),
    ("I love sushi.", "I went off sushi."),
    ("I'm allergic to peanuts.", "I outgrew my allergy to peanuts."),
    ("I'm allergic to eggs.", "I was wrong about the egg allergy."),
    ("I'm scared of flying.", "I got over my fear of flying."),
    ("I take metformin.", "I came off metformin."),
    ("I'm learning Dutch.", "I gave up learning Dutch."),
    ("I play the violin.", "I gave up the violin."),
    ("I play tennis.", "I gave tennis up."),
    ("I drink coffee.", "I cut out coffee."),
    ("I'm vegan.", "I used to be vegan."),
    ("I work at Siemens.", "Siemens fired me."),
    ("My husband is Mark.", "My ex-husband is Mark."),
    ("I'm dating Lena.", "My ex-girlfriend Lena moved out."),
    ("I have a sister.", "I have no brothers or sisters."),
    ("I have a brother.", "I'm an only child."),
    # Of one slot with one value, but the source says more than the fact.
    ("I live in Lisbon.", "I live in Porto because I love the sea."),
]
ENDING = [
    ("My phone number is 555-0101.", "My phone number is 555-0199 now."),
    ("I own a boat.", "I sold my boat."),
    ("I have a piano.", "I gave away my piano."),
    ("I have a motorcycle.", "I got rid of my motorcycle."),
    ("I'm a nurse.", "I'm no longer a nurse."),
    ("I'm engaged to Tom.", "I'm not engaged anymore."),
    ("I'm 19.", "I turned 20 last week."),
    ("I live in Lisbon.", "Scratch that, I live in Porto."),
    ("I live in Lisbon.", "Correction: I live in Porto."),
    ("I take metformin.", "I stopped taking metformin."),
    ("My name is Sara.", "My name is not Sara."),
]


def contents(folder: Path, pairs: list[tuple[str, str]]) -> list[tuple[list[str], int]]:
    """What holds after both statements of each pair, and how many proposals wait."""
    with Pipeline(folder, pipeline_settings(FULL, near=FAR, min_score=1.0)) as pipeline:
        for place, year in enumerate((2020, 2021)):
            said = datetime(year, 3, 1, tzinfo=UTC)
            pipeline.publish(
                *(
                    published(turn(pair[place], place), f"s{number}", occurred_at=said)
                    for number, pair in enumerate(pairs)
                )
            )
            pipeline.run()
        found = []
        for number in range(len(pairs)):
            held = pipeline.values(
                "SELECT content FROM memory_rows WHERE scope = ? AND NOT is_deleted"
                " AND type <> 'episodic' AND valid_until IS NULL",
                f"s{number}",
            )
            waiting = pipeline.values(
                "SELECT item_id FROM held_proposals JOIN outcomes o USING (item_id)"
                " JOIN fact_rows f USING (item_id) WHERE o.event = 'blocked' AND f.scope = ?",
                f"s{number}",
            )
            found.append((held, len(waiting)))
    return found


def test_what_probably_ended_waits_for_a_person(tmp_path: Path) -> None:
    found = contents(tmp_path, WAITING)
    missed = [pair for pair, (_, waiting) in zip(WAITING, found, strict=True) if waiting != 1]
    assert missed == []


def test_what_surely_ended_ends(tmp_path: Path) -> None:
    found = contents(tmp_path, ENDING)
    assert [pair for pair, (held, _) in zip(ENDING, found, strict=True) if len(held) != 1] == []


COMPATIBLE = [
    ("Ana plays the cello.", "Ana plays chess."),
    ("Ana speaks Czech.", "Ana speaks Polish now."),
    ("Ana takes metformin.", "Ana takes insulin now."),
    ("Ana is a teacher.", "Ana teaches maths now."),
    ("Ana studies law.", "Ana's brother studies medicine now."),
    ("Ana lives with their parents.", "Ana lives in Graz now."),
    ("Ana has two dogs.", "Ana's sister has three dogs."),
    ("Ana has three kids.", "Ana has two sons."),
    ("Ana has a dog named Rex.", "Ana's cat died."),
    ("Ana has a dog named Rex.", "Max died."),
    ("Ana does not drink alcohol.", "Ana loves ginger beer."),
    ("Ana does not drink alcohol.", "Ana loves non-alcoholic beer."),
    ("Ana is vegan.", "Ana loves oat milk."),
    ("Ana is vegan.", "Ana loves chickens."),
    ("Ana is vegetarian.", "Ana loves cheese."),
    ("Ana sold their car.", "Ana bought a car."),
    ("Ana got laid off.", "Ana works at Shell."),
    ("Ana broke up with Lisa.", "Ana's girlfriend is called Paula."),
    ("Ana's boss is called Frank.", "Ana's friend is called Dana now."),
    ("Ana's commute is 45 minutes.", "Ana's rent is 900 euros."),
    ("Ana was born in Chile.", "Ana grew up in Peru."),
    ("Ana has no children.", "Ana's nephew Jan turned five."),
    ("Ana does not have a car.", "Ana's dad drives a Fiat."),
    ("Ana is not moving to Spain.", "Ana is moving to Italy in April 2021."),
    ("Boris lives in Berlin.", "Boris lives in Neukölln now."),
    ("John is volunteering as a mentor for a school.", "John is now part of the fire brigade."),
    ("The user is taking a yoga class.", "The user started their lessons with Alex."),
    ("The user has been taking online courses.", "The user started taking guitar lessons."),
    ("Ana is taking a cooking class.", "Ana is taking a yoga class now."),
    ("Ana plays the piano.", "Ana started playing the cello."),
    ("John is a nurse.", "John is coaching a football team now."),
    ("Ana's boss is called Frank.", "Ana's sister's boss is called Dana now."),
    ("Ana's friend is called Tom.", "Ana's new friend is called Ben."),
    ("Ana's landlord is called Jon.", "Ana's landlord is called John now."),
    ("Ana's name is Elizabeth.", "Ana's name is Liz."),
    ("Ana's name is Ana.", "Ana's name is Ana Silva."),
    ("Ana has one cat.", "Ana has two kids."),
    ("Ana has a dog.", "Ana has two dogs."),
]


@pytest.mark.parametrize(("known", "new"), COMPATIBLE)
def test_what_may_stand_beside_the_known_stays(known: str, new: str) -> None:
    assert not opposes(new, known)
    assert not contradicts(new, known)


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ("Rex died.", ["Rex died."]),
        ("My wife and I got divorced.", ["Ana got divorced."]),
        ("Dr. Lee is allergic to nuts.", ["Dr. Lee is allergic to nuts."]),
        ("Muse isn't my favourite band anymore.", ["Ana's favourite band is no longer Muse."]),
        ("My favourite band is no longer Muse.", ["Ana's favourite band is no longer Muse."]),
        ("I stopped being vegan.", ["Ana stopped being vegan."]),
        ("I'm not a nurse.", []),
    ],
)
def test_an_end_is_read(said: str, facts: list[str]) -> None:
    assert [claim.text for claim in claims_in(said, "Ana", TODAY)] == facts


@pytest.mark.parametrize(
    ("asked", "answer", "facts"),
    [
        ("Do you have any allergies?", "Yes, nuts.", []),
        ("Are you vegan?", "Yes, mostly.", []),
        ("Did you move to Lyon?", "Yes.", ["Ana moved to Lyon."]),
        ("So you live in Oslo?", "Correct, in Oslo.", ["Ana lives in Oslo."]),
        ("So you live in Oslo?", "Yeah, in my dreams.", []),
        ("So you live in Oslo?", "Right, and pigs fly.", []),
        ("So you live in Oslo?", "Yes, I wish.", []),
        ("So you live in Oslo?", "Exactly, that is my brother's place.", []),
        ("You work at Shell, don't you?", "Yes, I did.", []),
        ("Did you quit smoking?", "Yes, I did.", ["Ana quit smoking."]),
        ("Are you allergic to nuts?", "Yes, as a child.", []),
        ("Do you have a dog?", "Yes! Oh no, he died last year.", []),
        ("You don't eat meat, right?", "Right.", ["Ana does not eat meat."]),
        ("You don't eat meat, right?", "Yes, I do.", []),
    ],
)
def test_what_is_agreed_to_is_what_was_asked(asked: str, answer: str, facts: list[str]) -> None:
    said_at = datetime(2026, 3, 1, tzinfo=UTC)
    assert [claim.text for claim in claims_of_turn(answer, "Ana", said_at, asked)] == facts


def test_a_title_with_a_full_stop_is_part_of_a_name() -> None:
    assert contradicts("Dr. Lee moved to Kiel.", "Dr. Lee lives in Bonn.")
    assert not contradicts("Dr. Lee moved to Kiel.", "Dr. Kim lives in Bonn.")
