"""Applies erasures to the branches of the data folder and to the output of replays, alongside the
stages of a worker, once they are finished in the live memory.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import duckdb

from palimpsest.ops.errors import RequestError
from palimpsest.ops.maintenance.log_rounds import LogRounds
from palimpsest.ops.parts import SetupError
from palimpsest.ops.replay.branches import read_branch
from palimpsest.ops.replay.erased_branches import (
    LiveErasures,
    count_erasures,
    erase_in_branch,
    live_erasures,
    reached,
    remove_leftovers,
)
from palimpsest.ops.replay.jobs import forget_told
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import SettingsError
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.database.damage import StoreDamaged
from palimpsest.stores.lock import FolderInUse
from palimpsest.stores.shard import Shard, StoreError
from palimpsest.streams.logs.base import LogError, LogReader

logger = logging.getLogger(__name__)
AGAIN_SECONDS: Final = 60.0
"""Delay before branches are checked again: one may have been in use, or be new."""
_PASSING: Final = (
    *(RequestError, SettingsError, SetupError, LogError, FolderInUse),
    *(StoreError, StoreDamaged, StoreClosed, OSError, duckdb.Error),
)


class BranchErasing(LogRounds):
    """Erases in the branches of these shards, whose log is `log`. Once `stopping` returns true, it
    finishes the current branch and leaves the others to the next worker."""

    passing = _PASSING
    left = "what was erased may still be in branches"

    def __init__(
        self,
        settings: Settings,
        log: LogReader,
        shards: Mapping[int, Shard],
        stopping: Callable[[], bool] = lambda: False,
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        super().__init__(wanted=True, wait=wait)
        self._settings = settings
        self._log = log
        self._shards = shards
        self._stopping = stopping
        self._monotonic = monotonic
        self._seen: tuple[int, ...] = ()
        self._not_before = -math.inf
        self._told: set[str] = set()

    def _round(self) -> int:
        folders = [self._settings.data_dir / name for name in ("branches", "replays")]
        if not any(folder.exists() for folder in folders) or self._stopping():
            return 0
        counts = count_erasures(self._shards)
        if counts == self._seen and self._monotonic() < self._not_before:
            return 0
        live = live_erasures(self._shards)
        if live is None or not live.erased:
            return 0
        self._seen, self._not_before = counts, self._monotonic() + AGAIN_SECONDS
        remove_leftovers(self._settings)
        changed = sum(self._reach(name, live) for name in self._branches() if not self._stopping())
        # Last: a replay reports on a branch only after the branch lost the texts.
        return changed + forget_told(self._settings, live.digest)

    def _branches(self) -> list[str]:
        files = (self._settings.data_dir / "branches").glob("*/branch.json")
        return sorted(file.parent.name for file in files)

    def _reach(self, name: str, live: LiveErasures) -> bool:
        """Returns whether a branch was brought up to date. A failure is logged once per branch and
        does not stop the others."""
        try:
            if reached(self._settings, name).digest == live.digest:
                return False
            branch = read_branch(self._settings, name)
            asyncio.run(erase_in_branch(self._settings, branch, live, self._log))
        except _PASSING as error:
            if name not in self._told:
                logger.warning("what was erased is still in the branch %s: %s", name, error)
            self._told.add(name)
            return False
        self._told.discard(name)
        return True
