"""All that publishes alongside the stages of a worker: fetched documents, ends and summaries of
sessions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime

from palimpsest.ops.documents.fetcher import Fetcher
from palimpsest.ops.maintenance.partition_timer import PartitionTimer
from palimpsest.ops.maintenance.session_summaries import SummaryTimer
from palimpsest.ops.maintenance.session_timers import SilenceTimer
from palimpsest.ops.settings.sections import Settings
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogReader, Outgoing
from palimpsest.streams.runtime.model_port import ModelPort


class Publishing:
    """Its timers over the shards that `shards` tells as open, which may change at any time."""

    def __init__(
        self,
        shards: Callable[[], Mapping[int, Shard]],
        log: LogReader,
        append: Callable[[Sequence[Outgoing]], object],
        settings: Settings,
        clock: Callable[[], datetime],
        models: ModelPort,
    ) -> None:
        known = (shards, log, append, settings, clock)
        self._awaited: list[PartitionTimer] = [Fetcher(*known), SilenceTimer(*known)]
        self._others: list[PartitionTimer] = []
        if settings.summarizes:
            self._others.append(SummaryTimer(*known, models))

    def busy(self) -> bool:
        """Whether something is left to publish that a run until all is processed waits for. It
        waits for no summary: a model may be away for long."""
        return any(timer.busy() for timer in self._awaited)

    @contextlib.asynccontextmanager
    async def going_on(self, stop: Callable[[], None]) -> AsyncIterator[None]:
        """In the background, until the block ends; a failure ends it by `stop` and is raised."""
        async with contextlib.AsyncExitStack() as running:
            for timer in (*self._awaited, *self._others):
                await running.enter_async_context(timer.going_on(stop))
            yield
