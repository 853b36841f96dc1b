"""Publishers alongside the stages of a worker: fetched documents, session ends and summaries."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from palimpsest.ops.documents.fetcher import Fetcher
from palimpsest.ops.maintenance.partition_timer import PartitionTimer
from palimpsest.ops.maintenance.session_summaries import SummaryTimer
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import Actor, MemoryCommand, SessionEndCommand
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.rows import SessionRow
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.stores.database.tables import select
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogReader, Outgoing
from palimpsest.streams.memory_rows import effective
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.output import published
from palimpsest.streams.settings import Flags


class Publishing:
    """Runs its timers over the open shards, which `shards` returns and which may change at any
    time."""

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
        """Whether a run until everything is processed still waits for something to be published.
        It does not wait for summaries: a model may be unavailable for long."""
        return any(timer.busy() for timer in self._awaited)

    @contextlib.asynccontextmanager
    async def running(self, stop: Callable[[], None]) -> AsyncIterator[None]:
        """Runs in the background until the block ends; a failure ends the block through `stop` and
        is raised."""
        async with contextlib.AsyncExitStack() as running:
            for timer in (*self._awaited, *self._others):
                await running.enter_async_context(timer.running(stop))
            yield


# Ends silent sessions, even if no further turn arrives in their scope.

AT_ONCE = 500
"""Maximum number of sessions that one check ends."""
SILENCE = Actor(id="silence", type="system")
_SILENT = (
    "ended_at IS NULL AND session_id <> '' AND last_recorded_at <= ?"
    " AND list_contains(?, scope) = ? ORDER BY last_recorded_at, scope, session_id"
    f" LIMIT {AT_ONCE}"
)


@dataclass(eq=False)
class SilenceTimer(PartitionTimer):
    """Publishes a `session-end` for every session that has been silent for `silence_minutes`. It
    names the newest turn, so a turn in flight keeps the session open, and its id derives from the
    session and that turn, so the same silence ends a session once. Scopes with the flag
    `autonomous_frozen` are skipped."""

    what = "silent sessions"
    seconds = 5.0

    _published: dict[Path, set[str]] = field(default_factory=dict, init=False)

    def waits(self, shard: Shard) -> bool:
        return bool(self._silent(shard))

    async def act(self, shard: Shard) -> None:
        silent = await asyncio.to_thread(self._silent, shard)
        records = [_end(session, self.clock()) for session in silent]
        if records:
            await asyncio.to_thread(self.append, records)
            self._published.setdefault(shard.folder, set()).update(map(_command_id, silent))

    def _silent(self, shard: Shard) -> list[SessionRow]:
        """Returns the silent sessions without a published end; a refused end is not repeated."""
        silence = timedelta(minutes=self.settings.sessions.silence_minutes)
        known = [self.clock() - silence, *exceptions(shard, self.settings.pipeline)]
        with shard.reading() as reader:
            found = {_command_id(row): row for row in select(reader, SessionRow, _SILENT, known)}
        published = self._published[shard.folder] = self._published.get(
            shard.folder, set()
        ).intersection(found)
        return [session for key, session in found.items() if key not in published]


def exceptions(shard: Shard, flags: Flags) -> tuple[list[str], bool]:
    """Returns the scopes whose flag `autonomous_frozen` differs from the default, and whether only
    these scopes may be changed."""
    frozen = flags.autonomous_frozen
    named = [
        scope
        for scope, row in shard.flags.items()
        if effective(flags, row).autonomous_frozen != frozen
    ]
    return named, frozen


def _command_id(session: SessionRow) -> str:
    # Includes the number of ends: the same turn may be the last one twice, after another end.
    return derived_id(
        "session-silent", session.scope, session.session_id, session.last_turn, session.ends
    )


def _end(session: SessionRow, at: datetime) -> Outgoing:
    command = SessionEndCommand(
        session_id=session.session_id, reason="silence", after_turn=session.last_turn
    )
    body = MemoryCommand(command=command, actor=SILENCE)
    return published(MEMORY_COMMANDS, _command_id(session), session.scope, at, body)
