"""Whether a text asks to have something remembered: labelled sentences, and what follows of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palimpsest.schemas.messages import MemoryWrite, NormalizedTurn, RawTurnIntent
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.normalize import normalize_stage
from palimpsest.streams.rules.explicit_intent import PHRASES, asks_to_remember
from palimpsest.streams.settings import IntentSettings
from tests.messages import published, turn
from tests.unit.by_hand import TURN, context, drive, proposals
from tests.unit.proposals_by_hand import apply, weak

LABELLED = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "explicit_intent.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]
KNOWN_FALSE_ALARMS = {
    "Those were the days, remember them?",
    "I have to remember so many things at work.",
}


def test_no_labelled_wish_is_missed() -> None:
    wishes = [each["text"] for each in LABELLED if each["asks"]]
    assert len(wishes) >= 80
    assert [text for text in wishes if not asks_to_remember(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "Remember, you're great!",
        "Just remember that you are not alone.",
        "Remember to take care of yourself!",
        "Remember, it's okay to rest.",
    ],
)
def test_encouragement_is_no_wish(text: str) -> None:
    assert not asks_to_remember(text)


def test_look_alikes_are_no_wish() -> None:
    others = [each["text"] for each in LABELLED if not each["asks"]]
    assert len(others) >= 100
    assert {text for text in others if asks_to_remember(text)} == KNOWN_FALSE_ALARMS


@pytest.mark.parametrize(
    "text",
    [
        "ＲＥＭＥＭＢＥＲ that I like tea",
        "Don’t forget: tea, never coffee",
        "Donʼt forget the tea",
        "commit  to\tmemory: tea",
        "Remember\nthat I like tea",
        "後で使えるように　覚えておいて",
    ],
)
def test_forms_of_writing_do_not_matter(text: str) -> None:
    assert asks_to_remember(text)


def test_every_phrase_by_itself_is_a_wish() -> None:
    for phrase in PHRASES:
        assert asks_to_remember(f"{phrase}: tea"), phrase


def test_phrases_of_other_languages_can_be_added() -> None:
    assert not asks_to_remember("Merk dir: ich bin Veganer")
    more = ("merk dir", "기억해")
    assert asks_to_remember("Merk  dir: ich bin Veganer", more)
    assert not asks_to_remember("Ich merk dirndl", ("dir",))
    assert asks_to_remember("이거 기억해줘", more)
    assert not asks_to_remember("Er sagte: „Merk dir das“", more)
    assert not asks_to_remember("Remember that I like tea", more)
    assert not asks_to_remember("", ("", "  "))


def test_a_long_text_full_of_look_alikes_ends() -> None:
    assert not asks_to_remember("I remember. " * 50_000)


def of_turn(content: str, intent: IntentSettings | None = None, **fields: object) -> NormalizedTurn:
    stage = normalize_stage(intent=intent or IntentSettings())
    message = published(turn(content, **fields))
    [body] = drive(stage.process(message, context())).emitted(MEMORY_WRITES)
    assert isinstance(body, MemoryWrite)
    assert isinstance(body.write, RawTurnIntent)
    return body.write.turn


def test_normalize_marks_the_turns_of_users() -> None:
    assert of_turn("Remember that I like tea").explicit_long_term_memory_intent
    assert not of_turn("I like tea").explicit_long_term_memory_intent
    # An assistant that says "I'll remember that", or tells someone to, asks for nothing.
    assert not of_turn("Remember to drink", role="assistant").explicit_long_term_memory_intent


def test_the_phrases_are_settings() -> None:
    none = IntentSettings(phrases=())
    assert not of_turn("Remember that I like tea", none).explicit_long_term_memory_intent
    french = IntentSettings(more_phrases=("souviens-toi",))
    assert of_turn("Souviens-toi que j'aime le thé", french).explicit_long_term_memory_intent
    assert of_turn("Remember that I like tea", french).explicit_long_term_memory_intent


def test_a_fact_that_was_asked_for_passes_however_unsure_the_model_was() -> None:
    doubtful = weak("Ana likes black tea")
    assert apply(proposals(doubtful)).ends() == [("skipped", "low_fact_confidence")]
    asked = proposals(doubtful).model_copy(
        update={"turn": TURN.model_copy(update={"explicit_intent": True})}
    )
    assert [event for event, _ in apply(asked).ends()] == ["created"]
