"""The conversations in which something stops being true, and what blocks show of them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from palimpsest.ops.bench.stale_set import conversations, play, shown_line, stated_facts
from palimpsest.ops.library.memory import Memory
from palimpsest.ops.requests import JsonObject

BUDGET: Final = 2_000
SETTINGS: Final = {
    "embedding.provider": "hashing",
    "llm.provider": "rules",
    "decision.decider": "model",
}


def measure_stale() -> JsonObject:
    """How many lines of blocks show what no longer holds without its mark."""
    played = conversations()
    faults: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        stated_facts(played),
        Memory(Path(folder), scope="stale", settings=SETTINGS) as memory,
    ):
        memory.aio.background.blocking(play(memory.aio, played))
        for each in played:
            for question in each.questions:
                block = memory.context(question, scope=each.scope, budget=BUDGET)
                faults += each.faults(map(shown_line, (block.text or "").splitlines()))
    return {"conversations": len(played), "faults": len(faults), "shown": [*faults]}
