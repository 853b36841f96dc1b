"""Providers that fail over embeddings and decisions, through the whole pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.streams.models.base import EmbeddingModel
from palimpsest.streams.models.ollama import OllamaEmbeddingModel
from palimpsest.streams.models.openai import OpenAIEmbeddingModel
from tests.fault.failing_providers import (
    GARBAGE,
    GOOD,
    HARMLESS_REPLY,
    Waits,
    assert_accounted,
    facts,
    run,
)
from tests.harness import DIMENSIONS, FULL, Pipeline, differing, pipeline_settings
from tests.servers import (
    MODEL,
    Behaviour,
    Call,
    Raw,
    Reset,
    ScriptedProvider,
    Text,
    fails,
)
from tests.spoken_model import ScriptedModel, spoken

# --- embeddings -------------------------------------------------------------------------------

PECULIAR = "Rita likes a text that no provider takes"


def takes_all_but_one(call: Call) -> Raw | None:
    asked = call.body.get("input")
    texts = asked if isinstance(asked, list) else [asked]
    return fails(400, "not this text") if any(PECULIAR in str(text) for text in texts) else None


@pytest.mark.parametrize("kind", ["ollama", "openai"])
async def test_a_refused_text_takes_no_other_vector_whatever_the_batch(
    kind: str, tmp_path: Path
) -> None:
    """Not of its batch and not of another scope: the state is the same for every batch size."""
    talk = (
        "Ana lives in Oslo near the harbour",
        "Ana likes green tea a lot",
        PECULIAR,
        "Now Ana lives in Bergen near the harbour",
        "Ana likes green tea a lot!",
        "Rita has two cats in Bergen",
    )
    states = []
    for batch in (1, 2, 256):
        async with ScriptedProvider(refusing=takes_all_but_one, dimensions=DIMENSIONS) as server:
            embedding: EmbeddingModel
            if kind == "ollama":
                embedding = OllamaEmbeddingModel(MODEL, DIMENSIONS, server.url)
            else:
                embedding = OpenAIEmbeddingModel(MODEL, DIMENSIONS, f"{server.url}/v1")
            settings = pipeline_settings(FULL, "model")
            with Pipeline(
                tmp_path / str(batch), settings, ScriptedModel(spoken), embedding, batch=batch
            ) as pipeline:
                pipeline.say(*talk)
                pipeline.say(*talk[:2], PECULIAR, scope="ben")
                await pipeline.drain()
                await embedding.close()
                assert pipeline.values(
                    "SELECT DISTINCT content FROM memory_rows m WHERE NOT EXISTS"
                    " (FROM embeddings e WHERE e.embedding_key = m.embedding_key)"
                ) == [PECULIAR]
                assert pipeline.balance().holds
                states.append(pipeline.state_by_table())
    assert differing(states[0], states[1]) == []
    assert differing(states[0], states[2]) == []


async def test_decide_waits_for_an_embedding_key_that_is_refused(tmp_path: Path) -> None:
    """With no vector every rephrased fact would look new, and the rules would guess."""
    waits = Waits()
    refused = fails(401, "who are you")
    bad: list[Raw] = [refused]
    async with ScriptedProvider(refusing=lambda call: bad[0] if bad else None) as server:
        embedding = OpenAIEmbeddingModel(MODEL, DIMENSIONS, f"{server.url}/v1")
        pipeline = Pipeline(tmp_path, embedding=embedding, wait=waits)
        seen: list[str] = []

        def look() -> None:
            seen.append(pipeline.models.outages["embedding"].reason)
            if len(waits.delays) == 3:
                bad.clear()

        waits.on_wait = look
        pipeline.say("I like green tea", "I have a bicycle")
        await pipeline.drain()
        await embedding.close()
    assert len(waits.delays) == 3
    assert all("set a valid API key" in reason for reason in seen)
    facts = "SELECT count(*) FROM memory_rows JOIN embeddings USING (embedding_key)"
    assert pipeline.values(f"{facts} WHERE type <> 'episodic'") == [2]
    assert pipeline.dead_letters() == []
    assert_accounted(pipeline)


# --- decisions --------------------------------------------------------------------------------

RIVAL = facts("Ana likes black tea")


def decision(action: str, **fields: Any) -> Text:
    said = {"action": action, "targetId": None, "confidence": 0.9, "reason": "so it is"} | fields
    return Text(json.dumps(said))


async def decided(
    folder: Path, *script: Behaviour, waits: Waits | None = None
) -> tuple[Pipeline, ScriptedProvider]:
    turns = ("I like green tea", "I like black tea")
    return await run(folder, [GOOD, RIVAL, *script], waits, "model", turns)


async def test_a_decision_that_cannot_be_read_leaves_the_fact_dead(tmp_path: Path) -> None:
    said = GARBAGE["wrong-schema"]
    pipeline, _ = await decided(tmp_path, said, said, said)
    [dead_letter] = pipeline.dead_letters()
    assert (dead_letter.stage, dead_letter.failure, dead_letter.item_kind) == (
        "decide",
        "malformed-output",
        "fact",
    )
    settled = pipeline.balance().facts
    assert (settled["extracted"], settled["created"], settled["dead"]) == (2, 1, 1)
    assert_accounted(pipeline)


async def test_a_decision_is_waited_for(tmp_path: Path) -> None:
    waits = Waits()
    pipeline, _ = await decided(tmp_path, Reset(), fails(500, "down"), decision("ADD"), waits=waits)
    assert len(waits.delays) == 2
    assert pipeline.memories() == ["Ana likes black tea", "Ana likes green tea"]
    assert_accounted(pipeline)


@pytest.mark.parametrize(
    "said",
    [
        decision("UPDATE", targetId="m-1"),
        decision("DELETE"),
        decision("ERASE EVERYTHING"),
        decision("UPDATE", reason=""),
    ],
)
async def test_a_decision_about_nobody_is_dropped_on_record(
    said: Behaviour, tmp_path: Path
) -> None:
    pipeline, _ = await decided(tmp_path, said)
    assert pipeline.balance().facts["dropped"] == 1
    assert pipeline.memories() == ["Ana likes green tea"]
    assert pipeline.values("SELECT count(*) FROM history_rows WHERE event = 'dropped'") == [1]
    assert_accounted(pipeline)


async def test_a_decision_refused_for_good_leaves_the_fact_dead(tmp_path: Path) -> None:
    refused = fails(400, "not this text")
    pipeline, _ = await decided(tmp_path, refused, HARMLESS_REPLY)
    [dead_letter] = pipeline.dead_letters()
    assert (dead_letter.stage, dead_letter.failure) == ("decide", "invalid")
    assert pipeline.balance().facts["dead"] == 1
    assert_accounted(pipeline)
