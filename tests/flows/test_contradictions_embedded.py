"""The labelled pairs as `test_contradictions_labelled` has them, decided with the cosines and the
bands of the model that the language chooses."""

from __future__ import annotations

import pytest

from palimpsest.ops.parts import embedding_model
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.topics import FACTS_EXTRACTED
from palimpsest.streams.decide.decide import decide_stage
from tests.embedding_bands import cosines
from tests.messages import envelope
from tests.unit.by_hand import SCOPE, candidate, context, drive, memory
from tests.unit.test_contradictions_labelled import OVERWRITES, PAIRS, REAL, Pair
from tests.unit.test_decide import facts, finding, intent

pytestmark = pytest.mark.soak

ENGLISH, MULTILINGUAL = "answerai-colbert-small-int8", "multilingual-e5-small-q4"


def action(settings: Settings, pair: Pair, cosine: float) -> str:
    """What is decided of the new statement where the known one stands, so near to it."""
    message = envelope(facts(pair.new), FACTS_EXTRACTED, "x1", SCOPE)
    store = finding(candidate(memory("m", pair.known), cosine))
    [proposal] = intent(
        drive(decide_stage(settings).process(message, context(offset=7)), store)
    ).proposals
    return proposal.action


async def decided(settings: Settings, pairs: list[Pair]) -> list[str]:
    model = embedding_model(settings)
    near = (await cosines(model, {"": [(pair.known, pair.new) for pair in pairs]}))[""]
    await model.close()
    return [action(settings, pair, float(one)) for pair, one in zip(pairs, near, strict=True)]


@pytest.mark.parametrize(
    ("language", "model", "seen", "held_out"),
    [
        ("en", ENGLISH, 30, 23),
        ("de", MULTILINGUAL, 7, 3),
        ("ja", MULTILINGUAL, 5, 3),
    ],
)
async def test_contradictions_are_found_and_nothing_else(
    language: str, model: str, seen: int, held_out: int
) -> None:
    flags = [f"search.language={'none' if language == 'ja' else language}"]
    settings = load_settings(flags, environment={}).settings
    assert settings.embedding_model == model
    pairs = [pair for pair in PAIRS if pair.language == language]
    actions = await decided(settings, pairs)
    overwriting = ("UPDATE", "DELETE")
    found = [pair for pair, each in zip(pairs, actions, strict=True) if each in overwriting]
    assert all(pair.contradicts for pair in found)
    assert sum(not pair.held_out for pair in found) >= seen
    assert sum(pair.held_out for pair in found) >= held_out


async def test_what_was_written_before_the_rules_by_slot_is_near_enough() -> None:
    settings = load_settings(["search.language=en"], environment={}).settings
    english = [pair for pair in OVERWRITES if pair.language == "en"]
    assert {*await decided(settings, english)} <= {"ADD", "NONE"}
    assert (await decided(settings, REAL)).count("UPDATE") >= 70
