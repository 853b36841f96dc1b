"""What one person says is compared with what they said before, whatever they are called."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from palimpsest.streams.claims.grammar import STAND_IN, plainly_named
from tests.harness import CAREFUL, Pipeline, pipeline_settings
from tests.messages import published, turn
from tests.unit.test_order_of_statements import FAR

NAMES = (
    *(
        "Ana B.",
        "J. R.",
        "Ana (work)",
        "Ana, HR",
        "Dr. Ana Berg, MD",
        "田中 花子",
        "Ben 😀",
        "Mom ❤️",
    ),
    *("user 1", "guest 2", "Mike 2", "sam@y.org", "sam#9999", "@ana", "The Boss", "ben kraus"),
    *(
        "ana maría",
        "van Dyke",
        "👑",
        "2pac",
        "+49 170 1234567",
        "~Lea~",
        "[bot] Ana",
        "Ana’s phone",
    ),
    *("user_2", "client-7", "Frau Schmidt", "ana.b", "Иван", "Ana"),
)
CHANGES = (
    ("I live in Graz.", "I moved to Oslo."),
    ("I am vegan.", "I eat meat now."),
    ("I am allergic to nuts.", "It turns out I'm not allergic to nuts."),
    ("I drink tea.", "I don't drink tea anymore."),
)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    settings = pipeline_settings(CAREFUL, near=FAR, min_score=1.0)
    made = Pipeline(tmp_path_factory.mktemp("names"), settings)
    for place, year in ((0, 2020), (1, 2022)):
        made.publish(
            *(
                published(
                    turn(change[place], f"{year} {change[place]}", speaker=name),
                    f"{number}-{about}",
                    occurred_at=datetime(year, 1, 1, tzinfo=UTC),
                )
                for number, name in enumerate(NAMES)
                for about, change in enumerate(CHANGES)
            )
        )
        made.run()
    return made


@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_a_change_waits_for_a_person(pipeline: Pipeline, number: int) -> None:
    for about, change in enumerate(CHANGES):
        scope = f"{number}-{about}"
        assert len(pipeline.memories(scope)) == 1, change
        waiting = pipeline.values("SELECT content FROM held_proposals WHERE scope = ?", scope)
        assert len(waiting) == 1, change


def test_the_name_is_one_word_of_the_statement() -> None:
    named = plainly_named("Ben 😀")
    assert named("Ben 😀 lives in Graz.") == f"{STAND_IN} lives in Graz."
    assert named("Ben 😀's sister lives in Graz.") == f"{STAND_IN}'s sister lives in Graz."
    assert named("Ben 😀😀 lives in Graz.") == "Ben 😀😀 lives in Graz."
    assert named("Lea lives with Ben 😀.") == "Lea lives with Ben 😀."
    assert plainly_named("Ana")("Ana lives in Graz.") == "Ana lives in Graz."


def test_those_of_another_person_stay_theirs(tmp_path: Path) -> None:
    with Pipeline(tmp_path, pipeline_settings(CAREFUL, near=FAR, min_score=1.0)) as pipeline:
        for number, (name, text) in enumerate(
            [
                ("Ben 😀", "I live in Graz."),
                ("Lea 🌸", "I moved to Oslo."),
                ("Kim B.", "I drink tea."),
            ]
        ):
            pipeline.publish(published(turn(text, number, speaker=name)))
            pipeline.run()
        assert len(pipeline.memories()) == 3
        assert pipeline.values("SELECT content FROM held_proposals") == []


@pytest.mark.parametrize(
    "namesake",
    [
        "My friend Ana lives in Rome.",
        "My daughter is also called Ana.",
        "My boss Ana lives in Oslo.",
        "My wife's name is Ana.",
    ],
)
def test_who_has_a_namesake_changes_their_own_only_as_a_person_says(
    tmp_path: Path, namesake: str
) -> None:
    with Pipeline(tmp_path, pipeline_settings(CAREFUL, near=FAR, min_score=1.0)) as pipeline:
        for year, text in ((2020, namesake), (2021, "I'm a vegan."), (2023, "I eat meat now.")):
            when = datetime(year, 1, 1, tzinfo=UTC)
            pipeline.publish(published(turn(text, year, speaker="Ana"), occurred_at=when))
            pipeline.run()
        assert "Ana is a vegan." in pipeline.memories()
        held = pipeline.values("SELECT content FROM held_proposals")
        assert held == ["Ana eats meat."]
