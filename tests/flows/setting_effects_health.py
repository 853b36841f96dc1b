"""What the settings of maintenance change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from palimpsest.ops.health.repairs import maintain
from palimpsest.ops.operations.lifecycle.health import Diagnose
from palimpsest.ops.scheduling.jobs import JobContext
from palimpsest.ops.worker.local import sources_of
from tests.memory_rows import memory
from tests.setting_lab import Case, Lab

ALWAYS = ("maintenance.mode=execute", "maintenance.cooldown_minutes=0")
LOSE = "DELETE FROM fts_docs"


async def maintained(lab: Lab, *minutes: float) -> list[str]:
    """What maintenance says of memories that lose their postings, at these minutes."""
    told = []
    async with lab.ran("Ana likes tea") as seen:
        [shard] = [*sources_of(seen.app).shards.values()]
        for after in minutes:
            with shard.writing() as connection:
                connection.execute(LOSE)
            at = lab.clock() + timedelta(minutes=after)
            context = JobContext(shard, 0, at, lab.settings, seen.app.log, seen.app.log.append)
            told.append(await maintain(context))
    return told


async def repaired(lab: Lab) -> object:
    return ["; repaired, score" in told for told in await maintained(lab, 0)]


async def repaired_after_minutes(lab: Lab) -> object:
    return ["; repaired, score" in told for told in await maintained(lab, 0, 20, 40)]


async def stale(lab: Lab) -> object:
    long_ago = lab.clock() - timedelta(days=30)
    row: Any = memory("m", "Ana likes tea", last_accessed=long_ago, created_at=long_ago)
    async with lab.ran():
        pass  # begins the log, without which no store is one of this folder
    with lab.shard(row):
        pass
    async with lab.ran() as seen:
        sources = sources_of(seen.app)
        sources.now = lab.clock
        return Diagnose("stale").read(sources)["domains"]["stale"]["score"]


CASES = {
    "maintenance.mode": Case(repaired, ("observe", "execute"), ([False], [True])),
    "maintenance.cooldown_minutes": Case(
        repaired_after_minutes,
        (60, 30),
        ([True, False, False], [True, False, True]),
        ALWAYS[:1],
    ),
    "maintenance.hourly_budget": Case(
        repaired_after_minutes, (1, 2), ([True, False, False], [True, True, False]), ALWAYS
    ),
    "maintenance.stale_days": Case(stale, (90, 10), (1.0, 0.5)),
}
