"""Every way in which a provider fails, over real HTTP and through the whole pipeline."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.topics import FACTS_EXTRACTED
from streams.models.base import EmbeddingModel
from streams.models.ollama import OllamaEmbeddingModel, OllamaLanguageModel
from streams.models.openai import OpenAIEmbeddingModel, OpenAILanguageModel
from streams.worker import Worker
from tests.harness import (
    DIMENSIONS,
    FULL,
    Pipeline,
    ScriptedModel,
    differing,
    pipeline_settings,
    spoken,
)
from tests.servers import (
    MODEL,
    Behaviour,
    Call,
    HalfBody,
    Late,
    Never,
    Raw,
    Reset,
    ScriptedProvider,
    Text,
    Trickle,
    fails,
)

SHORT_S = 0.25
"""Stands for the 45 s of a real provider, as long as the script holds calls that never end."""
LONG_S = 60.0


def facts(*contents: str, confidence: Any = 0.9) -> Text:
    listed = [{"content": c, "type": "fact", "confidence": confidence} for c in contents]
    return Text(json.dumps({"facts": listed, "entities": []}))


GOOD = facts("Ana likes green tea")
SECOND = facts("Ana has a bicycle")
HARMLESS_REPLY = Text("{}")
"""What the provider says to the harmless prompt that follows on a refusal."""


class Waits:
    """Stands for sleeping: notes how long it would have been."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.on_wait: Callable[[], None] = lambda: None

    async def __call__(self, seconds: float) -> None:
        self.delays.append(seconds)
        self.on_wait()
        await asyncio.sleep(0)


Language = OllamaLanguageModel | OpenAILanguageModel


def patient(language: Language, seconds: float) -> None:
    """Set the time-out of calls: a busy machine must not turn a good answer into a late one."""
    language._timeout_s = language._http._timeout_s = seconds


async def run(
    folder: Path,
    script: list[Behaviour],
    waits: Waits | None = None,
    decider: str = "rules",
    turns: tuple[str, ...] = ("I like green tea", "I have a bicycle"),
    provider: str = "ollama",
) -> tuple[Pipeline, ScriptedProvider]:
    """A pipeline that has drained these turns, one record at a time, with the script."""
    waits = waits or Waits()
    endless = sum(isinstance(said, Never | Trickle | Late) for said in script)
    async with ScriptedProvider(script) as server:
        language: Language
        if provider == "ollama":
            language = OllamaLanguageModel(MODEL, server.url)
        else:
            language = OpenAILanguageModel(MODEL, f"{server.url}/v1")
        patient(language, SHORT_S if endless else LONG_S)
        told = waits.on_wait

        def on_wait() -> None:
            told()
            if len(waits.delays) >= endless:
                patient(language, LONG_S)

        waits.on_wait = on_wait
        settings = pipeline_settings(decider=decider)
        pipeline = Pipeline(folder, settings, language, batch=1, wait=waits)
        for number, text in enumerate(turns, start=1):
            pipeline.say(text, first=number)
            await pipeline.drain()
        await language.close()
        return pipeline, server


def assert_accounted(pipeline: Pipeline) -> None:
    """Both turns are stored whatever the model did, and the balance holds."""
    balance = pipeline.balance()
    assert balance.holds
    assert balance.turns["stored"] == 2
    assert (balance.turns["in_flight"], balance.facts["in_flight"]) == (0, 0)
    pipeline.close()


def warnings(pipeline: Pipeline) -> str:
    return json.dumps(pipeline.values("SELECT warnings FROM extractions"))


GARBAGE = {
    "garbage": Text("I am afraid I cannot do that."),
    "nothing": Text(""),
    "half-a-json": Text('{"facts": [{"content": "Ana likes gre'),
    "an-array": Text('["Ana likes green tea"]'),
    "no-answer-of-an-api": Raw(200, b"<html>Bad gateway</html>"),
    "a-megabyte": Text("tea " * 262_144),
    "wrong-schema": Text('{"answer": {"tea": "green"}}'),
    "only-thinking": Text("<think>Ana likes tea, so"),
}


