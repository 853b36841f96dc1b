"""Reads the live log for a re-extraction, next to the worker and without a consumer group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from palimpsest.ops.replay.ledger import Ledger, Told
from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.commands import RememberCommand
from palimpsest.schemas.identity import command_memory_id, turn_memory_id
from palimpsest.schemas.messages import (
    CommandIntent,
    FactsExtracted,
    MemoryChange,
    MemoryWrite,
    NormalizedTurn,
    Outcome,
    RawTurnIntent,
)
from palimpsest.schemas.redaction import Redaction
from palimpsest.schemas.topics import (
    FACTS_EXTRACTED,
    MEMORY_CHANGES,
    MEMORY_WRITES,
    TOPICS,
    TURNS_NORMALIZED,
    Topic,
)
from palimpsest.streams.apply.command_work import command_id
from palimpsest.streams.logs.base import LogError, LogReader, Record
from palimpsest.streams.stage import Message

ERASED: Final = "purged"
"""The outcome that erases texts."""
BLOCK_RECORDS: Final = 256
"""Number of records read ahead: lookups by offset are mostly in order."""


def check_whole(reader: LogReader, read_through: Mapping[int, int]) -> None:
    """Raises LogError if the next records to read were deleted from the live log."""
    watermarks = getattr(reader, "watermarks", None)
    if watermarks is None:
        return  # an embedded log keeps memory-writes
    topic = MEMORY_WRITES.name
    places = [(topic, number) for number in range(reader.partitions(topic))]
    for (_, number), found in watermarks(places).items():
        if found.beginning > read_through.get(number, 0):
            raise LogError(
                f"{topic}[{number}] begins at offset {found.beginning}: what was before was"
                " deleted (`palimpsest topics delete-records`, or a retention on the broker), and"
                " no branch can be made of it any more"
            )


@dataclass(frozen=True, slots=True)
class Frontier:
    """The progress of one partition of the live memory: the next offset of memory-writes that
    apply-writes has not executed, and the first intent before it that was not extracted from
    yet (None: there is none)."""

    applied: int
    unextracted: str | None


@dataclass(slots=True)
class LiveLog:
    """Looks up records of the live log by the ledger's index."""

    reader: LogReader
    ledger: Ledger
    _blocks: dict[tuple[str, int], dict[int, Record]] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        return self.reader.partitions(MEMORY_WRITES.name)

    def frontier(self, partition: int) -> Frontier:
        """Returns the frontier of a partition. Reads the position of apply-writes first, so that
        all extractions before the frontier are in the log."""
        applied = self.reader.position("apply-writes", MEMORY_WRITES.name, partition)
        end = self.reader.end_offset(TURNS_NORMALIZED.name, partition)
        extracted = self.reader.position("extract", TURNS_NORMALIZED.name, partition)
        if extracted >= end:
            return Frontier(applied, None)
        waiting = self.reader.read(TURNS_NORMALIZED.name, partition, extracted, 1)
        message = decoded(waiting[0]) if waiting else None
        return Frontier(applied, None if message is None else message.causation_id)

    def scan(self, partition: int) -> None:
        """Extends the index of a partition to the end of the log. Blocks."""
        for records in self._unscanned(FACTS_EXTRACTED, partition):
            found = [(key, record.offset) for record in records for key in _extracted(record)]
            end = records[-1].offset + 1
            self.ledger.note_extracted(FACTS_EXTRACTED.name, partition, found, end)
        for records in self._unscanned(MEMORY_CHANGES, partition):
            told = [each for record in records for each in _told(record)]
            self.ledger.note_told(MEMORY_CHANGES.name, partition, told, records[-1].offset + 1)

    def _unscanned(self, topic: Topic, partition: int) -> Iterator[list[Record]]:
        end = self.reader.end_offset(topic.name, partition)
        offset = self.ledger.scanned(topic.name, partition)
        yield from blocks(self.reader, topic, partition, offset, end)

    def extracted(self, message: Message) -> FactsExtracted | None:
        """Returns the live extraction of a normalized turn, which has the same id in a branch. A
        redriven turn had a different id; its extraction is found by its memory."""
        assert isinstance(message.body, NormalizedTurn)
        turn = message.body
        memory_id = turn.memory_id or turn_memory_id(message.scope, turn.turn_id)
        place = self.ledger.extracted(message.id) or self.ledger.extracted(memory_id)
        found = None if place is None else self._message(FACTS_EXTRACTED, *place)
        body = None if found is None else found.body
        return body if isinstance(body, FactsExtracted) else None

    def without_erased(self, record: Record, message: Message) -> Record:
        """Returns the record of a turn or of a remembered text without texts that the live memory
        has erased since: on Kafka, and briefly in an embedded log, the record still has them."""
        memory_id = _memory_of(message)
        told = [] if memory_id is None else self.ledger.told_of_memory(memory_id)
        if memory_id is None or not told or record.value is None:
            return record
        scope = self.ledger.told_of_scope(message.scope)
        erased = any(each.event == ERASED for each in told) or any(
            each.event == ERASED and each.offset > told[0].offset for each in scope
        )
        if not erased:
            return record
        redaction = Redaction(message.scope, frozenset({memory_id}), {})
        return replace(record, value=redaction.value(record.value))

    def outcomes(self, told: Told) -> Sequence[Outcome]:
        """Returns all outcomes of the record that contains this one."""
        message = self._message(MEMORY_CHANGES, told.partition, told.offset)
        body = None if message is None else message.body
        return body.outcomes if isinstance(body, MemoryChange) else ()

    def _message(self, topic: Topic, partition: int, offset: int) -> Message | None:
        block = self._blocks.get((topic.name, partition), {})
        if offset not in block:
            records = self.reader.read(topic.name, partition, offset, BLOCK_RECORDS)
            block = {record.offset: record for record in records}
            self._blocks[topic.name, partition] = block
        return decoded(block[offset]) if offset in block else None


