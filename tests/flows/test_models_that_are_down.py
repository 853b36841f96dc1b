"""Models that are down when a process starts: it starts, says what it waits for, and does the
rest."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

import pytest

from palimpsest import AsyncMemory, Memory
from palimpsest.ops.embedding import tracker
from tests.flows.program import Program
from tests.servers import Call, Late, ScriptedProvider, Text

NOWHERE: Final = "http://127.0.0.1:9"
"""A port that nothing listens at."""
DOWN: Final = {
    "embedding.provider": "ollama",
    "embedding.model": "nomic-embed-text",
    "embedding.base_url": NOWHERE,
    "llm.provider": "ollama",
    "llm.base_url": NOWHERE,
}
WAITS: Final = ("extraction waits, all else runs", "vectors wait, all else runs", NOWHERE)


def test_the_library_starts_without_its_models(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Memory(tmp_path, settings=DOWN) as memory:
        memory.add("I keep bees on the roof.", speaker="Ana")
        memory.remember("The hive key hangs in the cellar.")
        assert memory.recall("who keeps bees?").results[0].content == "I keep bees on the roof."
        assert memory.recall("hive key").results[0].content == "The hive key hangs in the cellar."
    for each in WAITS:
        assert each in caplog.text


async def test_a_provider_that_hangs_holds_up_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written is found by its words at once, and by what it means once there are vectors
    again."""
    monkeypatch.setattr(tracker, "TRACK_SECONDS", 0.05)
    hangs = True
    released = asyncio.Event()

    def behaves(call: Call) -> Late | None:
        return Late(released, Text("")) if hangs else None

    async with ScriptedProvider(models=["scripted"], dimensions=64, refusing=behaves) as server:
        settings = {
            "embedding.provider": "openai",
            "embedding.base_url": server.url,
            "embedding.model": "scripted",
            "embedding.dimensions": 64,
            "embedding.wait_seconds": 0.5,
            "access.record": False,
            "embedding.timeout_seconds": 600,
        }
        texts = [f"The key of room {number} hangs in the cellar." for number in range(8)]
        async with AsyncMemory(tmp_path, settings=settings, wait_seconds=120.0) as memory:
            for text in texts:
                await memory.remember(text)
            status = await memory.status()
            assert (
                "no vectors within 0.5 s (embedding.wait_seconds)"
                in status.providers["embedding"]["reason"]
            )
            found = await memory.recall("key of room 3")
            assert found.results[0].content == texts[3]
            assert found.method == "keyword"
            asked = len(server.posts)
            hangs = False
            released.set()
            # Vectors follow, and questions ask the provider again once the pause is over.
            while any(each.missing for each in (await memory.status()).embeddings):
                pass
            while (await memory.recall("key of room 3")).method != "hybrid":
                pass
        # One call a pause, of which the first is a second, and the tracker's.
        assert asked < len(texts)


def test_run_once_does_what_it_can_and_says_what_is_left(tmp_path: Path) -> None:
    down = {f"PALIMPSEST_{key.upper().replace('.', '__')}": value for key, value in DOWN.items()}
    program = Program(tmp_path, **down)
    program.ok("ingest", program.turns("I keep bees on the roof."), "--scope", "ana")
    told = program.fails("run", "--once")
    for each in (*WAITS, "left: extract 1"):
        assert each in told
    assert "I keep bees on the roof." in program.ok("search", "bees", "--scope", "ana")
