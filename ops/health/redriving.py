"""Sends the records of dead letters again, and marks what became of them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from palimpsest.ops.reading.rows import Row, rows
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.codec import InvalidRecord, decode, encode
from palimpsest.schemas.envelope import Envelope, Frozen, derived_id
from palimpsest.schemas.identity import items_of
from palimpsest.schemas.messages import DeadLetterMark
from palimpsest.schemas.topics import DEAD_LETTERS, TOPICS, Topic
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.offload import in_thread
from palimpsest.streams.runtime.output import HEADERS, headers
from palimpsest.streams.runtime.tracing import untraced
from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.stage import Message

COLUMNS: Final = (
    "letter_id AS id, status, stage, failure, reason, scope, topic, partition, log_offset AS"
    " 'offset', attempts, item_kind, item_ids, first_failed_at, last_failed_at"
)
WHOLE: Final = (
    f"SELECT {COLUMNS}, record_key AS key, headers, raw_output, value_base64 FROM dead_letter_rows"
)


_THESE: Final = (
    " WHERE letter_id IN (SELECT unnest(?)) ORDER BY dead_letter_rows.first_failed_at, letter_id"
)
AT_ONCE: Final = 100
"""How many dead letters, each with its record, are read and sent together."""


@dataclass(frozen=True, slots=True)
class Redriver:
    """Sends dead letters of a partition again, as of `at`. They are rows of `WHOLE`."""

    shard: Shard
    partition: int
    settings: Settings
    append: Callable[[Sequence[Outgoing]], object]
    at: datetime

    @classmethod
    def of(cls, sources: Sources, partition: int) -> Redriver:
        known = (sources.shard(partition), partition, sources.settings)
        return cls(*known, sources.append, sources.now())

    def rows(self, ids: Sequence[str]) -> list[Row]:
        """The dead letters with these ids, the oldest first."""
        return rows(self.shard, f"{WHOLE}{_THESE}", [[*ids]])

    async def redrive_all(self, ids: Sequence[str]) -> AsyncIterator[tuple[Row, str | None]]:
        """Redrives the dead letters with these ids, the oldest first, and yields each with why it
        cannot be, or None."""
        query = f"SELECT letter_id AS id FROM dead_letter_rows{_THESE}"
        found = await asyncio.to_thread(rows, self.shard, query, [[*ids]])
        for first in range(0, len(found), AT_ONCE):
            some = [row["id"] for row in found[first : first + AT_ONCE]]
            whole = await asyncio.to_thread(self.rows, some)
            for told in zip(whole, await self.redrive(whole), strict=True):
                yield told

    def why_not(self, row: Row) -> str | None:
        """Returns why a dead letter cannot be sent again, or None."""
        if row["status"] == "redriven":
            return "it was redriven already"
        try:
            message = self.message(row)
        except InvalidRecord as error:
            return f"the record is no message and would fail the same way: {error}"
        if not {*row["item_ids"]} <= {*items_of(message).item_ids}:
            # The record is already counted as dead; its turn would be counted a second time.
            return (
                "the record could not be read when it came; publish it again with `palimpsest"
                f" dead-letters record {row['id']} | palimpsest ingest -`"
            )
        return None

    async def redrive(self, rows: Sequence[Row]) -> list[str | None]:
        """Appends the records to their topics under new ids, then marks the dead letters, all at
        once; returns for each why it cannot, or None. A crash between the two is repaired by a
        repetition: the new id of a record is the same, so the pipeline deduplicates it."""
        reasons, records = await asyncio.to_thread(self._again, rows)
        sent = [row for row, why in zip(rows, reasons, strict=True) if why is None]
        await self.mark(sent, "redriven", records)
        return reasons

    def _again(self, rows: Sequence[Row]) -> tuple[list[str | None], list[Outgoing]]:
        reasons, records = [], []
        for row in rows:
            reasons.append(self.why_not(row))
            if reasons[-1] is None:
                message = self.message(row)
                number = (message.redrive or 0) + 1
                again_id = derived_id("redrive", message.id, number)
                again = message.model_copy(update={"id": again_id, "redrive": number})
                traced = headers(untraced(again.correlation_id))
                records.append(self._outgoing(TOPICS[row["topic"]], row, again, traced))
        return reasons, records

    def message(self, row: Row) -> Message:
        """The message to send again, redacted: an old dead letter may predate today's redaction.
        Raises InvalidRecord."""
        value, topic = base64.b64decode(row["value_base64"]), TOPICS[row["topic"]]
        if topic.open_to_producers:
            value = Policy.of(self.settings.pii).value(topic.name, value)
        return decode(value, topic, None, self.settings.log.max_record_bytes)

    async def mark(
        self,
        rows: Sequence[Row],
        status: Literal["redriven", "dropped"],
        before: Sequence[Outgoing] = (),
    ) -> None:
        """Appends records and then the status, from which a rebuild restores it. Sets it at once,
        too: the audit stage, which does the same later, may not be running."""
        if not rows:
            return
        marks = [self._mark(row, status) for row in rows]
        await asyncio.to_thread(self.append, [*before, *marks])

        def write() -> None:
            with self.shard.writing() as connection:
                connection.execute(
                    "UPDATE dead_letter_rows SET status = ? WHERE letter_id IN (SELECT unnest(?))",
                    [status, [row["id"] for row in rows]],
                )

        async with self.shard.lock:
            await in_thread(write)

    def _mark(self, row: Row, status: Literal["redriven", "dropped"]) -> Outgoing:
        mark_id = derived_id("dead-letter-mark", row["id"], status)
        message = Envelope[Frozen](
            id=mark_id,
            schema="dead-letter-mark/1",
            scope=row["scope"],
            occurred_at=self.at,
            correlation_id=mark_id,
            causation_id=row["id"],
            body=DeadLetterMark(letter_id=row["id"], status=status),
        )
        return self._outgoing(DEAD_LETTERS, row, message, HEADERS)

    def _outgoing(
        self, topic: Topic, row: Row, message: Message, about: Mapping[str, bytes]
    ) -> Outgoing:
        key = message.scope if row["key"] is None else row["key"]
        value, partition = encode(message), self.partition
        return Outgoing(topic.name, message.scope, key.encode(), value, about, partition=partition)
