"""Results that say the same in nearly the same words are one, and others take their places."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.operations.memories import Context, Recall
from palimpsest.schemas.identity import turn_memory_id
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.sessions_by_hand import ask

SAID = (
    "The dentist is on the 14th.",
    "the DENTIST is on the 14th!",
    "Reminder: the dentist is on the 14th",
    "FYI, reminder - the dentist  is on the 14th.",
    "Fwd: the dentist is on the 14th.",
    "Hi Ana, the dentist is on the 14th.",
)
OTHERS = (
    "The dentist is on the 15th.",
    "The dentist is not on the 14th.",
    "Is the dentist on the 14th?",
    "Our dentist has a new chair.",
)


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path, settings=pipeline_settings(FULL)) as made:
        yield made


def recalled(pipeline: Pipeline, text: str, **fields: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(pipeline, Recall(text, "ana", **fields))["results"]
    return found


def test_the_best_stays_and_names_the_sources_of_the_others(pipeline: Pipeline) -> None:
    pipeline.say(*SAID, *OTHERS)
    pipeline.run()
    ungrouped = recalled(pipeline, "when is the dentist on the 14th", group=False, limit=50)
    results = recalled(pipeline, "when is the dentist on the 14th", limit=5)
    turns = {turn_memory_id("ana", f"t{number}") for number in range(1, len(SAID) + 1)}
    [one] = [each for each in results if each["id"] in turns]
    assert {one["id"], *one["repeats"]} == turns
    assert {*one["source_ids"]} >= {f"t{number}" for number in range(1, len(SAID) + 1)}
    assert one["score"] == max(each["score"] for each in ungrouped if each["id"] in turns)
    assert {each["content"] for each in results} >= {*OTHERS}


@pytest.mark.parametrize("limit", [1, 2, 3, 8])
def test_freed_places_are_filled(pipeline: Pipeline, limit: int) -> None:
    pipeline.say(*(f"{'Reminder: ' * (n % 3)}The dentist is on the 14th." for n in range(40)))
    pipeline.say(*(f"Dentist number {n} is on holiday." for n in range(8)), first=41)
    pipeline.run()
    results = recalled(pipeline, "when is the dentist on the 14th", limit=limit)
    assert len(results) == limit
    whole = recalled(pipeline, "when is the dentist on the 14th", limit=9)
    assert [each["id"] for each in whole[:limit]] == [each["id"] for each in results]
    text = ask(pipeline, Context("when is the dentist on the 14th", "ana"))["text"]
    assert text.lower().count("the dentist is on the 14th") == 1


def test_who_speaks_and_which_day_it_was_are_kept_apart(pipeline: Pipeline) -> None:
    pipeline.say("I am allergic to kiwi.", "I am allergic to kiwi.")
    pipeline.say("I am allergic to kiwi.", first=3, speaker="Ben")
    pipeline.run()
    results = recalled(pipeline, "who is allergic to kiwi", types=["episodic"])
    assert sorted(each["who"] for each in results) == ["Ana", "Ben"]


def test_of_long_texts_only_exact_repeats_are_one(pipeline: Pipeline) -> None:
    minutes = " ".join(f"Point {n} of the minutes is about the roof." for n in range(120))
    pipeline.say(minutes, minutes, minutes.replace("roof", "cellar"))
    pipeline.say(minutes, first=4, speaker="Ben")
    pipeline.run()
    results = recalled(pipeline, "the minutes about the roof", types=["episodic"])
    assert sorted(each["who"] for each in results) == ["Ana", "Ana", "Ben"]
    [repeated] = [each for each in results if each["repeats"]]
    assert repeated["content"] == minutes


def test_short_answers_stay(pipeline: Pipeline) -> None:
    pipeline.say("Do you like tea?", "Yes, tea!", "Do you like green tea?", "Yes, tea!")
    pipeline.run()
    results = recalled(pipeline, "yes, tea", types=["episodic"])
    assert [each["content"] for each in results].count("Yes, tea!") == 2


def test_a_memory_that_a_repeat_stands_for_is_explained(pipeline: Pipeline) -> None:
    pipeline.say(*SAID[:2])
    pipeline.run()
    ids = [turn_memory_id("ana", "t1"), turn_memory_id("ana", "t2")]
    found = ask(pipeline, Recall("the dentist on the 14th", "ana", why_not=ids))
    reasons = {each["id"]: each["reason"] for each in found["why_not"]}
    assert sorted(reasons.values()) == ["grouped", "returned"]
