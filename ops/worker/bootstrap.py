"""The only place where it is chosen on which log a process works."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime

from palimpsest.ops.maintenance import embedded
from palimpsest.ops.maintenance.embedded import Application
from palimpsest.ops.maintenance.process import Process
from palimpsest.ops.parts import utc_now
from palimpsest.ops.replay.erased_branches import BranchErasing
from palimpsest.ops.scheduling.periodic import PeriodicTask
from palimpsest.ops.settings.sections import Settings
from palimpsest.streams.models.base import LanguageModel
from palimpsest.streams.models.settings import LlmSettings
from palimpsest.streams.runtime.runner import StageRunner


@contextlib.asynccontextmanager
async def running(
    settings: Settings, only: Sequence[str] = (), patient: bool = False
) -> AsyncIterator[Process]:
    """`application` on whichever log is set. With `patient` its `run` waits for a broker that is
    away."""
    if settings.log.kind == "kafka":
        from palimpsest.ops.kafka.application import kafka_application

        async with kafka_application(settings, only, patient=patient) as on_kafka:
            yield on_kafka
    else:
        async with application(settings, only) as joined:
            yield joined


@contextlib.asynccontextmanager
async def application(
    settings: Settings,
    only: Sequence[str] = (),
    on_batch: Callable[[StageRunner], Awaitable[None]] | None = None,
    clock: Callable[[], datetime] = utc_now,
    make_language: Callable[[LlmSettings], LanguageModel] | None = None,
) -> AsyncIterator[Application]:
    """`embedded.application`, which erases in the branches of its folder, too."""
    known = (settings, only, on_batch, clock, make_language)
    async with embedded.application(*known, tasks=_in_branches) as app:
        yield app


def _in_branches(app: Application) -> list[PeriodicTask]:
    return [BranchErasing(app.settings, app.log, app.shards, app.stopped.is_set).task()]
