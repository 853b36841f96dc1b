"""What looks at every open partition again and again alongside the stages, and publishes.

Its only traces are records of the log. What is on its way there already is waited for: only when
all that was in the log is applied does a partition's store tell what is still to be done, also
where it is rebuilt or was not worked on for days.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

import duckdb

from palimpsest.ops.maintenance.background import background_task
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS, MEMORY_WRITES
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.database.damage import StoreDamaged
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogError, LogReader, Outgoing
from palimpsest.streams.stage import Stage

logger = logging.getLogger(__name__)

SOON_SECONDS = 0.5
"""After which it is looked again whether what was on its way is applied."""
PUBLISHED = (CONVERSATION_TURNS.name, MEMORY_COMMANDS.name)


@dataclass(slots=True)
class _Seen:
    """How far the stages of a shard have to come, before what it tells is how it is."""

    shard: Shard
    published: Mapping[str, int]
    writes: int | None = None


class Applied:
    """Whether the shard of a partition knows all that was in the log when that was first asked."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._seen: dict[int, _Seen] = {}

    @property
    def waiting(self) -> bool:
        """Whether that was asked of some partition, and is not forgotten."""
        return bool(self._seen)

    def forget(self, partition: int) -> None:
        """When it is asked next, it is asked again."""
        self._seen.pop(partition, None)

    def keep(self, shards: Mapping[int, Shard]) -> None:
        """Forget what is not open any more, or is again: a partition may go and come back."""
        for partition, seen in [*self._seen.items()]:
            if shards.get(partition) is not seen.shard:
                self.forget(partition)

    def __call__(self, partition: int, shard: Shard) -> bool:
        """Blocks. Raises LogError and what a shard raises."""
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
    """Looks at all open shards that `shards` returns, which may change at any time, every
    `seconds`, sooner where something waits; `wait` passes them. `what` names it in warnings."""

    what: ClassVar[str]
    seconds: ClassVar[float]

    shards: Callable[[], Mapping[int, Shard]]
    log: LogReader
    append: Callable[[Sequence[Outgoing]], object]
    settings: Settings
    clock: Callable[[], datetime]
    wait: Callable[[float], Awaitable[object]] = field(default=asyncio.sleep, kw_only=True)

    def __post_init__(self) -> None:
        self._applied = Applied(self.log)

    @abstractmethod
    def waits(self, shard: Shard) -> bool:
        """Whether there seems to be something to do; what is on its way may settle it."""

    @abstractmethod
    async def act(self, shard: Shard) -> None:
        """Do what is to be done, now that the store knows all that was in the log."""

    def running(self, stop: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """In the background, until the block ends; as `background_task` tells."""
        return background_task(self._run(), stop)

    def busy(self) -> bool:
        """Whether there is something to do in some partition."""
        for shard in self.shards().values():
            with contextlib.suppress(StoreClosed):  # the partition has moved on meanwhile
                if self.waits(shard):
                    return True
        return False

    async def _run(self) -> None:
        while True:
            shards = self.shards()
            self._applied.keep(shards)
            await asyncio.gather(*(self._looked(*each) for each in shards.items()))
            await self.wait(SOON_SECONDS if self._applied.waiting else self.seconds)

    async def _looked(self, partition: int, shard: Shard) -> None:
        try:
            await self.look(partition, shard)
        except StoreClosed:
            pass  # the partition has moved on meanwhile
        except (LogError, duckdb.Error, StoreDamaged) as error:
            logger.warning("%s of partition %d wait: %s", self.what, partition, error)

    async def look(self, partition: int, shard: Shard) -> None:
        """Act, once all is applied that was in the log when there first was something to do."""
        if not await asyncio.to_thread(self.waits, shard):
            self._applied.forget(partition)
        elif await asyncio.to_thread(self._applied, partition, shard):
            self._applied.forget(partition)
            await self.act(shard)


def applies_commands(stages: Sequence[Stage]) -> bool:
    """Whether what is published here gets into the store by these stages."""
    return {"normalize", "apply-writes"} <= {stage.name for stage in stages}
