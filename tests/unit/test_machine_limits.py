"""What a model or an agent may not do by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.schemas.commands import ForgetCommand, MemoryPatch, ModifyCommand, RememberCommand
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.identity import turn_memory_id
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.spoken_model import ScriptedModel

AGENT = Actor(id="helper", type="agent")
SECRET = "AKIA" + "IOSFODNN7EXAMPLE"


def row(running: Pipeline) -> dict[str, Any]:
    [found] = running.rows("FROM memory_rows WHERE why = 'explicit'")
    return found


@pytest.mark.parametrize(
    "given", [{"content": "critical: tea is at four"}, {"pinned": True}, {"importance": 1.0}]
)
def test_an_agent_neither_pins_nor_makes_important(given: dict[str, Any], tmp_path: Path) -> None:
    command = RememberCommand(**{"content": "tea is at four", **given})
    with Pipeline(tmp_path, pipeline_settings(FULL)) as running:
        running.command(command, actor=AGENT)
        running.run()
        error, result = running.result(1)
        assert error is None
        assert "a person can do so" in result["lowered"]
        kept = row(running)
        assert (kept["pinned"], kept["importance"]) == (False, 0.8)
        for number, patch in enumerate(({"pinned": True}, {"importance": 0.9}), 2):
            patches = (MemoryPatch(memory_id=kept["memory_id"], **patch),)
            running.command(ModifyCommand(patches=patches, reason="so"), first=number, actor=AGENT)
            running.run()
            assert running.result(number)[1][0]["status"] == "forbidden"
        running.command(ModifyCommand(patches=patches, reason="so"), first=9)
        assert running.run().result(9)[1][0]["status"] == "updated"


@pytest.mark.parametrize("hard", [None, True])
def test_a_cascade_is_carried_out_whole_or_not_at_all(hard: bool | None, tmp_path: Path) -> None:
    with Pipeline(tmp_path, pipeline_settings(FULL)) as running:
        running.say("I live in Oslo.")
        running.run()
        [fact] = running.values("SELECT memory_id FROM memory_rows WHERE type <> 'episodic'")
        pin = ModifyCommand(patches=(MemoryPatch(memory_id=fact, pinned=True),), reason="so")
        running.command(pin, first=1)
        running.run()
        before = running.state_by_table()["memory_rows"]
        forget = ForgetCommand(
            memory_ids=(turn_memory_id("ana", "t1"),), reason="so", cascade=True, hard=hard
        )
        running.command(forget, first=2, actor=AGENT)
        running.command(forget, first=3)
        running.run()
        assert str(running.result(2)[0]).startswith("forbidden: nothing was forgotten")
        assert str(running.result(3)[0]).startswith("pinned: nothing was forgotten")
        assert running.state_by_table()["memory_rows"] == before


def test_what_a_model_says_has_no_secrets(tmp_path: Path) -> None:
    def answer(prompt: Any) -> str:
        fact = {"content": f"Ana's key is {SECRET}.", "type": "fact", "confidence": 0.9}
        told = {"source": "Ana", "relationship": "has key", "target": SECRET, "confidence": 0.9}
        return json.dumps({"facts": [fact], "entities": [told]})

    with Pipeline(tmp_path, pipeline_settings(FULL), language=ScriptedModel(answer)) as running:
        running.say("My key begins with AKIA, the rest is on the note.")
        running.run()
        assert running.values("SELECT count(*) FROM fact_rows") == [1]
        for table in ("fact_rows", "memory_rows", "name_rows"):
            assert SECRET not in str(running.rows(f"FROM {table}"))
