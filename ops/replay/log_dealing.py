"""Writes a log with another number of partitions from one whose records are all processed.

The records keep their content, except for positions, which are rewritten: the record of a dead
letter, and what a decision had seen.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, product
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json, to_json

from palimpsest.ops.parts import utc_now
from palimpsest.ops.replay.live_log import decoded
from palimpsest.ops.replay.progress import Progress, Report
from palimpsest.ops.replay.recorded import Names, names_of, recorded
from palimpsest.schemas.identity import UNREADABLE_SCOPE, unreadable_item_id
from palimpsest.schemas.messages import DeadLetter, DeadLetterMark
from palimpsest.schemas.topics import (
    ALL_TOPICS,
    CACHE_INVALIDATIONS,
    CONVERSATION_TURNS,
    DEAD_LETTERS,
    FACTS_EXTRACTED,
    GRAPH_CHANGES,
    MEMORY_CHANGES,
    MEMORY_COMMANDS,
    MEMORY_HISTORY,
    MEMORY_WRITES,
    TURNS_NORMALIZED,
    Topic,
)
from palimpsest.streams.logs.appending import microseconds
from palimpsest.streams.logs.base import LogReader, Position, Record, partition_for
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.logs.view import LogView

# --- log plan -------------------------------------------------------------------------------------
# Where every record of a log goes in one of another number of partitions, and in which order.
#
# Within a scope nothing changes its order. Of different scopes memory-writes come in the order in
# which they were appended. Every other topic follows the order of memory-writes by what caused its
# records or came of them: so each stage of the new log has, partition by partition, gone through
# its records in order, as folds and `--until` take it. By append times alone it would not have: of
# two old partitions one may have waited for a model for an hour.
#
# The plan is a file that is made in one go, and thrown away.

FOLLOWED: Final = (MEMORY_HISTORY, CACHE_INVALIDATIONS)
"""Topics that no stage reads, only other programs, which keep their own offsets."""

_TABLES: Final = """
CREATE TABLE records(
    topic TEXT, old INTEGER, log_offset INTEGER, at INTEGER, target INTEGER, id TEXT, cause TEXT,
    failed_topic TEXT, failed_offset INTEGER, clock INTEGER, number INTEGER,
    PRIMARY KEY(topic, old, log_offset)
) WITHOUT ROWID;
CREATE TABLE written(
    old INTEGER, log_offset INTEGER, last INTEGER, target INTEGER, number INTEGER, sequence INTEGER,
    PRIMARY KEY(old, log_offset)
) WITHOUT ROWID
"""
_INDEXES: Final = """
CREATE INDEX by_id ON records(topic, target, id);
CREATE INDEX by_cause ON records(topic, target, cause)
"""
# The indexes are named: by the one of times every look-up goes through all records of the topic.
# By the record of `topic` in the same new partition that is the cause, or was caused.
_CAUSED_BY: Final = (
    "(SELECT min(c.clock) FROM records c INDEXED BY by_id WHERE c.topic = '{topic}'"
    " AND c.target = records.target AND c.id = records.cause AND c.id <> '')"
)
_CAME_OF: Final = (
    "(SELECT min(c.clock) FROM records c INDEXED BY by_cause WHERE c.topic = '{topic}'"
    " AND c.target = records.target AND c.cause = records.id AND c.cause <> '')"
)
_FAILED: Final = (
    "(SELECT f.clock FROM records f WHERE f.topic = records.failed_topic AND f.old = records.old"
    " AND f.log_offset = records.failed_offset AND f.target = records.target)"
)
_OF_ITS_TIME: Final = (
    "coalesce((SELECT w.clock FROM records w INDEXED BY by_time WHERE w.topic = 'memory-writes'"
    " AND w.target = records.target AND w.at <= records.at"
    " ORDER BY w.at DESC, w.clock DESC LIMIT 1), -1)"
)
_CLOCKS: Final[tuple[tuple[Topic, tuple[str, ...]], ...]] = (
    (TURNS_NORMALIZED, (_CAUSED_BY.format(topic=MEMORY_WRITES.name),)),
    (MEMORY_CHANGES, (_CAUSED_BY.format(topic=MEMORY_WRITES.name),)),
    (GRAPH_CHANGES, (_CAUSED_BY.format(topic=MEMORY_CHANGES.name),)),
    (
        FACTS_EXTRACTED,
        (
            _CAME_OF.format(topic=MEMORY_WRITES.name),
            _CAUSED_BY.format(topic=TURNS_NORMALIZED.name),
            _CAUSED_BY.format(topic=MEMORY_WRITES.name),
        ),
    ),
    (CONVERSATION_TURNS, (_CAME_OF.format(topic=MEMORY_WRITES.name),)),
    (MEMORY_COMMANDS, (_CAME_OF.format(topic=MEMORY_WRITES.name),)),
    (DEAD_LETTERS, (_FAILED,)),
)
_WRITES: Final = """
UPDATE records SET clock = n.number FROM (
    SELECT old, log_offset, row_number() OVER (PARTITION BY target ORDER BY at, old, log_offset) - 1
        AS number
    FROM records WHERE topic = 'memory-writes') AS n
