"""extract: one question a turn, asked again where the reply cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from palimpsest.schemas.echoes import marked
from palimpsest.schemas.extraction import FactsExtracted
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.messages import ContextTurn
from palimpsest.schemas.topics import FACTS_EXTRACTED, TURNS_NORMALIZED
from palimpsest.streams.extract import extract_stage
from palimpsest.streams.models.base import Prompt
from palimpsest.streams.normalize import normalized
from palimpsest.streams.stage import Generate, Message
from tests.harness import pipeline_settings
from tests.messages import BEGIN, envelope, turn
from tests.unit.by_hand import Driven, Store, context, drive

STAGE = extract_stage(pipeline_settings())


def message(content: str, number: int = 1, **fields: Any) -> Message:
    context = fields.pop("context", None)
    body = normalized("ana", turn(content, number, **fields))
    body = body.model_copy(update={"context": context})
    return envelope(body, TURNS_NORMALIZED, f"n{number}")


def extract(*replies: str, **fields: Any) -> Driven:
    store = Store(replies=list(replies))
    return drive(STAGE.process(message("I like tea.", **fields), context()), store)


def reply(*contents: str, entities: tuple[dict[str, Any], ...] = ()) -> str:
    facts = [{"content": text, "type": "preference", "confidence": 0.9} for text in contents]
    return json.dumps({"facts": facts, "entities": list(entities)})


def extracted(driven: Driven) -> FactsExtracted:
    [body] = driven.emitted(FACTS_EXTRACTED)
    assert isinstance(body, FactsExtracted)
    return body


def test_facts_carry_where_they_are_from_and_what_they_cost() -> None:
    body = extracted(extract(reply("Ana likes tea.", "Ana drinks it daily."), project="p"))
    assert [f.content for f in body.facts] == ["Ana likes tea.", "Ana drinks it daily."]
    assert len({f.item_id for f in body.facts}) == 2
    assert body.turn.memory_id == turn_memory_id("ana", "t1")
    assert (body.turn.session_id, body.turn.speaker, body.turn.project) == ("s1", "Ana", "p")
    assert (body.call.provider, body.call.model, body.call.attempts) == (
        "scripted",
        "scripted-1",
        1,
    )
    assert (body.call.input_tokens, body.call.output_tokens, body.round) == (10, 5, 0)


def test_the_same_turn_gives_the_same_ids() -> None:
    first, again = (extracted(extract(reply("Ana likes tea."))) for _ in range(2))
    assert first.facts == again.facts


def test_fact_ids_of_another_text_under_the_turn_id_are_others() -> None:
    first = extracted(extract(reply("Ana likes tea.")))
    other = extracted(extract(reply("Ana likes tea."), speaker="Ben"))
    assert first.facts[0].item_id != other.facts[0].item_id


def test_no_facts_is_a_result_too() -> None:
    assert extracted(extract(reply())).facts == ()


def test_an_unreadable_reply_is_asked_again() -> None:
    driven = extract("no", "[1]", reply("Ana likes tea."))
    assert len(driven.of(Generate)) == 3
    assert extracted(driven).call.attempts == 3
    assert driven.step.dead is None


def test_after_three_unreadable_replies_the_turn_is_dead_with_the_last_one() -> None:
    driven = extract("no", "never", "I said no")
    dead = driven.step.dead
    assert dead is not None
    assert (dead.failure, dead.raw_output, dead.attempts) == ("malformed-output", "I said no", 3)
    assert driven.step.emits == ()


def test_partial_results_are_used() -> None:
    given = '{"facts": [{"content": "Ana likes tea."}, {"content": "x"}, 3], "entities": "none"}'
    body = extracted(extract(given))
    assert [f.content for f in body.facts] == ["Ana likes tea."]
    assert body.warnings


@pytest.mark.parametrize("length", [12_000, 12_001, 50_000])
def test_a_long_turn_is_cut_and_marked(length: int) -> None:
    driven = drive(
        STAGE.process(message("x" * length), context()), Store(replies=[reply("Ana likes tea.")])
    )
    [ask] = driven.of(Generate)
    assert ask.prompt.user.count("x" * 12_000) == 1
    assert ("[truncated]" in ask.prompt.user) == (length > 12_000)
    assert "x" * 12_001 not in ask.prompt.user


def prompt_with(*earlier: ContextTurn) -> Prompt:
    [ask] = extract(reply(), context=earlier, number=3).of(Generate)
    assert isinstance(ask, Generate)
    return ask.prompt


def test_a_relation_with_a_secret_is_left_out_and_told() -> None:
    kept = {"source": "Ana", "relationship": "likes", "target": "tea", "confidence": 0.9}
    secret = {**kept, "relationship": "pays with", "target": "4111 1111 1111 1111"}
    body = extracted(extract(reply("Ana likes tea.", entities=(kept, secret))))
    assert [triple.target for triple in body.triples] == ["tea"]
    assert body.warnings == ("1 relation with a secret left out",)


def test_earlier_turns_are_shown_as_context() -> None:
    prompt = prompt_with(
        ContextTurn(speaker="Ana", occurred_at=BEGIN, content="I am in Oslo."),
        ContextTurn(speaker="Ben", occurred_at=BEGIN, content="It rains."),
    )
    assert prompt.user.index("I am in Oslo.") < prompt.user.index("It rains.")
    assert prompt.subject["context"] == [
        {
            "speaker": speaker,
            "role": "user",
            "occurred_at": "2026-03-01T09:30:00Z",
            "content": content,
        }
        for speaker, content in (("Ana", "I am in Oslo."), ("Ben", "It rains."))
    ]
    assert prompt_with().subject["context"] == []


def test_a_model_sees_no_echo_and_is_not_asked_about_one_alone() -> None:
    block = marked("## Profile\n- Ana likes coffee.")
    driven = drive(
        STAGE.process(message(f"{block}\nI like tea."), context()), Store(replies=[reply()])
    )
    [ask] = driven.of(Generate)
    assert ask.prompt.subject["content"] == "I like tea."
    assert "coffee" not in ask.prompt.user
    alone = drive(STAGE.process(message(block), context()), Store())
    assert (alone.of(Generate), alone.step.emits) == ([], ())


def test_the_model_sees_the_lines_and_the_clock_of_the_speaker() -> None:
    said = "My allergies:\n- walnuts\n- shellfish"
    body = normalized("ana", turn(said, 1), 540)
    asked = next(STAGE.process(envelope(body, TURNS_NORMALIZED, "n1"), context()))
    assert isinstance(asked, Generate)
    assert asked.prompt.subject["content"] == said
    assert f"\n{said}\n" in asked.prompt.user
    assert str(asked.prompt.subject["occurred_at"]).endswith("+09:00")
