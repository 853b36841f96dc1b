"""The task that fetches what was queued, beside the stages.

Its only traces are records of the log: the text, or why there is none. A document waits until one
of them is applied, so a process that was killed in between fetches again. What the log has already
is not fetched: only when all that was in the log is applied is a document still without text one
that nobody has fetched, also where a store is rebuilt.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import duckdb

from palimpsest.ops.documents.fetching import fetch
from palimpsest.ops.documents.reading import NotReadError
from palimpsest.ops.documents.records import text_record, texts_that_fit
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import Actor
from palimpsest.schemas.document_commands import AddDocumentCommand, DocumentTextCommand
from palimpsest.schemas.document_rows import DocumentRow
from palimpsest.schemas.topics import MEMORY_COMMANDS, MEMORY_WRITES
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.database.damage import StoreDamaged
from palimpsest.stores.database.tables import select
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogError, LogReader, Outgoing
from palimpsest.streams.sensitive.policy import REFUSED, WHY_REFUSED, Policy
from palimpsest.streams.stage import Stage

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
AT_ONCE = 4
"""URLs that are fetched at the same time."""
FETCHER = Actor(id="fetcher", type="system")
_QUEUED = (
    "kind = 'url' AND chunks IS NULL AND error IS NULL AND deleted_at IS NULL"
    " ORDER BY created_at, document_id LIMIT 100"
)


@dataclass(slots=True)
class _Seen:
    """How far a partition's stages have to come, before what waits is known to wait."""

    commands: int
    writes: int | None = None


class Fetcher:
    """Fetches for all shards that `shards` tells as open, which may change at any time."""

    def __init__(
        self,
        shards: Callable[[], Mapping[int, Shard]],
        log: LogReader,
        append: Callable[[Sequence[Outgoing]], object],
        settings: Settings,
        clock: Callable[[], datetime],
    ) -> None:
        self._shards = shards
        self._log = log
        self._append = append
        self._settings = settings
        self._clock = clock
        self._policy = Policy.of(settings.pii)
        self._published: set[str] = set()
        self._seen: dict[int, _Seen] = {}

    @contextlib.asynccontextmanager
    async def going_on(self, stop: Callable[[], None]) -> AsyncIterator[None]:
        """In the background, until the block ends. What it fails for is raised at the end of the
        block, which `stop` brings about."""
        task = asyncio.create_task(self._run())
        task.add_done_callback(lambda done: None if done.cancelled() else stop())
        try:
            yield
        finally:
            task.cancel()
            [failure] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(failure, Exception):
            raise failure

    def busy(self) -> bool:
        """Whether some document waits for its text."""
        return any(
            row.document_id not in self._published
            for shard in self._shards().values()
            for row in _queued(shard)
        )

    async def _run(self) -> None:
        while True:
            for partition, shard in self._shards().items():
                try:
                    await self._look(partition, shard)
                except StoreClosed:
                    continue  # the partition has moved on meanwhile
                except (LogError, duckdb.Error, StoreDamaged) as error:
                    logger.warning("documents of partition %d wait: %s", partition, error)
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, partition: int, shard: Shard) -> None:
        if not await asyncio.to_thread(self._waiting, shard):
            self._seen.pop(partition, None)
            return
        if not await asyncio.to_thread(self._is_applied, partition, shard):
            return
        del self._seen[partition]
        waiting = await asyncio.to_thread(self._waiting, shard)
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(row: DocumentRow) -> None:
            async with limit:
                await self._take(row)

        await asyncio.gather(*map(one, waiting))

    def _waiting(self, shard: Shard) -> list[DocumentRow]:
        queued = _queued(shard)
        return [row for row in queued if row.document_id not in self._published]

    def _is_applied(self, partition: int, shard: Shard) -> bool:
        """Whether all is applied that was in the log when this was first asked."""
        commands, writes = MEMORY_COMMANDS.name, MEMORY_WRITES.name
        seen = self._seen.get(partition)
        if seen is None:
            seen = self._seen[partition] = _Seen(self._log.end_offset(commands, partition))
        if seen.writes is None:
            if self._log.position("normalize", commands, partition) < seen.commands:
                return False
            seen.writes = self._log.end_offset(writes, partition)
        return shard.cursor_of("apply-writes", writes) >= seen.writes

    def _records(self, scope: str, texts: Sequence[DocumentTextCommand]) -> list[Outgoing]:
        return [text_record(scope, text, self._clock(), FETCHER) for text in texts]

    def _without_secrets(self, text: str) -> str:
        """Before it is cut: a secret may lie across the edge of two chunks."""
        cleaned = self._policy.text(text)
        if self._policy.refuses and cleaned == REFUSED:
            raise NotReadError(WHY_REFUSED)
        return cleaned

    async def _take(self, row: DocumentRow) -> None:
        """Fetch, and append what came of it."""
        assert row.source is not None
        try:
            found = await fetch(row.source, self._settings.documents)
            asked = AddDocumentCommand(
                kind="url",
                content_type=found.content_type,
                chunk_characters=row.chunk_characters,
                chunk_overlap=row.chunk_overlap,
            )
            most = self._settings.log.max_record_bytes
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
            await asyncio.to_thread(self._append, records)
        except LogError as error:
            logger.warning("document %s, to be fetched again: %s", row.document_id, error)
        else:
            self._published.add(row.document_id)


def takes_documents(stages: Sequence[Stage]) -> bool:
    """Whether what is published here gets into the store by these stages."""
    return {"normalize", "apply-writes"} <= {stage.name for stage in stages}


def _queued(shard: Shard) -> list[DocumentRow]:
    with shard.reading() as reader:
        return select(reader, DocumentRow, _QUEUED, [])
