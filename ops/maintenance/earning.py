"""Scopes earn and lose permission to update and delete, by people's verdicts on proposals.

The newest `pipeline.earn_proposals` updates and deletes with a human verdict count: to apply or
confirm one is agreement; to dismiss, correct, forget or revert one is disagreement. The change is a
command in the log with a reason, like that of a person. A flag that a person set for the scope is
never overridden, and nothing is earned or lost while anything is frozen, or before the store has
applied all verdicts in the log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from palimpsest.ops.maintenance.own_commands import own_command
from palimpsest.ops.maintenance.partition_timer import Applied
from palimpsest.ops.maintenance.periodic import PeriodicTask, in_thread, passing
from palimpsest.schemas.commands import Actor, SetFlagsCommand
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogReader, Outgoing
from palimpsest.streams.memory_rows import effective
from palimpsest.streams.settings import PipelineSettings

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 30.0
EARNING: Final = Actor(id="earning", type="system")
SLIGHTLY: Final = 1e-9
"""Tolerance, so that 9 of 10 equals 0.9 in binary floating point."""

JUDGED: Final = """
SELECT scope, count(*) AS judged, sum(is_right::INTEGER) AS agreed FROM (
    SELECT scope, is_right,
        row_number() OVER (PARTITION BY scope ORDER BY judged_at DESC, item_id) AS number
    FROM main.decision_verdicts WHERE action IN ('UPDATE', 'DELETE'))
WHERE number <= ? GROUP BY scope ORDER BY scope
"""
CHANGES: Final = "SELECT count(*) FROM history_rows WHERE scope = ? AND event = 'flags'"


@dataclass(frozen=True, slots=True)
class Judged:
    """How many of the newest judged proposals people agreed with."""

    proposals: int = 0
    agreed: int = 0

    def __str__(self) -> str:
        return f"people agreed with {self.agreed} of the last {self.proposals} proposals"


def change_of(judged: Judged, earned: bool, settings: PipelineSettings) -> str | None:
    """Returns why a scope earns the permission, or loses one that it has `earned`; None if nothing
    changes. Losing it takes a clearly lower share than earning it, so that a single verdict does
    not flip it."""
    if not settings.earn_update_delete:
        return "pipeline.earn_update_delete is off" if earned else None
    bar = settings.earn_agreement
    if earned:
        lost = bar - settings.earn_margin
        fell = judged.agreed < lost * judged.proposals - SLIGHTLY
        return f"{judged}: less than {lost:.0%}" if fell else None
    enough = judged.proposals >= settings.earn_proposals
    if enough and judged.agreed >= bar * judged.proposals - SLIGHTLY:
        return f"{judged}: at least {bar:.0%}"
    return None


class Earning:
    """Grants and revokes the permission for all scopes of the open shards, which `shards`
    returns."""

    def __init__(
        self,
        shards: Callable[[], Mapping[int, Shard]],
        log: LogReader,
        append: Callable[[Sequence[Outgoing]], object],
        settings: PipelineSettings,
        clock: Callable[[], datetime],
    ) -> None:
        self._shards = shards
        self._applied = Applied(log)
        self._append = append
        self._settings = settings
        self._clock = clock
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def task(self) -> PeriodicTask:
        return PeriodicTask("what scopes earn", LOOK_SECONDS, in_thread(self.once))

    def once(self) -> bool:
        """Appends the changes that are due; returns whether there are any. Blocks, also while
        another thread runs it."""
        found = False
        with self._lock:
            shards = self._shards()
            self._applied.keep(shards)
            for partition, shard in shards.items():
                with passing("what scopes earn", partition):
                    found |= self._look(partition, shard)
        return found

    def _look(self, partition: int, shard: Shard) -> bool:
        """Returns whether there is something to change; appends the change once the store has
        applied the whole log."""
        if not self._changes(shard):
            self._applied.forget(partition)
            return False
        if not self._applied(partition, shard):
            return True
        self._applied.forget(partition)
        found = self._changes(shard)
        if found:
            self._append([record for _, record in found])
            self._told.update(record_id for record_id, _ in found)
        return bool(found)

    def _changes(self, shard: Shard) -> list[tuple[str, Outgoing]]:
        """Returns the changes not yet appended, as commands with their ids."""
        found = []
        for scope, earned, judged in self._candidates(shard):
            why = change_of(judged, earned, self._settings)
            if why is None:
                continue
            # The count of changes gives each further change a command id of its own.
            command = SetFlagsCommand(earned_update_delete=not earned, reason=why)
            changes = _count(shard, CHANGES, scope)
            record_id, record = own_command(scope, command, EARNING, self._clock(), changes)
            if record_id not in self._told:
                found.append((record_id, record))
        return found

    def _candidates(self, shard: Shard) -> list[tuple[str, bool, Judged]]:
        """Returns the scopes, whether each has earned the permission, and people's verdicts."""
        flags = dict(shard.flags)
        judged: dict[str, Judged] = {}
        if self._settings.earn_update_delete:
            with shard.reading() as reader:
                rows = reader.execute(JUDGED, [self._settings.earn_proposals]).fetchall()
            judged = {scope: Judged(int(count), int(right)) for scope, count, right in rows}
        found = []
        for scope in sorted(judged.keys() | flags.keys()):
            own = flags.get(scope)
            now = effective(self._settings, own)
            is_set = self._settings.allow_update_delete or (
                own is not None and own.allow_update_delete is not None
            )
            if is_set or now.mutations_frozen or now.autonomous_frozen:
                continue
            earned = own is not None and bool(own.earned_update_delete)
            found.append((scope, earned, judged.get(scope, Judged())))
        return found


def any_busy(*busy: Callable[[], bool]) -> Callable[[], bool]:
    """Returns a predicate that is true if any of these is, evaluated in order."""
    return lambda: any(each() for each in busy)


def _count(shard: Shard, query: str, scope: str) -> int:
    with shard.reading() as reader:
        row = reader.execute(query, [scope]).fetchone()
    assert row is not None
    return int(row[0])
