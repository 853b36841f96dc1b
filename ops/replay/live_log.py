"""The state that a re-extraction keeps in the branch's folder: an index of the live log, the turns
of the sample, the tokens that the models read and wrote, and the results of curation.

It is one SQLite file without any text of the memory. Only the process that has the branch's log
open writes it; any process may read it meanwhile.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Final, Self

from palimpsest.ops.errors import RequestError
from palimpsest.ops.replay.branches import branch_folder, read_branch
from palimpsest.ops.replay.log_reading import command_of, decoded, intent_of
from palimpsest.ops.replay.requests import Curated
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import RememberCommand
from palimpsest.schemas.erasure.redaction import Redaction
from palimpsest.schemas.extraction import FactsExtracted
from palimpsest.schemas.identity import command_memory_id, turn_memory_id
from palimpsest.schemas.messages import MemoryChange, NormalizedTurn, Outcome, RawTurnIntent
from palimpsest.schemas.topics import (
    FACTS_EXTRACTED,
    MEMORY_CHANGES,
    MEMORY_WRITES,
    TURNS_NORMALIZED,
    Topic,
)
from palimpsest.streams.apply.command_work import command_id
from palimpsest.streams.logs.base import LogError, LogReader, Record, blocks
from palimpsest.streams.stage import Message

CURATION_FILE: Final = "reextraction.sqlite"

# --- ledger ---------------------------------------------------------------------------------------

_TABLES = """
CREATE TABLE IF NOT EXISTS scanned (
    topic TEXT, partition INTEGER, next_offset INTEGER, PRIMARY KEY (topic, partition));
