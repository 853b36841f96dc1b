"""What the settings of scheduled jobs and of retention change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from palimpsest.ops.lifecycle.retention import WINDOW_OF, windows_of
from palimpsest.ops.settings.sections import schedule_of
from tests.setting_lab import Case, Lab

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def next_hour(job: str) -> Callable[[Lab], Awaitable[object]]:
    async def see(lab: Lab) -> object:
        schedule = schedule_of(getattr(lab.settings.jobs, job))
        return None if schedule is None else schedule.following(NOON).hour

    return see


def window(step: str) -> Callable[[Lab], Awaitable[object]]:
    async def see(lab: Lab) -> object:
        with lab.shard() as shard, shard.reading() as reader:
            return windows_of(reader, lab.settings, "ana")[WINDOW_OF[step]]

    return see


CASES: dict[str, Case] = {
    "jobs.decay": Case(next_hour("decay"), ("03:00", "03:00 Europe/Berlin"), (3, 2)),
    "jobs.retention": Case(next_hour("retention"), ("every 6 h", "off"), (18, None)),
    "jobs.archive": Case(next_hour("archive"), ("every 24 h", "every 1 h"), (0, 13)),
    "jobs.profiles": Case(next_hour("profiles"), ("off", "04:00"), (None, 4)),
    "jobs.causes": Case(next_hour("causes"), ("off", "04:00"), (None, 4)),
    "jobs.consolidation": Case(next_hour("consolidation"), ("off", "04:00"), (None, 4)),
    "jobs.classification": Case(next_hour("classification"), ("off", "04:00"), (None, 4)),
    "jobs.aspects": Case(next_hour("aspects"), ("every 1 h", "off"), (13, None)),
    "jobs.maintenance": Case(next_hour("maintenance"), ("every 30 min", "off"), (12, None)),
    "jobs.health": Case(next_hour("health"), ("every 24 h", "every 1 h"), (0, 13)),
    "retention.history_days": Case(window("history"), (180, 30), (180, 30)),
    "retention.completed_days": Case(window("completed"), (14, 3), (14, 3)),
    "retention.dead_letter_days": Case(window("dead-letters"), (30, 7), (30, 7)),
    "retention.recall_days": Case(window("recalls"), (90, 7), (90, 7)),
}
