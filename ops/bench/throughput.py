"""Measures the throughput of the whole pipeline in turns per second, and where the time goes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import JsonValue
from pydantic_core import from_json

from palimpsest.ops.bench.loopback import started
from palimpsest.ops.embedded import Application, application
from palimpsest.ops.ingest.records import in_batches, turn_id_of_message
from palimpsest.ops.opening import publisher
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.output import published
from palimpsest.streams.runtime.runner import STEPS, StageRunner

SEED = 20_260_301
WORDS = 4_000
SYLLABLES = ("ka", "lo", "mi", "ren", "tu", "sa", "vor", "eli", "dan", "po", "gri", "hem")
FIRST_TURN = datetime(2026, 3, 1, tzinfo=UTC)
SESSION_TURNS = 20


@dataclass(frozen=True, slots=True)
class Load:
    """The load: `turns` over `scopes`, with `words` each. `stored` is the number of further turns
    that are processed before the clock starts."""

    turns: int
    scopes: int
    words: int = 14
    provider: str = "instant"
    stored: int = 0


def vocabulary() -> list[str]:
    """Returns made-up words, the same every time."""
    chance = random.Random(SEED)
    return ["".join(chance.choices(SYLLABLES, k=chance.randint(2, 4))) for _ in range(WORDS)]


def records(load: Load) -> Iterator[Outgoing]:
    """Yields the turns as records: words by Zipf's law, scopes in rotation."""
    chance = random.Random(SEED + 1)
    words = vocabulary()
    weights = [1.0 / rank for rank in range(1, WORDS + 1)]
    speakers = ("Ana", "Ben")
    for number in range(load.stored + load.turns):
        scope = f"bench-{number % load.scopes}"
        place = number // load.scopes
        said = " ".join(chance.choices(words, weights, k=load.words))
        turn = ConversationTurn(
            turn_id=f"t{place}",
            session_id=f"s{place // SESSION_TURNS}",
            speaker=speakers[place % 2],
            content=f"I keep {said}.",
        )
        yield published(
            CONVERSATION_TURNS,
            turn_id_of_message(scope, turn),
            scope,
            FIRST_TURN + timedelta(seconds=number),
            turn,
        )


async def measure(load: Load, overrides: Sequence[str], folder: Path | None) -> JsonObject:
    """Publishes, processes everything, and reports turns per second and seconds by stage and
    step."""
    with contextlib.ExitStack() as undo:
        where = folder or Path(undo.enter_context(tempfile.TemporaryDirectory()))
        settings = _settings(load, overrides, where, undo)
        ready = list(records(load))
        async with application(settings) as app:
            if load.stored:
                _publish(settings, ready[: load.stored])
                await app.run(until_drained=True)
                _start_anew(app)
            published = _publish(settings, ready[load.stored :])
            began = time.perf_counter()
            processor = time.process_time()
            await app.run(until_drained=True)
            seconds = time.perf_counter() - began
            busy = time.process_time() - processor
            stages = {name: _stage(of) for name, of in _by_stage(app.runners).items()}
            with app.shards[0].reading() as reader:
                stored = reader.execute("SELECT count(*) FROM memory_rows").fetchone()
    return {
        "turns": load.turns,
        "stored_before": load.stored,
        "scopes": load.scopes,
        "provider": load.provider,
        "publish_seconds": round(published, 3),
        "seconds": round(seconds, 3),
        "cpu_seconds": round(busy, 3),
        "turns_per_second": round(load.turns / seconds, 1),
        "memories": 0 if stored is None else int(stored[0]),
        "stages": {**stages},
    }


def _settings(
    load: Load, overrides: Sequence[str], folder: Path, undo: contextlib.ExitStack
) -> Settings:
    chosen = ["embedding.provider=hashing"]
    if load.provider == "instant":
        url = undo.enter_context(running_provider())
        chosen += ["llm.provider=openai", f"llm.base_url={url}", "llm.model=instant"]
        chosen += ["llm.concurrency=16", "worker.model_batch_records=128"]
    return load_settings([*chosen, *overrides], folder).settings


def _publish(settings: Settings, ready: Sequence[Outgoing]) -> float:
    began = time.perf_counter()
    with publisher(settings) as append:
        for batch in in_batches(ready):
            append(batch)
    return time.perf_counter() - began


def _start_anew(app: Application) -> None:
    """Prepares the same stages, on the warm stores, for another run with new counts."""
    app.worker = replace(app.worker)


def _by_stage(runners: Sequence[StageRunner]) -> Mapping[str, list[StageRunner]]:
    found: dict[str, list[StageRunner]] = {}
    for runner in runners:
        found.setdefault(runner.stage.name, []).append(runner)
    return found


def _stage(runners: Sequence[StageRunner]) -> JsonObject:
    return {
        "records": sum(runner.counts.records for runner in runners),
        "dead": sum(runner.counts.dead for runner in runners),
        "batches": sum(runner.counts.batches for runner in runners),
        "seconds": {
            step: round(sum(runner.counts.seconds.get(step, 0.0) for runner in runners), 3)
            for step in STEPS
        },
    }


# An instant model provider for benchmarks: a separate process that implements OpenAI's API.
# `python -m palimpsest.ops.bench.throughput [PORT]` prints its address and serves until stopped. It
# replies immediately and sensibly: the turn itself as the only fact, every decision an ADD. A
# benchmark with it measures the pipeline and the cost of requests, without model time.

MODEL = "instant"
MAX_FACT_CHARACTERS = 500


async def reply(body: bytes) -> JsonValue:
    if not body:
        return {"data": [{"id": MODEL}]}
    request = from_json(body)
    asked = str(request["messages"][-1]["content"])
    text = json.dumps(_said(asked))
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": len(asked) // 4, "completion_tokens": len(text) // 4},
    }


def _said(asked: str) -> dict[str, JsonValue]:
    if asked.startswith("New fact"):
        return {"action": "ADD", "targetId": None, "confidence": 0.9, "reason": "it is new"}
    if asked.startswith("A: "):
        return {"contradicts": False, "confidence": 0.9, "reason": "they agree"}
    parts = asked.split("\n----- turn ")
    said = parts[1].partition("\n")[2] if len(parts) > 1 else asked
    fact: dict[str, JsonValue] = {
        "content": said[:MAX_FACT_CHARACTERS],
        "type": "fact",
        "confidence": 0.9,
        "importance": 5,
    }
    return {"facts": [fact], "entities": []}


async def serve(port: int = 0) -> None:
    """Serves on a port of the loopback address (0: any free port); prints the base URL first."""
    server, url = await started(reply, port)
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    await server.serve_forever()


@contextlib.contextmanager
def running_provider(port: int = 0) -> Iterator[str]:
    """Yields the base URL of a provider process that ends with the context."""
    process = subprocess.Popen(  # noqa: S603 (own arguments, no shell)
        [sys.executable, "-m", "palimpsest.ops.bench.throughput", str(port)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(*map(int, sys.argv[1:])))