CREATE TABLE IF NOT EXISTS extracted (
    cause TEXT PRIMARY KEY, partition INTEGER, offset INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS told (
    partition INTEGER, offset INTEGER, scope TEXT, cause TEXT, event TEXT, memory_id TEXT,
    turn_id TEXT, item_id TEXT);
CREATE INDEX IF NOT EXISTS told_by_cause ON told (cause);
CREATE INDEX IF NOT EXISTS told_by_memory ON told (memory_id);
CREATE INDEX IF NOT EXISTS told_by_turn ON told (turn_id);
CREATE INDEX IF NOT EXISTS told_by_item ON told (item_id);
CREATE INDEX IF NOT EXISTS outcomes_of_scope ON told (scope) WHERE memory_id IS NULL;
CREATE TABLE IF NOT EXISTS sampled (message_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spent (calls INTEGER, input_tokens INTEGER, output_tokens INTEGER);
CREATE TABLE IF NOT EXISTS curated (
    command_id TEXT, command TEXT, scope TEXT, partition INTEGER, offset INTEGER, live_id TEXT,
    branch_id TEXT, matched_by TEXT, similarity REAL, status TEXT, detail TEXT);
CREATE UNIQUE INDEX IF NOT EXISTS curated_once
    ON curated (command_id, live_id, coalesce(branch_id, ''));
CREATE INDEX IF NOT EXISTS curated_by_memory ON curated (live_id);
"""

Row = tuple[str | int | None, ...]

_CURATED = tuple(field.name for field in fields(Curated))


@dataclass(frozen=True, slots=True)
class OutcomePlace:
    """One outcome in the live memory-changes: its location, the message that caused it, and the
    memory, turn and fact that it names."""

    partition: int
    offset: int
    scope: str
    cause: str | None
    event: str
    memory_id: str | None
    turn_id: str | None
    item_id: str


@dataclass(frozen=True, slots=True)
class Spent:
    """The usage of the language model for a branch, over all runs."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Ledger:
    """Opened with `Ledger.opened`; usable from any thread, by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    @contextlib.contextmanager
    def opened(cls, folder: Path) -> Iterator[Self]:
        """Yields the ledger of a branch's folder and creates it if there is none."""
        connection = sqlite3.connect(folder / CURATION_FILE, check_same_thread=False)
        try:
            # Each model call is recorded immediately: a kill loses none, without an fsync per call.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(_TABLES)
            with connection:
                connection.execute(
                    "INSERT INTO spent SELECT 0, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM spent)"
                )
            yield cls(connection)
        finally:
            connection.close()

    def _first(self, query: str, *values: object) -> tuple[int, ...] | None:
        row: tuple[int, ...] | None = self._connection.execute(query, values).fetchone()
        return row

    # --- where things lie in the live log ----------------------------------------------------

    def scanned(self, topic: str, partition: int) -> int:
        """Returns the next offset to scan."""
        query = "SELECT next_offset FROM scanned WHERE topic = ? AND partition = ?"
        row = self._first(query, topic, partition)
        return 0 if row is None else row[0]

    def note(
        self, topic: str, partition: int, table: str, rows: Sequence[Row], next_offset: int
    ) -> None:
        """Stores what was found up to an offset; of the extractions that a message caused the first
        one stays."""
        with self._connection as connection:
            if rows:
                places = ", ".join("?" * len(rows[0]))
                connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({places})", rows)
            connection.execute(
                "INSERT OR REPLACE INTO scanned VALUES (?, ?, ?)", (topic, partition, next_offset)
            )

    def extracted(self, cause: str) -> tuple[int, ...] | None:
        """Returns the partition and offset of the extraction that a message caused."""
        return self._first("SELECT partition, offset FROM extracted WHERE cause = ?", cause)

    def outcomes(self, before: int = 2**63 - 1, **named: str | None) -> list[OutcomePlace]:
        """Returns, in order, the outcomes of one `cause`, `memory_id`, `turn_id` or `item_id`: all,
        or those before an offset of memory-changes. An outcome of a scope as a whole has the
        `memory_id` None."""
        condition = " AND ".join(f"{name} IS ?" for name in named)
        rows = self._connection.execute(
            f"SELECT * FROM told WHERE {condition} AND offset < ? ORDER BY offset, rowid",
            (*named.values(), before),
        )
        return [OutcomePlace(*row) for row in rows]

    # --- the sample and the usage ------------------------------------------------------------

    def note_sampled(self, message_ids: Iterable[str]) -> None:
        with self._connection as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO sampled VALUES (?)", [(each,) for each in message_ids]
            )

    @property
    def has_sample(self) -> bool:
        return self._first("SELECT 1 FROM sampled LIMIT 1") is not None

    def is_sampled(self, message_id: str) -> bool:
        return self._first("SELECT 1 FROM sampled WHERE message_id = ?", message_id) is not None

    def note_spent(self, input_tokens: int, output_tokens: int) -> None:
        """Adds one call."""
        with self._connection as connection:
            connection.execute(
                "UPDATE spent SET calls = calls + 1, input_tokens = input_tokens + ?,"
                " output_tokens = output_tokens + ?",
                (input_tokens, output_tokens),
            )

    def spent(self) -> Spent:
        return Spent(*self._connection.execute("SELECT * FROM spent").fetchone())

    # --- curation ----------------------------------------------------------------------------

    def keep_curated(self, rows: Iterable[Curated]) -> None:
        """Stores these rows in one transaction; of known ones, the status and detail."""
        with self._connection as connection:
            connection.executemany(
                f"INSERT INTO curated ({', '.join(_CURATED)})"
                f" VALUES ({', '.join('?' * len(_CURATED))})"
                " ON CONFLICT (command_id, live_id, coalesce(branch_id, ''))"
                " DO UPDATE SET status = excluded.status, detail = excluded.detail",
                map(astuple, rows),
            )

    def curated(self, condition: str = "true", *values: object) -> list[Curated]:
        """Returns the matching rows in the order of the live log."""
        rows = self._connection.execute(
            f"SELECT {', '.join(_CURATED)} FROM curated WHERE {condition}"
            " ORDER BY partition, offset, rowid",
            values,
        )
        return [Curated(*row) for row in rows]


def curated_in(settings: Settings, name: str, status: str | None = None) -> list[Curated]:
    """Returns what people did and the result in a branch, of one status if one is named. Raises
    NotFoundError, and RequestError for a branch that is no re-extraction."""
    if read_branch(settings, name).kind != "reextraction":
        raise RequestError(f"{name} is no re-extraction: what people did was done again as it was")
    with Ledger.opened(branch_folder(settings, name)) as ledger:
        return ledger.curated("coalesce(status = ?, true)", status)


# --- live log -------------------------------------------------------------------------------------
# Reads the live log for a re-extraction, next to the worker and without a consumer group.

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


@dataclass(slots=True)
class LiveLog:
    """Looks up records of the live log by the ledger's index."""

    reader: LogReader
    ledger: Ledger
    _blocks: dict[tuple[str, int], dict[int, Record]] = field(default_factory=dict)

    def frontier(self, partition: int) -> tuple[int, str | None]:
        """Returns the progress of one partition of the live memory: the next offset of
        memory-writes that apply-writes has not executed, and the first intent before it that was
        not extracted from yet, if there is one. Reads the position of apply-writes first, so that
        all extractions before it are in the log."""
        applied = self.reader.position("apply-writes", MEMORY_WRITES.name, partition)
        end = self.reader.end_offset(TURNS_NORMALIZED.name, partition)
        extracted = self.reader.position("extract", TURNS_NORMALIZED.name, partition)
        if extracted >= end:
            return applied, None
        waiting = self.reader.read(TURNS_NORMALIZED.name, partition, extracted, 1)
        message = decoded(waiting[0]) if waiting else None
        return applied, None if message is None else message.causation_id

    def scan(self, partition: int) -> None:
        """Extends the index of a partition to the end of the log. Blocks."""
        for topic, table, found_in in (
            (FACTS_EXTRACTED, "extracted", _extracted),
            (MEMORY_CHANGES, "told", _told),
        ):
            end = self.reader.end_offset(topic.name, partition)
            offset = self.ledger.scanned(topic.name, partition)
            for records in blocks(self.reader, topic.name, partition, offset, end):
                rows = [row for record in records for row in found_in(record)]
                self.ledger.note(topic.name, partition, table, rows, records[-1].offset + 1)

    def extracted(self, message: Message) -> FactsExtracted | None:
        """Returns the live extraction of a normalized turn, which has the same id in a branch. A
        redriven turn had a different id; its extraction is found by its memory."""
        assert isinstance(message.body, NormalizedTurn)
        turn = message.body
        memory_id = turn.memory_id or turn_memory_id(message.scope, turn.turn_id)
        place = self.ledger.extracted(message.id) or self.ledger.extracted(memory_id)
        found = None if place is None else self._message(FACTS_EXTRACTED, place[0], place[1])
        body = None if found is None else found.body
        return body if isinstance(body, FactsExtracted) else None

    def without_erased(self, record: Record, message: Message) -> Record:
        """Returns the record of a turn or of a remembered text without texts that the live memory
        has erased since: on Kafka, and briefly in an embedded log, the record still has them."""
        intent, memory_id = intent_of(message), None
        if isinstance(intent, RawTurnIntent):
            memory_id = turn_memory_id(message.scope, intent.turn.turn_id)
        elif isinstance(command_of(message), RememberCommand):
            memory_id = command_memory_id(message.scope, command_id(message))
        told = [] if memory_id is None else self.ledger.outcomes(memory_id=memory_id)
        if memory_id is None or not told or record.value is None:
            return record
        scope = self.ledger.outcomes(scope=message.scope, memory_id=None)
        erased = any(each.event == ERASED for each in told) or any(
            each.event == ERASED and each.offset > told[0].offset for each in scope
        )
        if not erased:
            return record
        redaction = Redaction(message.scope, frozenset({memory_id}), {})
        return replace(record, value=redaction.value(record.value))

    def outcomes(self, told: OutcomePlace) -> Sequence[Outcome]:
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


def _extracted(record: Record) -> Iterator[Row]:
    """Yields the place of an extraction by its index keys: the message that caused it and the
    turn's memory."""
    message = decoded(record)
    if message is None or not isinstance(message.body, FactsExtracted):
        return
    if message.body.round or message.body.is_of_session:
        return
    if message.causation_id is not None:
        yield message.causation_id, record.partition, record.offset
    yield message.body.turn.memory_id, record.partition, record.offset


def _told(record: Record) -> Iterator[Row]:
    message = decoded(record)
    if message is None or not isinstance(message.body, MemoryChange):
        return
    for outcome in message.body.outcomes:
        source = outcome.metadata.get("source_memory")
        turn_id = source if isinstance(source, str) else None
        named = (outcome.event, outcome.memory_id, turn_id, outcome.item_id)
        yield record.partition, record.offset, message.scope, message.causation_id, *named
