"""Timers that check every open partition periodically alongside the stages, and publish.

Their only output is records of the log. They wait for records in flight: only a store that has
applied the whole log shows what is still to do, also while it is rebuilt or after days without a
worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from palimpsest.ops.maintenance.periodic import PeriodicTask, passing
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS, MEMORY_WRITES
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogReader, Outgoing
from palimpsest.streams.stage import Stage

logger = logging.getLogger(__name__)

SOON_SECONDS = 0.5
"""Delay before checking again whether records in flight have been applied."""
PUBLISHED = (CONVERSATION_TURNS.name, MEMORY_COMMANDS.name)


@dataclass(slots=True)
class _Seen:
    """The positions that the stages of a shard must reach before the shard is up to date."""

    shard: Shard
    published: Mapping[str, int]
    writes: int | None = None


class Applied:
    """Whether the shard of a partition has applied everything that was in the log at the first
    call."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._seen: dict[int, _Seen] = {}

    @property
    def waiting(self) -> bool:
        """Whether some partition is waited for."""
        return bool(self._seen)

    def forget(self, partition: int) -> None:
        """Forgets the partition: the next call is its first again."""
        self._seen.pop(partition, None)

    def keep(self, shards: Mapping[int, Shard]) -> None:
        """Forgets partitions that were closed or reopened: a partition may leave and come back."""
        for partition, seen in [*self._seen.items()]:
            if shards.get(partition) is not seen.shard:
                self.forget(partition)

    def __call__(self, partition: int, shard: Shard) -> bool:
        """Blocks. Raises LogError and the errors of a shard."""
        writes = MEMORY_WRITES.name
        seen = self._seen.get(partition)
        if seen is None:
            ends = {topic: self._log.end_offset(topic, partition) for topic in PUBLISHED}
            seen = self._seen[partition] = _Seen(shard, ends)
        if seen.writes is None:
            for topic, end in seen.published.items():
                if self._log.position("normalize", topic, partition) < end:
                    return False
            seen.writes = self._log.end_offset(writes, partition)
        return shard.cursor_of("apply-writes", writes) >= seen.writes


@dataclass(eq=False)
class PartitionTimer(ABC):
    """Checks all open shards that `shards` returns, which may change at any time, every `seconds`,
    sooner if records are in flight. `what` names it in warnings."""

    what: ClassVar[str]
    seconds: ClassVar[float]

    shards: Callable[[], Mapping[int, Shard]]
    log: LogReader
    append: Callable[[Sequence[Outgoing]], object]
    settings: Settings
    clock: Callable[[], datetime]

    def __post_init__(self) -> None:
        self._applied = Applied(self.log)

    @abstractmethod
    def waits(self, shard: Shard) -> bool:
        """Whether there seems to be something to do; records in flight may settle it."""

    @abstractmethod
    async def act(self, shard: Shard) -> None:
        """Does what is due, once the store has applied everything that was in the log."""

    def task(self) -> PeriodicTask:
        return PeriodicTask(self.what, self.seconds, self.once)

    def busy(self) -> bool:
        """Whether there is something to do in some partition."""
        for shard in self.shards().values():
            with contextlib.suppress(StoreClosed):  # the partition has moved to another worker
                if self.waits(shard):
                    return True
        return False

    async def once(self) -> float | None:
        """Checks every shard; returns the seconds until the next check if records are in flight."""
        shards = self.shards()
        self._applied.keep(shards)
        await asyncio.gather(*(self._looked(*each) for each in shards.items()))
        return SOON_SECONDS if self._applied.waiting else None

    async def _looked(self, partition: int, shard: Shard) -> None:
        with passing(self.what, partition):
            await self.look(partition, shard)

    async def look(self, partition: int, shard: Shard) -> None:
        """Acts once everything is applied that was in the log when work was first found."""
        if not await asyncio.to_thread(self.waits, shard):
            self._applied.forget(partition)
        elif await asyncio.to_thread(self._applied, partition, shard):
            self._applied.forget(partition)
            await self.act(shard)


def applies_commands(stages: Sequence[Stage]) -> bool:
    """Whether these stages apply published commands to the store."""
    return {"normalize", "apply-writes"} <= {stage.name for stage in stages}
