"""A pipeline whose models answer over real HTTP by a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from palimpsest.streams.models.ollama import OllamaLanguageModel
from tests.harness import Pipeline, pipeline_settings
from tests.servers import (
    MODEL,
    Behaviour,
    Late,
    Never,
    Raw,
    ScriptedProvider,
    Text,
    Trickle,
)

SHORT_S = 0.25
"""Stands for the 45 s of a real provider, as long as the script holds calls that never end."""
LONG_S = 60.0


def facts(*contents: str, confidence: Any = 0.9) -> Text:
    listed = [{"content": c, "type": "fact", "confidence": confidence} for c in contents]
    return Text(json.dumps({"facts": listed, "entities": []}))


GOOD = facts("Ana likes green tea")
SECOND = facts("Ana has a bicycle")
GARBAGE = {
    "garbage": Text("I am afraid I cannot do that."),
    "nothing": Text(""),
    "half-a-json": Text('{"facts": [{"content": "Ana likes gre'),
    "an-array": Text('["Ana likes green tea"]'),
    "no-answer-of-an-api": Raw(200, b"<html>Bad gateway</html>"),
    "a-megabyte": Text("tea " * 262_144),
    "wrong-schema": Text('{"answer": {"tea": "green"}}'),
    "facts-without-a-text": Text('{"facts": [{"content": null}], "entities": []}'),
    "only-thinking": Text("<think>Ana likes tea, so"),
}

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


def patient(language: OllamaLanguageModel, seconds: float) -> None:
    """Set the time-out of calls: a busy machine must not turn a good answer into a late one."""
    language._timeout_s = language._http._timeout_s = seconds


async def run(
    folder: Path,
    script: list[Behaviour],
    waits: Waits | None = None,
    decider: str = "rules",
    turns: tuple[str, ...] = ("I like green tea", "I have a bicycle"),
) -> tuple[Pipeline, ScriptedProvider]:
    """A pipeline that has drained these turns, one record at a time, with the script."""
    waits = waits or Waits()
    endless = sum(isinstance(said, Never | Trickle | Late) for said in script)
    async with ScriptedProvider(script) as server:
        language = OllamaLanguageModel(MODEL, server.url)
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
