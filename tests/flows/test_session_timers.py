"""The program itself ends silent sessions and has idle ones summed up, also after it was away."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from palimpsest.ops.maintenance import process
from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.models.base import Prompt
from palimpsest.streams.runtime.output import outgoing
from tests.harness import Clock
from tests.messages import published, turn
from tests.setting_lab import BASE
from tests.spoken_model import ScriptedModel

ENDED = "SELECT ended_by, last_turn = first_turn FROM session_rows"


def settings(folder: Path, *flags: str) -> Settings:
    return load_settings([*BASE, "extraction.roles=tool", *flags], folder, None, {}).settings


async def published_and_processed(folder: Path, clock: Clock, texts: list[str]) -> list[object]:
    """What is told of sessions once these turns and all that follows are processed."""
    async with application(settings(folder), clock=clock) as app:
        for number, text in enumerate(texts):
            app.log.append([outgoing(CONVERSATION_TURNS, published(turn(text, number)))])
        await app.run(until_drained=True)
        with app.shards[0].reading() as reader:
            return [row[0] for row in reader.execute(ENDED).fetchall()]


async def test_a_session_ends_that_fell_silent_while_no_worker_ran(tmp_path: Path) -> None:
    clock = Clock()
    assert await published_and_processed(tmp_path, clock, ["one"]) == [None]
    clock.advance(days=3)
    assert await published_and_processed(tmp_path, clock, []) == ["silence"]


async def test_turns_that_wait_in_the_log_are_no_silence(tmp_path: Path) -> None:
    clock = Clock()
    async with application(settings(tmp_path), clock=clock) as app:
        app.log.append([outgoing(CONVERSATION_TURNS, published(turn("one", 1)))])
        await app.run(until_drained=True)
        clock.advance(hours=1)
        app.log.append([outgoing(CONVERSATION_TURNS, published(turn("two", 2)))])
    assert await published_and_processed(tmp_path, clock, []) == [None]


async def test_an_idle_session_is_summed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked = Clock(), asyncio.Event()

    def answer(prompt: Prompt) -> str:
        assert prompt.purpose == "summarize"
        asked.set()
        return json.dumps({"summary": "Of tea."})

    await published_and_processed(tmp_path, clock, ["I like tea", "and milk", "and honey"])
    clock.advance(minutes=15)
    model = ScriptedModel(answer)
    monkeypatch.setattr(process, "language_model", lambda settings: model)
    remote = settings(tmp_path, "llm.provider=ollama")
    async with application(remote, clock=clock) as app:
        running = asyncio.create_task(app.run(until_drained=False))
        async with asyncio.timeout(60):
            await asked.wait()
            while True:
                with app.shards[0].reading() as reader:
                    found = reader.execute("SELECT summary FROM short_term_memory").fetchall()
                if found == [("Of tea.",)]:
                    break
                await asyncio.sleep(0.02)
        app.stop()
        await running
    assert len(model.prompts) == 1
