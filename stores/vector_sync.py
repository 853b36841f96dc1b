"""Keeping LanceDB up with DuckDB in the background: many commits, one sync."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stores.vectors import Synced, VectorTable

PAUSE_SECONDS = 0.5
"""Between two syncs: a merge takes 10 to 20 ms however few rows it has."""


@dataclass(slots=True)
class SyncCounts:
    """What came of it so far; `failure` is the last error's text, None after a success."""

    syncs: int = 0
    failures: int = 0
    rebuilds: int = 0
    failure: str | None = None


class VectorSync:
    """One background task a shard. `changed` may be called as often as there are commits."""

    def __init__(self, table: VectorTable, pause: float = PAUSE_SECONDS) -> None:
        self.table = table
        self.counts = SyncCounts()
        self._pause = pause
        self._wanted = asyncio.Event()
        self._wanted.set()

    def changed(self) -> None:
        """There may be something new in DuckDB. From the loop's thread."""
        self._wanted.set()

    async def run(self) -> None:
        """Sync whenever something changed, until cancelled. An error never ends it: recall does
        not need this table while a scope is resident, and the next sync makes it anew."""
        while True:
            await self._wanted.wait()
            await self.once()
            await asyncio.sleep(self._pause)

    async def once(self) -> Synced | None:
        """Sync now, in a thread; None when it failed, which is counted."""
        self._wanted.clear()
        try:
            done = await asyncio.to_thread(self.table.sync)
        except Exception as error:
            self.counts.failures += 1
            self.counts.failure = str(error)
            return None
        self.counts.syncs += 1
        self.counts.rebuilds += done.rebuilt is not None
        self.counts.failure = None
        return done
