"""What the settings of accesses and decay change."""

from __future__ import annotations

import asyncio
from typing import Any

from palimpsest.ops.lifecycle.access import AccessRecorder
from palimpsest.ops.lifecycle.decay import preview
from palimpsest.ops.operations.memories import List, Recall
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.worker.local import sources_of
from palimpsest.schemas.topics import MEMORY_COMMANDS
from tests.setting_lab import Case, Lab


async def recorded(lab: Lab) -> object:
    """How many commands a question leaves, and whether the last one has its text."""
    async with lab.ran("I like tea") as seen:
        app = seen.app
        await DirectQueries(sources_of(app)).answer(Recall("what tea?", "ana"))
        known = (app.accesses, app.opened, app.log.append, app.settings, lab.clock)
        recorder = AccessRecorder(*known)
        recorder.flush()
        records = app.log.read(MEMORY_COMMANDS.name, 0, 0, 100)
        return len(records), any(b"what tea?" in (each.value or b"") for each in records)


async def soon_recorded(lab: Lab) -> object:
    """Whether the worker records a question within seconds."""
    async with lab.ran("I like tea") as seen:
        app = seen.app
        await DirectQueries(sources_of(app)).answer(Recall("what tea?", "ana"))
        appended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def append(records: Any) -> object:
            return loop.call_soon_threadsafe(appended.set)

        known = (app.accesses, app.opened, append, app.settings, lab.clock)
        async with AccessRecorder(*known).task().running():
            return await lab.happens(appended.wait(), 3.0)


async def shown_importance(lab: Lab) -> object:
    async with lab.ran("I like tea") as seen:
        lab.clock.advance(days=1)
        sources = sources_of(seen.app)
        sources.now = lab.clock
        answer: Any = await DirectQueries(sources).answer(List("ana", types=("episodic",)))
        return round(answer["memories"][0]["shown_importance"], 6)


async def would_fade(lab: Lab) -> object:
    async with lab.ran("I like tea") as seen:
        floor = lab.settings.decay.floor
        lab.clock.advance(days=20)
        return preview(seen.app.shards[0], "ana", floor, lab.clock(), 10)["faded"]


CASES = {
    "access.record": Case(recorded, (True, False), ((1, True), (0, False))),
    "access.keep_questions": Case(recorded, (True, False), ((1, True), (1, False))),
    "access.every_seconds": Case(soon_recorded, (0.1, 600.0), (True, False)),
    "decay.importance_rate": Case(shown_importance, (0.5, 1.0), (0.15, 0.3)),
    "decay.floor": Case(would_fade, (0.05, 0.5), (0, 1)),
}