WHERE records.topic = 'memory-writes' AND records.old = n.old
    AND records.log_offset = n.log_offset
"""
_NUMBERS: Final = """
WITH going AS (
    SELECT topic, old, log_offset, target,
        max(clock) OVER (PARTITION BY topic, target, old ORDER BY log_offset) AS clock
    FROM records)
UPDATE records SET number = n.number FROM (
    SELECT topic, old, log_offset,
        row_number() OVER (PARTITION BY topic, target ORDER BY clock, old, log_offset) - 1 AS number
    FROM going) AS n
WHERE records.topic = n.topic AND records.old = n.old AND records.log_offset = n.log_offset
"""
_WRITTEN: Final = """
WITH steps AS (
    SELECT old, log_offset, last - coalesce(max(last) OVER (PARTITION BY old ORDER BY log_offset
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS step
    FROM written),
placed AS (
    SELECT s.old, s.log_offset, r.target, r.number,
        sum(max(s.step, 0)) OVER (PARTITION BY r.target ORDER BY r.number) AS sequence
    FROM steps s JOIN records r ON r.topic = 'memory-writes' AND r.old = s.old
        AND r.log_offset = s.log_offset)
UPDATE written SET target = p.target, number = p.number, sequence = p.sequence FROM placed p
WHERE written.old = p.old AND written.log_offset = p.log_offset
"""


@dataclass(frozen=True, slots=True)
class RecordPosition:
    """The position of a record in a log."""

    partition: int
    offset: int


class LogPlan:
    """Places of all records in a log of `partitions`. Get one with `made`."""

    def __init__(self, connection: sqlite3.Connection, partitions: int) -> None:
        self._connection = connection
        self.partitions = partitions

    @classmethod
    @contextlib.contextmanager
    def made(
        cls, file: Path, log: LogReader, partitions: int, sequences: Mapping[int, Path]
    ) -> Iterator[LogPlan]:
        """Plan for all that lies in the log, of which nothing may come or go meanwhile; `sequences`
        are the files of `WriteSequences` by partition. Blocks. Raises LogError."""
        file.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
            for statement in ("PRAGMA journal_mode=OFF", "PRAGMA synchronous=OFF"):
                connection.execute(statement)
            plan = cls(connection, partitions)
            _made(connection, _Scan(log, partitions), sequences)
            yield plan
        file.unlink()

    def places(self, topic: str, partition: int) -> Iterator[tuple[RecordPosition, RecordPosition]]:
        """Yields, in order, the old and the new position of each record of a new partition."""
        rows = self._connection.execute(
            "SELECT old, log_offset, number FROM records WHERE topic = ? AND target = ?"
            " ORDER BY number",
            (topic, partition),
        )
        for old, offset, number in rows:
            yield RecordPosition(old, offset), RecordPosition(partition, number)

    def place_of(self, topic: str, old: RecordPosition) -> RecordPosition | None:
        """Returns the new position of a record; None for one that is gone."""
        row = self._connection.execute(
            "SELECT target, number FROM records WHERE topic = ? AND old = ? AND log_offset = ?",
            (topic, old.partition, old.offset),
        ).fetchone()
        return None if row is None else RecordPosition(*row)

    def first_from(self, topic: str, old: RecordPosition, partition: int) -> int | None:
        """The lowest offset in a new partition of what lies in an old one at `old` or later."""
        row = self._connection.execute(
            "SELECT number FROM records WHERE topic = ? AND old = ? AND log_offset >= ?"
            " AND target = ? ORDER BY log_offset LIMIT 1",
            (topic, old.partition, old.offset, partition),
        ).fetchone()
        return None if row is None else int(row[0])

    def sequence_of(self, old: int, sequence: int, partition: int) -> int:
        """The write sequence of a new partition's store at which it has, of the scopes that come
        from the old one, just what the old store had at `sequence`."""
        row = self._connection.execute(
            "SELECT sequence FROM written WHERE old = ? AND target = ? AND last <= ?"
            " ORDER BY last DESC LIMIT 1",
            (old, partition, sequence),
        ).fetchone()
        return 0 if row is None else int(row[0])


def _made(connection: sqlite3.Connection, scan: _Scan, sequences: Mapping[int, Path]) -> None:
    for statement in _TABLES.split(";"):
        connection.execute(statement)
    connection.execute("BEGIN")
    for topic in (DEAD_LETTERS, *(each for each in ALL_TOPICS if each is not DEAD_LETTERS)):
        rows = scan.rows(topic)
        connection.executemany(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)", rows
        )
    for old, file in sequences.items():
        with contextlib.closing(sqlite3.connect(file)) as noted:
            found = noted.execute("SELECT log_offset, last FROM sequences").fetchall()
        connection.executemany(
            "INSERT INTO written VALUES (?, ?, ?, NULL, NULL, NULL)",
            [(old, *each) for each in found],
        )
    connection.execute("COMMIT")
    for statement in _INDEXES.split(";"):
        connection.execute(statement)
    connection.execute(_WRITES)
    connection.execute("CREATE INDEX by_time ON records(topic, target, at, clock)")
    for topic, ways in _CLOCKS:
        clocks = ", ".join((*ways, _OF_ITS_TIME))
        connection.execute(
            f"UPDATE records SET clock = coalesce({clocks}) WHERE topic = ?",
            (topic.name,),
        )
    # They follow their own times: what is old is removed by them.
    for topic in FOLLOWED:
        connection.execute("UPDATE records SET clock = at WHERE topic = ?", (topic.name,))
    connection.execute(_NUMBERS)
    connection.execute("CREATE INDEX by_number ON records(topic, target, number)")
    connection.execute(_WRITTEN)
    connection.execute("CREATE INDEX by_sequence ON written(old, target, last)")


_Row = tuple[str, int, int, int, int, str, str, str | None, int | None]


@dataclass(slots=True)
class _Scan:
    """What the records of a log say of their places. Dead letters are read first: they tell under
    which scope an unreadable record counts."""

    log: LogReader
    partitions: int
    _scopes: dict[tuple[str, int, int], str] = field(default_factory=dict)
    _dead_letters: dict[str, int] = field(default_factory=dict)

    def rows(self, topic: Topic) -> Iterable[_Row]:
        for old in range(self.log.partitions(topic.name)):
            for record in recorded(self.log, topic.name, old):
                yield self._row(topic, record)

    def _row(self, topic: Topic, record: Record) -> _Row:
        found = names_of(record)
        failed: tuple[str | None, int | None] = (None, None)
        if topic is DEAD_LETTERS:
            target, failed = self._dead_letter(record, found)
        else:
            target = self._target(topic, record, found)
        return (
            topic.name,
            record.partition,
            record.offset,
            microseconds(record.timestamp),
            target,
            found.id,
            found.cause,
            *failed,
        )

    def _dead_letter(
        self, record: Record, found: Names
    ) -> tuple[int, tuple[str | None, int | None]]:
        """It goes where its record goes, and what is decided of it where it went."""
        message = decoded(record)
        target = self._of_scope(found.scope, record)
        match None if message is None else message.body:
            case DeadLetter() as body:
                self._scopes[body.topic, body.partition, body.offset] = found.scope
                self._dead_letters[found.id] = target
                return target, (body.topic, body.offset)
            case DeadLetterMark() as mark:
                return self._dead_letters.get(mark.letter_id, target), (None, None)
        return target, (None, None)

    def _target(self, topic: Topic, record: Record, found: Names) -> int:
        """Of what could not be read that of its dead letter."""
        failed = self._scopes.get((topic.name, record.partition, record.offset))
        return self._of_scope(found.scope if failed is None else failed, record)

    def _of_scope(self, scope: str, record: Record) -> int:
        """Of what is of no scope, as null values are, only that it has one place matters."""
        if scope and scope != UNREADABLE_SCOPE:
            return partition_for(scope, self.partitions)
        return record.partition % self.partitions


# --- log dealing ----------------------------------------------------------------------------------

AT_ONCE: Final = 2_000
READ_RECORDS: Final = 1_000
NUMBER_BITS: Final = 62
GONE: Final = -1
"""The offset of a dead letter's record that is no longer in the log."""


def deal_log(
    folder: Path,
    log: LogView,
    partitions: int,
    sequences: Mapping[int, Path],
    report: Report,
    stopping: Callable[[], bool],
) -> bool:
    """Write the new log to the empty `folder`; whether it came to its end before `stopping`. Of
    `log`, of which nothing may come or go meanwhile, all that stages read is processed.
    `sequences`: as `LogPlan.made` takes them. Blocks. Raises LogError and OSError."""
    report(Progress("planning the log", 0, 1, "logs"))
    with (
        LogPlan.made(folder / "plan.sqlite", log, partitions, sequences) as plan,
        EmbeddedLog.open(folder, partitions, utc_now) as new,
    ):
        new.number_it(secrets.randbits(NUMBER_BITS) + 1)
        dealing = _Dealing(log, new, plan, report)
        whole = all(
            not stopping() and dealing.topic(topic, partition)
            for topic, partition in product(ALL_TOPICS, range(partitions))
        )
        if whole:
            dealing.positions()
    return whole


@dataclass(slots=True)
class _Dealing:
    old: LogView
    new: EmbeddedLog
    plan: LogPlan
    report: Report
    _blocks: dict[tuple[str, int], dict[int, Record]] = field(default_factory=dict)

    def topic(self, topic: Topic, partition: int) -> bool:
        """Write one partition of the new log; True."""
        first = 0
        if topic in FOLLOWED:
            # A reader that resumes at an offset of the old log reads everything again and misses
            # nothing.
            olds = range(self.old.partitions(topic.name))
            first = max(self.old.end_offset(topic.name, old) for old in olds)
            self.new.begin_at(topic.name, first)
        done = 0
        coming = self._records(topic, partition, first)
        while records := [*islice(coming, AT_ONCE)]:
            self.new.place(records)
            done += len(records)
            self.report(Progress(f"writing {topic.name}[{partition}]", done, done))
        return True

    def _records(self, topic: Topic, partition: int, first: int) -> Iterator[Record]:
        for old, new in self.plan.places(topic.name, partition):
            record = self._read(topic, old)
            yield replace(
                record,
                partition=partition,
                offset=first + new.offset,
                value=self._value(topic, record, new),
            )

    def _read(self, topic: Topic, place: RecordPosition) -> Record:
        at = (topic.name, place.partition)
        block = self._blocks.get(at, {})
        if place.offset not in block:
            records = self.old.read(topic.name, place.partition, place.offset, READ_RECORDS)
            block = self._blocks[at] = {record.offset: record for record in records}
        return block[place.offset]

    def positions(self) -> None:
        """Sets every consumer's position so that no record that it had not read lies before it."""
        known = {(each.consumer, each.topic) for each in self.old.positions()}
        for consumer, topic in sorted(known):
            if topic in {each.name for each in FOLLOWED}:
                continue
            for partition in range(self.plan.partitions):
                offset = self._position(consumer, topic, partition)
                self.new.seek(Position(consumer, topic, partition, offset))

    def _position(self, consumer: str, topic: str, partition: int) -> int:
        unread = (
            self.plan.first_from(
                topic, RecordPosition(old, self.old.position(consumer, topic, old)), partition
            )
            for old in range(self.old.partitions(topic))
        )
        found = [offset for offset in unread if offset is not None]
        return min(found, default=self.new.end_offset(topic, partition))

    # --- what tells of places ------------------------------------------------------------------

    def _value(self, topic: Topic, record: Record, new: RecordPosition) -> bytes | None:
        if topic is MEMORY_WRITES and b'"decision_order":' in (record.value or b""):
            return self._told_anew(record, new, self._tell_decision)
        if topic is DEAD_LETTERS:
            return self._told_anew(record, new, self._tell_failed)
        return record.value

    def _told_anew(
        self,
        record: Record,
        new: RecordPosition,
        tell: Callable[[Record, RecordPosition, dict[str, Any]], None],
    ) -> bytes | None:
        try:
            message = from_json(record.value or b"")
            tell(record, new, message["body"])
        except (ValueError, TypeError, KeyError):
            return record.value  # no message: no one reads in it where something lies
        return to_json(message)

    def _tell_decision(self, record: Record, new: RecordPosition, body: dict[str, Any]) -> None:
        intent = body["write"]
        if intent["intent"] != "proposals":
            return
        decided = RecordPosition(record.partition, int(intent["decision_order"]))
        facts = self.plan.first_from(FACTS_EXTRACTED.name, decided, new.partition)
        if facts is None:
            facts = self.new.end_offset(FACTS_EXTRACTED.name, new.partition)
        intent["decision_order"] = facts
        intent["as_of"] = self.plan.sequence_of(
            record.partition, int(intent["as_of"]), new.partition
        )

    def _tell_failed(self, record: Record, new: RecordPosition, body: dict[str, Any]) -> None:
        if "offset" not in body:
            return  # what was decided of a dead letter
        topic, failed = str(body["topic"]), RecordPosition(record.partition, int(body["offset"]))
        unread = unreadable_item_id(CONVERSATION_TURNS.name, failed.partition, failed.offset)
        found = self.plan.place_of(topic, failed)
        body["partition"], body["offset"] = new.partition, GONE
        if found is not None:
            body["offset"] = found.offset
            if topic == CONVERSATION_TURNS.name and body.get("item_ids") == [unread]:
                body["item_ids"] = [unreadable_item_id(topic, found.partition, found.offset)]