def blocks(
    reader: LogReader, topic: Topic, partition: int, offset: int, end: int
) -> Iterator[list[Record]]:
    """Yields the records of a partition from `offset` up to `end`, exclusive, in blocks."""
    while offset < end:
        records = reader.read(topic.name, partition, offset, BLOCK_RECORDS)
        within = [record for record in records if record.offset < end]
        if not within:
            return
        yield within
        offset = within[-1].offset + 1


def decoded(record: Record) -> Message | None:
    """Returns the message of a record, None if it is invalid."""
    try:
        return decode(record.value, TOPICS[record.topic], record.timestamp)
    except InvalidRecord:
        return None


def _memory_of(message: Message) -> str | None:
    """Returns the id of the memory that a message creates from its text."""
    write = message.body.write if isinstance(message.body, MemoryWrite) else None
    if isinstance(write, RawTurnIntent):
        return turn_memory_id(message.scope, write.turn.turn_id)
    if isinstance(write, CommandIntent) and isinstance(write.command, RememberCommand):
        return command_memory_id(message.scope, command_id(message))
    return None


def _extracted(record: Record) -> Iterator[str]:
    """Yields the index keys of an extraction: the message that caused it and the turn's memory."""
    message = decoded(record)
    if message is None or not isinstance(message.body, FactsExtracted) or message.body.round:
        return
    if message.causation_id is not None:
        yield message.causation_id
    yield message.body.turn.memory_id


def _told(record: Record) -> Iterator[Told]:
    message = decoded(record)
    if message is None or not isinstance(message.body, MemoryChange):
        return
    for outcome in message.body.outcomes:
        source = outcome.metadata.get("source_memory")
        yield Told(
            partition=record.partition,
            offset=record.offset,
            scope=message.scope,
            cause=message.causation_id,
            event=outcome.event,
            memory_id=outcome.memory_id,
            turn_id=source if isinstance(source, str) else None,
            item_id=outcome.item_id,
        )
