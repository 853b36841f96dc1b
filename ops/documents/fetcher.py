"""The task that fetches what was queued, alongside the stages.

Its only traces are records of the log: the text, or why there is none. A document waits until one
of them is applied, so a process that was killed in between fetches again. What the log has already
is not fetched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from palimpsest.ops.documents.fetching import fetch
from palimpsest.ops.documents.reading import NotReadError
from palimpsest.ops.documents.records import text_record, texts_that_fit
from palimpsest.ops.maintenance.partition_timer import PartitionTimer
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import Actor
from palimpsest.schemas.document_commands import AddDocumentCommand, DocumentTextCommand
from palimpsest.schemas.document_rows import DocumentRow
from palimpsest.stores.database.tables import select
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogError, LogReader, Outgoing
from palimpsest.streams.sensitive.policy import REFUSED, WHY_REFUSED, Policy

logger = logging.getLogger(__name__)

AT_ONCE = 4
"""URLs that are fetched at the same time."""
FETCHER = Actor(id="fetcher", type="system")
_QUEUED = (
    "kind = 'url' AND chunks IS NULL AND error IS NULL AND deleted_at IS NULL"
    " ORDER BY created_at, document_id LIMIT 100"
)


class Fetcher(PartitionTimer):
    """Fetches for all shards that `shards` tells as open, which may change at any time."""

    what = "documents"
    seconds = 0.5

    def __init__(
        self,
        shards: Callable[[], Mapping[int, Shard]],
        log: LogReader,
        append: Callable[[Sequence[Outgoing]], object],
        settings: Settings,
        clock: Callable[[], datetime],
    ) -> None:
        super().__init__(shards, log)
        self._append = append
        self._settings = settings
        self._clock = clock
        self._policy = Policy.of(settings.pii)
        self._published: set[str] = set()

    def waits(self, shard: Shard) -> bool:
        """Whether some document waits for its text."""
        return bool(self._waiting(shard))

    async def act(self, shard: Shard) -> None:
        waiting = await asyncio.to_thread(self._waiting, shard)
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(row: DocumentRow) -> None:
            async with limit:
                await self._take(row)

        await asyncio.gather(*map(one, waiting))

    def _waiting(self, shard: Shard) -> list[DocumentRow]:
        queued = _queued(shard)
        return [row for row in queued if row.document_id not in self._published]

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


def _queued(shard: Shard) -> list[DocumentRow]:
    with shard.reading() as reader:
        return select(reader, DocumentRow, _QUEUED, [])
