"""Who says "Great, I love traffic jams" likes none; who just loves jazz does."""

from __future__ import annotations

import pytest

from tests.unit.test_everyday_statements import facts

IRONIES = [
    "Great, I love traffic jams.",
    "I just love traffic jams.",
    "I love traffic jams.",
    "Oh sure, I just love waiting in line.",
    "I absolutely love waiting in line.",
    "Wonderful, I love delayed flights.",
    "Yay, I love Mondays.",
    "I just love Mondays.",
    "Oh yeah, I really enjoy paperwork.",
    "Sure, I love doing my taxes.",
    "Fantastic, I love spam calls.",
    "Nice, I love meetings.",
    "I just love meetings that could have been an email.",
    "Lovely, I adore flat tires.",
    "Of course I love being stuck in traffic.",
    "I do so love standing in line for hours.",
    "Great, I love traffic jams and rude drivers.",
    "I love paying bills.",
    "I just love getting parking tickets.",
    "I love hangovers.",
    "I love my job \U0001f644",
    "Brilliant, I love root canals.",
    "Right, because I love traffic jams.",
    "My wife just loves traffic jams.",
    "I'm a big fan of traffic jams.",
    "I just love mosquito bites.",
]
MEANT = [
    ("I just love jazz.", "Ana loves jazz."),
    ("Great, I love pizza.", "Ana loves pizza."),
    ("Oh sure, I love hiking.", "Ana loves hiking."),
    ("I love Mondays.", "Ana loves Mondays."),
    ("I absolutely love sushi!", "Ana loves sushi."),
    ("Yes, I really enjoy baking.", "Ana enjoys baking."),
    ("Of course I love dogs.", "Ana loves dogs."),
    ("I hate traffic jams.", "Ana hates traffic jams."),
    ("I don't like waiting in line.", "Ana does not like waiting in line."),
    ("Great, I hate meetings.", "Ana hates meetings."),
    ("I enjoy paperwork.", "Ana enjoys paperwork."),
    ("Nice, I love trains.", "Ana loves trains."),
    ("I just love rainy weather.", "Ana loves rainy weather."),
    ("I love bills of exchange.", "Ana loves bills of exchange."),
    ("Great, I love the sea.", "Ana loves the sea."),
    ("I just love line dancing.", "Ana loves line dancing."),
    ("I love my job \U0001f60d", "Ana loves their job."),
]


@pytest.mark.parametrize("said", IRONIES)
def test_what_nobody_likes_is_no_preference(said: str) -> None:
    assert [fact for fact in facts(said) if fact != "Ana has a wife."] == []


@pytest.mark.parametrize(("said", "fact"), MEANT)
def test_what_is_meant_is_a_preference(said: str, fact: str) -> None:
    assert facts(said) == [fact]
