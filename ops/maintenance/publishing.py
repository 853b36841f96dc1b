"""Publishers alongside the stages of a worker: fetched documents, session ends and summaries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from palimpsest.ops.documents.fetcher import fetch
from palimpsest.ops.documents.reading import NotReadError
from palimpsest.ops.documents.records import text_record, texts_that_fit
from palimpsest.ops.maintenance.partition_timer import PartitionTimer
from palimpsest.ops.maintenance.periodic import PeriodicTask
from palimpsest.ops.maintenance.session_summaries import SummaryTimer
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import (
    Actor,
    AddDocumentCommand,
    DocumentTextCommand,
    MemoryCommand,
    SessionEndCommand,
)
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.rows import DocumentRow, SessionRow
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.stores.database.tables import select
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogError, LogReader, Outgoing
from palimpsest.streams.memory_rows import effective
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.output import published
from palimpsest.streams.sensitive.policy import REFUSED, WHY_REFUSED, Policy
from palimpsest.streams.settings import Flags

logger = logging.getLogger(__name__)


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

    def tasks(self) -> list[PeriodicTask]:
        return [timer.task() for timer in (*self._awaited, *self._others)]


# Fetches queued documents. The only output is records of the log: the text, or why there is none. A
# document stays queued until one of them is applied, so a document is fetched again after a kill in
# between. A document whose record is in the log is not fetched.

FETCHES = 4
"""Maximum number of concurrent fetches."""
FETCHER = Actor(id="fetcher", type="system")
_QUEUED = (
    "kind = 'url' AND chunks IS NULL AND error IS NULL AND deleted_at IS NULL"
    " ORDER BY created_at, document_id LIMIT 100"
)


@dataclass(eq=False)
class Fetcher(PartitionTimer):
    """Fetches for all open shards, which `shards` returns and which may change at any time."""

    what = "documents"
    seconds = 0.5

    _published: set[str] = field(default_factory=set, init=False)

    def waits(self, shard: Shard) -> bool:
        """Whether a document waits for its text."""
        return bool(self._waiting(shard))

    async def act(self, shard: Shard) -> None:
        waiting = await asyncio.to_thread(self._waiting, shard)
        limit = asyncio.Semaphore(FETCHES)

        async def one(row: DocumentRow) -> None:
            async with limit:
                await self._take(row)

        await asyncio.gather(*map(one, waiting))

    def _waiting(self, shard: Shard) -> list[DocumentRow]:
        queued = _queued(shard)
        return [row for row in queued if row.document_id not in self._published]

    def _records(self, scope: str, texts: Sequence[DocumentTextCommand]) -> list[Outgoing]:
        return [text_record(scope, text, self.clock(), FETCHER) for text in texts]

    def _without_secrets(self, text: str) -> str:
        """Removes secrets before the text is chunked: a secret may span two chunks."""
        policy = Policy.of(self.settings.pii)
        cleaned = policy.text(text)
        if policy.refuses and cleaned == REFUSED:
            raise NotReadError(WHY_REFUSED)
        return cleaned

    async def _take(self, row: DocumentRow) -> None:
        """Fetches a document, and appends its text or the failure."""
        assert row.source is not None
        try:
            found = await fetch(row.source, self.settings.documents)
            asked = AddDocumentCommand(
                kind="url",
                content_type=found.content_type,
                chunk_characters=row.chunk_characters,
                chunk_overlap=row.chunk_overlap,
            )
            most = self.settings.log.max_record_bytes
            text = await asyncio.to_thread(self._without_secrets, found.text)
            title = self._without_secrets(found.title)
            texts = await asyncio.to_thread(
                texts_that_fit, row.document_id, text, asked, most, title
            )
            records = self._records(row.scope, texts)
            if any(len(record.value or b"") > most for record in records):
                raise NotReadError(
                    f"its chunks are larger than {most} bytes (log.max_record_bytes)"
                )
        except NotReadError as error:
            why = str(error)[:2_000]
            failed = DocumentTextCommand(document_id=row.document_id, error=why)
            records = self._records(row.scope, [failed])
        try:
            await asyncio.to_thread(self.append, records)
        except LogError as error:
            logger.warning("document %s, to be fetched again: %s", row.document_id, error)
        else:
            self._published.add(row.document_id)


def _queued(shard: Shard) -> list[DocumentRow]:
    with shard.reading() as reader:
        return select(reader, DocumentRow, _QUEUED, [])


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
