"""Models that are down when a process starts: it starts, says what it waits for, and does the
rest."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import pytest

from palimpsest import Memory
from tests.flows.program import Program

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


def test_run_once_does_what_it_can_and_says_what_is_left(tmp_path: Path) -> None:
    down = {f"PALIMPSEST_{key.upper().replace('.', '__')}": value for key, value in DOWN.items()}
    program = Program(tmp_path, **down)
    program.ok("ingest", program.turns("I keep bees on the roof."), "--scope", "ana")
    told = program.fails("run", "--once")
    for each in (*WAITS, "left: extract 1"):
        assert each in told
    assert "I keep bees on the roof." in program.ok("search", "bees", "--scope", "ana")
