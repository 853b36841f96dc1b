"""Measures the throughput of the whole pipeline in turns per second, and where the time goes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from palimpsest.ops.bench.data_sets import publish
from palimpsest.ops.bench.instant_provider import running_provider
from palimpsest.ops.bench.made_up import SEED, Vocabulary, turn_records
from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.ops.telemetry.setup import set_up
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.runner import STEPS, Counts


@dataclass(frozen=True, slots=True)
class Load:
    """The load: `turns` over `scopes`, with `words` each. `stored` is the number of further turns
    that are processed before the clock starts."""

    turns: int
    scopes: int
    words: int = 14
    provider: str = "instant"
    stored: int = 0


def records(load: Load) -> Iterator[Outgoing]:
    return turn_records(load.stored + load.turns, load.scopes, Vocabulary(SEED + 1), load.words)


async def measure(load: Load, overrides: Sequence[str], folder: Path) -> JsonObject:
    """Publishes, processes everything, and reports turns per second and seconds by stage and
    step."""
    with contextlib.ExitStack() as undo:
        settings = _settings(load, overrides, folder, undo)
        ready = list(records(load))
        set_up(settings)  # only now: with telemetry.traces the stages decide what is traced
        async with application(settings) as app:
            if load.stored:
                publish(settings, ready[: load.stored])
                await app.run(until_drained=True)
                app.worker = replace(app.worker)  # the same stages on warm stores, with new counts
            began = time.perf_counter()
            publish(settings, ready[load.stored :])
            published = time.perf_counter() - began
            began, processor = time.perf_counter(), time.process_time()
            await app.run(until_drained=True)
            seconds, busy = time.perf_counter() - began, time.process_time() - processor
            stages: dict[str, list[Counts]] = {}
            for runner in app.runners:
                stages.setdefault(runner.stage.name, []).append(runner.counts)
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
        "stages": {
            name: {
                "records": sum(each.records for each in counts),
                "dead": sum(each.dead for each in counts),
                "batches": sum(each.batches for each in counts),
                "seconds": {
                    step: round(sum(each.seconds.get(step, 0.0) for each in counts), 3)
                    for step in STEPS
                },
            }
            for name, counts in stages.items()
        },
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
