"""Changes as people tell them: where they can be reached, moves, several statements in one
sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.streams.claims.attributes import is_other_attribute
from tests.harness import CAREFUL, FULL
from tests.unit.test_everyday_statements import facts
from tests.unit.test_order_of_statements import active, loaded, past, pending

FACTS = [
    ("My email is ana@mail.example.", "Ana's email is ana@mail.example."),
    ("My new email address is ana.b@mail.example.", "Ana's new email address is"),
    ("You can reach me at ana@mail.example.", "Ana's email is ana@mail.example."),
    ("I changed my email to ana@b.example.", "Ana's email is ana@b.example."),
    ("My phone number is 0171 2345678.", "Ana's phone number is 0171 2345678."),
    ("You can call me on +44 20 7946 0000.", "Ana's phone number is +44 20 7946 0000."),
    ("My address is 12 Elm Street, Leeds.", "Ana's address is 12 Elm Street, Leeds."),
    ("My address is Elmgasse 12, 8010 Graz.", "Ana's address is Elmgasse 12, 8010 Graz."),
    ("I changed my name to Anna Silva.", "Ana's name is Anna Silva."),
    ("I moved from Oslo to Bergen.", "Ana moved to Bergen."),
    ("We moved from Oslo to Bergen in 2024.", "Ana moved to Bergen in 2024."),
    ("I live with Tom and Jane.", "Ana lives with Tom and Jane."),
    ("I live alone now, Tom moved out.", "Ana lives alone."),
    ("My favorite color is green now, not blue.", "Ana's favorite color is green."),
    ("I work at Siemens, not Bosch.", "Ana works at Siemens."),
    ("I work at Siemens instead of Bosch now.", "Ana works at Siemens."),
    ("I like tea, but not coffee.", "Ana likes tea."),
    ("I got promoted to team lead.", "Ana got promoted to team lead."),
    ("I'm a team lead.", "Ana is a team lead."),
    ("My due date is June 3.", "Ana is expecting a baby on 2026-06-03."),
    ("I'm training for a marathon in October.", "Ana is training for a marathon in October 2026."),
    ("I'm taking a class in May.", "Ana is taking a class in May 2026."),
    ("I took a class in May.", "Ana took a class in May 2025."),
    ("My flight was moved to Friday.", "Ana now has a flight on 2026-03-06."),
    ("My dentist appointment was rescheduled to March 9.", "Ana now has a dentist appointment"),
    ("My wedding has been moved to 12 June.", "Ana is getting married on 2026-06-12."),
    ("I switched my major to physics.", "Ana's major is physics."),
    ("My rent went up to 1000 euros.", "Ana's rent is 1000 euros."),
    ("My favorite band is Muse these days.", "Ana's favorite band is Muse."),
    ("I have a new doctor, Dr. Huber.", "Ana's new doctor is called Dr. Huber."),
    ("I report to Max now.", "Ana's new manager is called Max."),
    ("I stepped down as CTO.", "Ana is no longer the CTO."),
    ("My startup is called Notely.", "Ana's startup is called Notely."),
    ("My license plate is GR-123AB.", "Ana's license plate is GR-123AB."),
    ("I live at 12 Elm Street.", "Ana lives at 12 Elm Street."),
    ("I was born in 1990 in Graz.", "Ana was born in Graz in 1990."),
    ("We had our baby last week.", "Ana had a baby in the week of"),
    ("Please don't call me Max.", "Ana does not like being called Max."),
    ("I quit the gym.", "Ana no longer goes to the gym."),
    ("I left the choir.", "Ana is no longer a member of the choir."),
    ("I quit chess club.", "Ana is no longer a member of chess club."),
    ("I gave up the piano.", "Ana no longer plays the piano."),
    ("I learned to play the guitar.", "Ana plays the guitar."),
    ("I quit law school.", "Ana dropped out."),
    ("Frank is no longer my boss, Olga is my boss now.", "Ana's boss is called Olga."),
]
NO_FACTS = [
    "You can reach me at the office.",
    "You can call me on Friday.",
    "My email is not working.",
    "My email is full.",
    "My number one priority is health.",
    "My address is in the book.",
    "My address is the same as before.",
    "I changed my mind.",
    "I changed my name tag to a bigger one.",
    "The company moved from Oslo to Bergen.",
    "If I moved from Oslo to Bergen, I'd miss the opera.",
    "I like tea, not much.",
    "Don't call me tonight.",
    "My company is great.",
    "My team is called to a meeting.",
    "My license plate is dirty.",
    "I live at the beach.",
    "We had our baby vaccinated last week.",
    "My rent went through the roof.",
    "Don't call me a liar.",
    "I left the choir practice early.",
    "I left the club at midnight.",
    "The meeting was moved to Friday.",
    "I wish my flight was moved to Friday.",
]


@pytest.mark.parametrize(("said", "fact"), FACTS)
def test_a_change_is_a_fact(said: str, fact: str) -> None:
    assert [text for text in facts(said) if text.startswith(fact)], facts(said)


@pytest.mark.parametrize("said", NO_FACTS)
def test_what_changes_nothing_of_theirs_is_none(said: str) -> None:
    assert facts(said) == []


@pytest.mark.parametrize(
    ("earlier", "later", "left"),
    [
        ("I work at Bosch.", "I quit Bosch and work at Siemens now.", "Ana works at Siemens."),
        ("I live in Oslo.", "I don't live in Oslo anymore, I moved to Rome.", "Ana moved to Rome."),
        ("I live in Oslo.", "I moved from Oslo to Rome.", "Ana moved to Rome."),
        ("I'm vegetarian.", "I'm not vegetarian anymore, I eat meat again.", "Ana eats meat."),
        ("My sister works at Bosch.", "My sister quit Bosch and works at Aldi now.", "at Aldi."),
        ("I'm married to Tom.", "I got divorced, I'm single now.", "Ana is single."),
        ("My email is a@x.example.", "My email is b@x.example now.", "b@x.example"),
        ("My phone number is 555 1000.", "My number is 555 2000 now.", "555 2000"),
    ],
)
@pytest.mark.parametrize("later_first", [False, True])
def test_one_statement_of_several_ends_what_it_excludes(
    tmp_path: Path, earlier: str, later: str, left: str, later_first: bool
) -> None:
    said = [(2023, earlier), (2025, later)]
    said = said[::-1] if later_first else said
    with loaded(tmp_path, said, FULL, [1]) as pipeline:
        assert pending(pipeline) == []
        assert any(left in text for text, *_ in active(pipeline))
        assert earlier_fact(earlier) not in [text for text, *_ in active(pipeline)]
    with loaded(tmp_path / "careful", said, CAREFUL, [1]) as pipeline:
        assert pending(pipeline) or past(pipeline)


ASKED = [
    ("I work at Bosch as an engineer.", "I quit my job."),
    ("I work at Bosch as an engineer.", "I quit Bosch last week and start at Aldi on Monday."),
    ("My boyfriend Tom is a nurse.", "I broke up with Tom."),
    ("I'm a student at MIT.", "I graduated last month."),
    ("I'm the CTO of Notely.", "I stepped down as CTO."),
    ("My doctor is Dr. Meier.", "I have a new doctor, Dr. Huber."),
    ("I report to Olga.", "I report to Max now."),
    (
        "I have a dentist appointment on April 9 at 10am.",
        "My dentist appointment was moved to May 2.",
    ),
    ("My eye exam is on May 4.", "My eye exam was postponed to May 9."),
]


def test_a_person_is_asked_about_a_change_of_a_part(tmp_path: Path) -> None:
    for number, (earlier, later) in enumerate(ASKED):
        said = [(2023, earlier), (2025, later)]
        with loaded(tmp_path / str(number), said, FULL, [1]) as pipeline:
            assert pending(pipeline), later
    beside = ["I have a dentist appointment on April 9.", "I have a dentist appointment on May 2."]
    with loaded(tmp_path / "beside", [(2023, each) for each in beside], FULL, [1]) as pipeline:
        assert pending(pipeline) == []
        assert len(active(pipeline)) == 2


def earlier_fact(said: str) -> str:
    [fact] = facts(said)
    return fact


def test_an_address_with_its_town_is_no_other_one() -> None:
    short, whole = "Ana's address is Elmgasse 12.", "Ana's address is Elmgasse 12, 8010 Graz."
    assert not is_other_attribute(whole, short)
    assert not is_other_attribute(short, whole)
    assert is_other_attribute("Ana's address is Elmgasse 14.", short)
    assert is_other_attribute("Ana's address is 112 Elm Road.", "Ana's address is 12 Elm Road.")


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("I have a dog.", "I don't have a dog, I have two dogs."),
        ("I work at Bosch.", "I left Bosch, I came back in May."),
        ("I eat meat.", "I don't eat meat, I only eat it on Sundays."),
        ("I smoke.", "I stopped smoking and started smoking again."),
    ],
)
def test_a_statement_that_another_one_limits_ends_nothing(
    tmp_path: Path, earlier: str, later: str
) -> None:
    with loaded(tmp_path, [(2023, earlier), (2025, later)], FULL, [1]) as pipeline:
        assert earlier_fact(earlier) in [text for text, *_ in active(pipeline)]