@pytest.mark.parametrize("said", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_is_asked_again_and_then_kept_as_a_dead_letter(
    said: Behaviour, tmp_path: Path
) -> None:
    pipeline, server = await run(tmp_path, [said, said, said, SECOND])
    assert len(server.posts) == 4
    [letter] = pipeline.dead_letters()
    assert (letter.stage, letter.failure, letter.attempts) == ("extract", "malformed-output", 3)
    assert letter.raw_output is not None
    [row] = pipeline.rows("SELECT reason, raw_output, item_kind FROM dead_letter_rows")
    # The turn itself is stored, so no item of the balance is dead.
    assert (row["raw_output"], row["item_kind"]) == (letter.raw_output, None)
    # The next turn is not held up.
    assert pipeline.memories() == ["Ana has a bicycle"]
    assert_accounted(pipeline)


@pytest.mark.parametrize("said", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_once_costs_one_more_call(said: Behaviour, tmp_path: Path) -> None:
    pipeline, server = await run(tmp_path, [said, GOOD, SECOND])
    assert len(server.posts) == 3
    assert pipeline.memories() == ["Ana has a bicycle", "Ana likes green tea"]
    assert pipeline.values("SELECT attempts FROM extractions ORDER BY ALL") == [1, 2]
    assert pipeline.dead_letters() == []
    assert_accounted(pipeline)


async def test_more_than_any_model_says_is_refused_for_good(tmp_path: Path) -> None:
    pipeline, _ = await run(tmp_path, [Text("tea " * 2_000_000), SECOND])
    [letter] = pipeline.dead_letters()
    assert letter.failure == "invalid"
    assert "bytes" in letter.reason
    assert pipeline.memories() == ["Ana has a bicycle"]
    assert_accounted(pipeline)


@pytest.mark.parametrize(
    ("confidence", "stored"),
    [(1e15, 1.0), ("sure", None), (-3, None), (10**400, 1.0), (None, None)],
)
async def test_odd_confidences_are_mended_with_a_warning(
    confidence: Any, stored: float | None, tmp_path: Path
) -> None:
    odd = facts("Ana likes green tea", confidence=confidence)
    pipeline, _ = await run(tmp_path, [odd, SECOND])
    assert "confidence" in warnings(pipeline)
    found = pipeline.values(
        "SELECT confidence FROM memory_rows WHERE content = 'Ana likes green tea'"
        " AND type <> 'episodic'"
    )
    # Below 0.7 the fact is extracted, and skipped on record.
    assert found == ([] if stored is None else [stored])
    assert pipeline.balance().facts["extracted"] == 2
    assert_accounted(pipeline)


async def test_a_wrong_shape_inside_loses_only_what_is_wrong(tmp_path: Path) -> None:
    said = {
        "facts": [
            {"content": "Ana likes green tea", "type": "wish", "confidence": 0.9},
            {"content": 7},
            "Ana",
            {"content": "x" * 5_000, "confidence": 0.9},
        ],
        "entities": [{"source": "", "relationship": "likes", "target": "tea"}, 3],
    }
    pipeline, _ = await run(tmp_path, [Text(json.dumps(said)), SECOND])
    rows = pipeline.rows("SELECT content, type FROM fact_rows ORDER BY length(content)")
    assert [len(row["content"]) for row in rows] == [17, 19, 2_000]
    assert rows[1] == {"content": "Ana likes green tea", "type": "fact"}
    assert "wish" in warnings(pipeline)
    assert_accounted(pipeline)


async def test_another_language_is_kept_as_it_is(tmp_path: Path) -> None:
    said = facts("アナさんは緑茶が大好きです", "أنا تحب الشاي الأخضر كثيرا")
    pipeline, _ = await run(tmp_path, [said, SECOND])
    assert {"アナさんは緑茶が大好きです", "أنا تحب الشاي الأخضر كثيرا"} <= set(pipeline.memories())
    assert_accounted(pipeline)


TRANSIENT = {
    "never": Never(),
    "a-byte-now-and-then": Trickle(),
    "reset": Reset(),
    "half-a-body": HalfBody(),
    "500": fails(500, "overloaded"),
    "503": Raw(503),
    "429": fails(429, "slow down"),
}


@pytest.mark.parametrize("said", TRANSIENT.values(), ids=TRANSIENT)
@pytest.mark.parametrize("provider", ["ollama", "openai"])
async def test_what_passes_is_waited_for_in_order(
    said: Behaviour, provider: str, tmp_path: Path
) -> None:
    waits = Waits()
    pipeline, server = await run(tmp_path, [said, said, GOOD, SECOND], waits, provider=provider)
    assert len(server.posts) == 4
    assert [int(delay) for delay in waits.delays] == [1, 2]
    assert all(delay % 1 <= 0.5 for delay in waits.delays)
    assert pipeline.memories() == ["Ana has a bicycle", "Ana likes green tea"]
    assert pipeline.dead_letters() == []
    assert pipeline.models.outages == {}
    assert_accounted(pipeline)


async def test_an_answer_after_the_time_out_is_not_used_twice(tmp_path: Path) -> None:
    released = asyncio.Event()
    waits = Waits()
    waits.on_wait = released.set
    pipeline, server = await run(tmp_path, [Late(released, GOOD), GOOD, SECOND], waits)
    assert len(server.posts) == 3
    assert len(waits.delays) == 1
    assert len(pipeline.messages(FACTS_EXTRACTED)) == 2
    assert pipeline.memories() == ["Ana has a bicycle", "Ana likes green tea"]
    assert_accounted(pipeline)


async def test_retry_after_is_honoured(tmp_path: Path) -> None:
    waits = Waits()
    pipeline, _ = await run(
        tmp_path, [fails(429, "slow down", Retry_After="7"), GOOD, SECOND], waits
    )
    [delay] = waits.delays
    assert 7.0 <= delay <= 7.5
    assert_accounted(pipeline)


async def test_five_minutes_of_500_lose_nothing(tmp_path: Path) -> None:
    waits = Waits()
    down = fails(500, "overloaded")
    pipeline, _ = await run(tmp_path, [*[down] * 14, GOOD, SECOND], waits)
    assert sum(waits.delays) >= 300.0
    assert [int(delay) for delay in waits.delays] == [1, 2, 4, 8, 16, *[30] * 9]
    assert pipeline.memories() == ["Ana has a bicycle", "Ana likes green tea"]
    assert pipeline.dead_letters() == []
    assert_accounted(pipeline)


async def test_while_it_is_down_turns_are_stored_and_the_outage_is_told(tmp_path: Path) -> None:
    waits = Waits()
    seen: list[Any] = []
    worker: Worker
    async with ScriptedProvider([fails(503, "loading the model")]) as server:
        language = OllamaLanguageModel(MODEL, server.url)
        with Pipeline(tmp_path, language=language, wait=waits) as pipeline:
            pipeline.say("I like green tea", "I have a bicycle")
            worker = pipeline.worker()
            applied = asyncio.Event()

            def look() -> None:
                stored = pipeline.values("SELECT count(*) FROM memory_rows")[0]
                if stored == 2 and pipeline.balance().turns["stored"] == 2:
                    seen.append(dict(pipeline.models.outages))
                    applied.set()
                    worker.stop()

            waits.on_wait = look
            await worker.run()
            assert applied.is_set()
            assert "loading the model" in seen[0]["llm:ollama"].reason
            assert pipeline.dead_letters() == []
            assert pipeline.balance().holds
            # It is up again: what waited is done, nothing was forgotten by the stop.
            server.script = [GOOD, SECOND]
            server._answered = 0
            pipeline.reopen()
            await pipeline.drain()
            await language.close()
            assert pipeline.memories() == ["Ana has a bicycle", "Ana likes green tea"]
            assert_accounted(pipeline)


ABOUT_THE_TEXT = {
    "400": (fails(400, "bad request"), "400"),
    "403": (fails(403, "your input was flagged"), "flagged"),
    "too-long": (fails(400, "prompt is too long: 99999 tokens"), "context is too long"),
}


@pytest.mark.parametrize(("said", "told"), ABOUT_THE_TEXT.values(), ids=ABOUT_THE_TEXT)
async def test_what_a_provider_refuses_of_one_turn_is_a_dead_letter_at_once(
    said: Behaviour, told: str, tmp_path: Path
) -> None:
    waits = Waits()
    pipeline, server = await run(tmp_path, [said, HARMLESS_REPLY, SECOND], waits)
    assert len(server.posts) == 3
    assert waits.delays == []
    [letter] = pipeline.dead_letters()
    assert (letter.stage, letter.failure) == ("extract", "invalid")
    assert told in letter.reason
    assert pipeline.memories() == ["Ana has a bicycle"]
    assert_accounted(pipeline)


ABOUT_THE_PROVIDER = {
    "401": (fails(401, "who are you"), "API key"),
    "403": (fails(403, "not you"), "rights"),
    "404": (fails(404, "model not found"), "ollama pull"),
    "400": (fails(400, "API key not valid"), "API key not valid"),
}


@pytest.mark.parametrize(("said", "told"), ABOUT_THE_PROVIDER.values(), ids=ABOUT_THE_PROVIDER)
async def test_a_key_that_expired_or_a_model_that_is_gone_is_waited_for(
    said: Behaviour, told: str, tmp_path: Path
) -> None:
    """It would be the same for every turn that waits: none is a dead letter for it."""
    waits, seen = Waits(), list[str]()
    ended: list[Pipeline] = []

    def look() -> None:
        seen.extend(outage.reason for p in ended for outage in p.models.outages.values())

    waits.on_wait = look
    script = [said, said, said, said, GOOD, SECOND]
    async with ScriptedProvider(script) as server:
        language = OllamaLanguageModel(MODEL, server.url)
        pipeline = Pipeline(tmp_path, pipeline_settings(), language, batch=1, wait=waits)
        ended.append(pipeline)
        pipeline.say("I like green tea", "I have a bicycle")
        await pipeline.drain()
        await language.close()
    assert len(waits.delays) == 2
    assert all(told in reason for reason in seen)
    assert len(seen) == 2
    assert pipeline.dead_letters() == []
    assert pipeline.models.outages == {}
    assert pipeline.memories() == ["Ana has a bicycle", "Ana likes green tea"]
    assert_accounted(pipeline)


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


@pytest.mark.parametrize("said", GARBAGE.values(), ids=GARBAGE)
async def test_a_decision_that_cannot_be_read_leaves_the_fact_dead(
    said: Behaviour, tmp_path: Path
) -> None:
    pipeline, _ = await decided(tmp_path, said, said, said)
    [letter] = pipeline.dead_letters()
    assert (letter.stage, letter.failure, letter.item_kind) == (
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
    [letter] = pipeline.dead_letters()
    assert (letter.stage, letter.failure) == ("decide", "invalid")
    assert pipeline.balance().facts["dead"] == 1
    assert_accounted(pipeline)
