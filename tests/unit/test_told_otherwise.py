"""What ends, begins or excludes something in other words: a person is asked, in the default way and
with all flags, and what only looks like it stands beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import CAREFUL, FULL, Pipeline, pipeline_settings
from tests.unit.test_everyday_statements import facts
from tests.unit.test_order_of_statements import (
    FAR,
    Met,
    active,
    loaded,
    marks,
    met,
    past,
    pending,
    say,
)

OPPOSITES = [
    # Food and drink that somebody did without.
    ("I'm vegan.", "I started eating cheese again."),
    ("I don't eat meat.", "I started eating meat again."),
    ("I'm a vegetarian.", "I started eating chicken."),
    ("I'm allergic to nuts.", "I started eating almonds."),
    ("I don't drink.", "I started drinking again."),
    ("I'm sober.", "I started drinking again."),
    # What was done regularly.
    ("I go to the gym every Monday.", "I don't go to the gym anymore."),
    ("I go to the gym three times a week.", "I quit the gym."),
    ("I go to the gym every Monday.", "I stopped going to the gym."),
    ("I go to yoga on Tuesdays.", "I don't do yoga anymore."),
    ("I go to church every Sunday.", "I don't go to church anymore."),
    ("I go swimming every week.", "I don't swim anymore."),
    ("I go running every morning.", "I stopped running."),
    ("My daughter has ballet on Tuesdays.", "My daughter quit ballet."),
    ("I wake up at 6:30.", "I don't wake up at 6:30 anymore."),
    ("I go to bed early.", "I go to bed late."),
    # Work and studies.
    ("I'm unemployed.", "I started a new job."),
    ("I'm looking for a new job.", "I started a new job."),
    ("I'm looking for a new job.", "I'm not looking for a job anymore."),
    ("I'm a student.", "I graduated."),
    ("I'm doing a PhD.", "I finished my PhD."),
    ("I'm doing a PhD.", "I quit my PhD."),
    ("I work the night shift.", "I work the day shift now."),
    ("I work nights.", "I work days now."),
    ("I work the night shift.", "I don't work nights anymore."),
    ("I work from home.", "I work in the office now."),
    ("My son is in third grade.", "My son is in fourth grade."),
    ("My daughter goes to kindergarten.", "My daughter is in first grade."),
    # Family, health, homes, plans.
    ("You can call me Max.", "Please call me Maxine from now on."),
    ("Call me Bob.", "From now on, call me Robin."),
    ("I have a girlfriend.", "I broke up with my girlfriend."),
    ("My boyfriend is Tom.", "I broke up with my boyfriend."),
    ("I'm pregnant.", "Our daughter was born in May 2021."),
    ("I'm the oldest of three.", "I'm the youngest of three."),
    ("I have depression.", "I've recovered from depression."),
    ("I have long hair.", "I have short hair."),
    ("I live in a shared flat.", "I live alone now."),
    ("My parents live next door.", "My parents moved to Spain."),
    ("I'm moving to Oslo in June.", "I decided not to move to Oslo."),
    ("Our wedding is in September.", "We called off the wedding."),
    ("I'm having surgery on Monday.", "My surgery was cancelled."),
]
BESIDE = [
    ("My son is in third grade.", "My son is in the 3rd grade."),
    ("My son is in third grade.", "My daughter is in fourth grade."),
    ("My son is in third grade.", "My son goes to primary school."),
    ("Call me Max.", "My name is Maximilian."),
    ("I'm vegan.", "I started eating lentils."),
    ("I don't eat meat.", "I started eating fish."),
    ("I don't drink.", "I started drinking tea."),
    ("I'm vegan.", "My wife started eating cheese."),
    ("I go to yoga on Tuesdays.", "I don't go to church."),
    ("I don't go to church.", "My mother goes to church every Sunday."),
    ("I go swimming every week.", "I don't run."),
    ("I go to bed early.", "I get up late."),
    ("I started a new job.", "I'm looking for a new job."),
    ("I'm looking for a flat.", "I started a new job."),
    ("I'm a nurse.", "I graduated."),
    ("I graduated.", "I'm a student."),
    ("I'm doing a PhD.", "I finished my novel."),
    ("I work nights.", "I work from home."),
    ("I work from home.", "My wife works in the office."),
    ("I broke up with my girlfriend.", "I have a girlfriend."),
    ("My brother has a girlfriend.", "I broke up with my girlfriend."),
    ("I'm pregnant.", "My daughter was born in 2015."),
    ("I'm the oldest of three.", "My sister is the youngest of three."),
    ("I have asthma.", "I've recovered from depression."),
    ("I've recovered from depression.", "I have depression."),
    ("I have long hair.", "My wife has short hair."),
    ("I live in a flat.", "I live alone."),
    ("My parents live abroad.", "My parents moved to Spain."),
    ("I'm moving to Oslo in June.", "I decided not to move to Bergen."),
]


@pytest.fixture(scope="module", params=["careful", "full"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Met]:
    flags = CAREFUL if request.param == "careful" else FULL
    settings = pipeline_settings(flags, near=FAR, min_score=1.0)
    return met(tmp_path_factory.mktemp("told"), settings, [*OPPOSITES, *BESIDE])


def test_a_person_is_asked(told: list[Met]) -> None:
    for pair, (before, now, waiting) in zip(OPPOSITES, told, strict=False):
        assert before, pair
        assert waiting == 1, pair
        assert set(before) <= set(now), pair


def test_what_may_hold_stands_beside(told: list[Met]) -> None:
    for pair, (before, now, waiting) in zip(BESIDE, told[len(OPPOSITES) :], strict=True):
        assert before, pair
        assert waiting == 0, pair
        assert set(before) <= set(now), pair


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("I go to the gym.", ["Ana goes to the gym."]),
        ("I don't go to church anymore.", ["Ana no longer goes to church."]),
        ("I stopped going to the gym.", ["Ana stopped going to the gym."]),
        ("I'm going to the gym.", []),
        ("I go to the temple of doom.", []),
        ("I go to church weddings.", []),
        ("If I go to the gym, I feel better.", []),
        ("I went to the gym.", []),
    ],
)
def test_where_somebody_goes_regularly(said: str, expected: list[str]) -> None:
    assert facts(said) == expected


def test_what_ended_before_it_was_told_is_asked_about(tmp_path: Path) -> None:
    """However far apart both are in meaning, and whichever arrives first."""
    pairs = [
        ("I gave birth to a girl in May.", "I'm pregnant."),
        ("I dropped out.", "I study law in Leeds."),
        ("I graduated.", "I'm a student."),
        ("I sold my car.", "I have a car."),
    ]
    for number, (later, older) in enumerate(pairs):
        said = [(2024, later), (2020, older)]
        settings = pipeline_settings(FULL, near=FAR, min_score=1.0)
        with Pipeline(tmp_path / str(number), settings) as pipeline:
            for each in said:
                say(pipeline, [each])
            assert len(active(pipeline)) == 1, later
            assert len(pending(pipeline)) + len(past(pipeline)) == 1, later


def test_what_somebody_did_for_years_ends_with_it(tmp_path: Path) -> None:
    said = [
        (2020, "I live in Leeds."),
        (2022, "I've been living in Leeds for years."),
        (2024, "I live in Graz now."),
    ]
    for number, order in enumerate((said, [said[1], said[0], said[2]])):
        with loaded(tmp_path / str(number), order, FULL, [1, 2]) as pipeline:
            assert [row[0] for row in active(pipeline)] == ["Ana lives in Graz."]
            assert len(marks(pipeline)) == 2


def test_nobody_is_asked_about_what_has_ended(tmp_path: Path) -> None:
    """The former home ended with the one of 2024; the move of 2022, told last, ended it earlier."""
    said = [
        (2024, "I live in York with my wife."),
        (2020, "I live in Leeds."),
        (2022, "I moved to York."),
    ]
    with loaded(tmp_path, said, FULL, [1, 2]) as pipeline:
        assert pending(pipeline) == []
        assert "Ana moved to York." in [row[0] for row in active(pipeline)]
        assert past(pipeline) == [("Ana lives in Leeds.", 2020, 2022)]
