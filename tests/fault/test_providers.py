"""Every way in which a provider fails, over real HTTP and through the whole pipeline."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.schemas.topics import FACTS_EXTRACTED
from palimpsest.streams.models.ollama import OllamaLanguageModel
from palimpsest.streams.runtime.worker import Worker
from tests.fault.failing_providers import (
    GARBAGE,
    GOOD,
    HARMLESS_REPLY,
    SECOND,
    Waits,
    assert_accounted,
    facts,
    run,
    warnings,
)
from tests.harness import Pipeline, pipeline_settings
from tests.servers import (
    MODEL,
    Behaviour,
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


@pytest.mark.parametrize("said", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_is_asked_again_and_then_kept_as_a_dead_letter(
    said: Behaviour, tmp_path: Path
) -> None:
    pipeline, server = await run(tmp_path, [said, said, said, SECOND])
    assert len(server.posts) == 4
    [dead_letter] = pipeline.dead_letters()
    assert (dead_letter.stage, dead_letter.failure, dead_letter.attempts) == (
        "extract",
        "malformed-output",
        3,
    )
    assert dead_letter.raw_output is not None
    [row] = pipeline.rows("SELECT reason, raw_output, item_kind FROM dead_letter_rows")
    # The turn itself is stored, so no item of the balance is dead.
    assert (row["raw_output"], row["item_kind"]) == (dead_letter.raw_output, None)
    # The next turn is not held up.
    assert pipeline.memories() == ["Ana has a bicycle"]
    assert_accounted(pipeline)


async def test_garbage_once_costs_one_more_call(tmp_path: Path) -> None:
    pipeline, server = await run(tmp_path, [GARBAGE["garbage"], GOOD, SECOND])
    assert len(server.posts) == 3
    assert pipeline.memories() == ["Ana has a bicycle", "Ana likes green tea"]
    assert pipeline.values("SELECT attempts FROM extractions ORDER BY ALL") == [1, 2]
    assert pipeline.dead_letters() == []
    assert_accounted(pipeline)


async def test_more_than_any_model_says_is_refused_for_good(tmp_path: Path) -> None:
    pipeline, _ = await run(tmp_path, [Text("tea " * 2_000_000), SECOND])
    [dead_letter] = pipeline.dead_letters()
    assert dead_letter.failure == "invalid"
    assert "bytes" in dead_letter.reason
    assert pipeline.memories() == ["Ana has a bicycle"]
    assert_accounted(pipeline)


@pytest.mark.parametrize(
    ("confidence", "stored"),
    [(1e15, 1.0), ("90%", 0.9), ("sure", 0.8), ("low", None), (-3, None), (10**400, 1.0)],
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
async def test_what_passes_is_waited_for_in_order(said: Behaviour, tmp_path: Path) -> None:
    waits = Waits()
    pipeline, server = await run(tmp_path, [said, said, GOOD, SECOND], waits)
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
    [dead_letter] = pipeline.dead_letters()
    assert (dead_letter.stage, dead_letter.failure) == ("extract", "invalid")
    assert told in dead_letter.reason
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
