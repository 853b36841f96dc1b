"""Reads a log from outside: its records and their order, and how far each stage is to be folded: to
what the log knows of, or to what followed from all before an offset of memory-writes."""

from __future__ import annotations

import contextlib
import heapq
import secrets
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json, to_json

from palimpsest.ops.errors import RequestError
from palimpsest.ops.opening import open_log
from palimpsest.ops.parts import utc_now
from palimpsest.ops.replay.requests import ReplayProgress, Watch
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.commands import Command
from palimpsest.schemas.identity import UNREADABLE_SCOPE, unreadable_item_id
from palimpsest.schemas.messages import CommandIntent, DeadLetter, Intent, MemoryWrite
from palimpsest.schemas.topics import (
    CACHE_INVALIDATIONS,
    CONVERSATION_TURNS,
    DEAD_LETTERS,
    FACTS_EXTRACTED,
    GRAPH_CHANGES,
    MEMORY_CHANGES,
    MEMORY_COMMANDS,
    MEMORY_HISTORY,
    MEMORY_WRITES,
    TOPICS,
    TURNS_NORMALIZED,
    Topic,
)
from palimpsest.streams.logs.base import LogReader, Position, Record, blocks, partition_for
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.logs.logfile import OFFSET_BITS
from palimpsest.streams.logs.records import microseconds
from palimpsest.streams.stage import Message
from palimpsest.streams.topology import stages

Offsets = dict[str, dict[str, int]]
"""The next offset by stage and topic."""

LOOKED_BACK_RECORDS = 5_000
"""In which the newest record is looked for that has had its consequences."""


def by_stage(settings: Settings, end: Callable[[str], int]) -> Offsets:
    """Returns the offsets of all stages with a store by the topics that they read, from those of
    the topics."""
    return {
        stage.name: {topic.name: end(topic.name) for topic in stage.reads}
        for stage in stages(settings)
        if stage.stateful
    }


def everything(settings: Settings, log: LogReader, partition: int) -> Offsets:
    """Returns the offsets of all stages with a store once they have read all that there is."""
    return by_stage(settings, lambda topic: log.end_offset(topic, partition))


def known_to_log(settings: Settings, log: LogReader, partition: int) -> Offsets:
    """All that was executed as far as the log tells, for a store that is gone: what has had its
    consequences. The rest is for the stages, which append what follows from it."""
    done = everything(settings, log, partition)
    for stage, topic, consequences in (
        ("apply-writes", MEMORY_WRITES, MEMORY_CHANGES),
        ("graph-persist", MEMORY_CHANGES, GRAPH_CHANGES),
    ):
        done[stage][topic.name] = _executed(log, partition, topic, consequences)
    return done


def _executed(log: LogReader, partition: int, topic: Topic, consequences: Topic) -> int:
    """After the newest record that others follow from."""
    end = log.end_offset(consequences.name, partition)
    first = max(0, end - LOOKED_BACK_RECORDS)
    causes = {
        names_of(record).cause for record in recorded(log, consequences.name, partition, first, end)
    }
    end = log.end_offset(topic.name, partition)
    while end > 0:
        first = max(0, end - LOOKED_BACK_RECORDS)
        found = [
            record.offset
            for record in recorded(log, topic.name, partition, first, end)
            if names_of(record).id in causes
        ]
        if found:
            return found[-1] + 1
        end = first
    return 0


# --- as of a moment ----------------------------------------------------------------------------


def offset_at(log: LogReader, partition: int, moment: datetime) -> int:
    """Returns the offset of memory-writes before which all was appended at `moment` or earlier."""
    topic = MEMORY_WRITES.name

    def appended(offset: int) -> datetime:
        found = log.read(topic, partition, offset, 1)
        return found[0].timestamp if found else datetime.max.replace(tzinfo=UTC)

    return bisect_right(range(log.end_offset(topic, partition)), moment, key=appended)


def followed(settings: Settings, log: LogReader, partition: int, writes: int) -> Offsets:
    """What followed from the records of memory-writes before the offset `writes`, and nothing that
    came of a later one. Raises RequestError for an offset past the end."""
    end = log.end_offset(MEMORY_WRITES.name, partition)
    if not 0 <= writes <= end:
        raise RequestError(
            f"memory-writes[{partition}] ends at offset {end}; --until {writes} lies past it"
        )
    clocks = Clocks(log, [partition])
    clocks.plan()
    first = sum(1 for _ in recorded(log, MEMORY_WRITES.name, partition, 0, writes))
    read = {MEMORY_WRITES.name: writes}
    unread = (*FOLLOWED, MEMORY_COMMANDS, MEMORY_WRITES)
    for topic in (each for each in ORDER if each not in unread):
        later = [record.offset for clock, record, _ in clocks.merged(topic) if clock >= first]
        read[topic.name] = later[0] if later else log.end_offset(topic.name, partition)
    return by_stage(settings, read.__getitem__)


# --- the order of a log ---------------------------------------------------------------------------
# A topic that stages read lies in the order of memory-writes: by the write that caused its records,
# or that they caused.

FOLLOWED: Final = (MEMORY_HISTORY, CACHE_INVALIDATIONS)
"""Topics that no stage reads, only other programs, which keep their own offsets."""
CAUSES: Final = (CONVERSATION_TURNS, MEMORY_COMMANDS, FACTS_EXTRACTED)
"""Topics whose records cause writes; those of the others are caused by writes."""
ORDER: Final = (
    *(TURNS_NORMALIZED, MEMORY_CHANGES, GRAPH_CHANGES, FACTS_EXTRACTED),
    *(CONVERSATION_TURNS, MEMORY_COMMANDS, *FOLLOWED, MEMORY_WRITES, DEAD_LETTERS),
)
"""A topic comes after those whose records it refers to."""

RecordPlace = tuple[str, int, int]
"""Topic, partition and offset of a record."""


@dataclass(slots=True)
class Clocks:
    """The clock of a record is the place of its write in memory-writes, whose partitions are merged
    by append time. Topics are read in the order of `ORDER`, after `plan`."""

    log: LogReader
    partitions: Sequence[int]
    of_messages: dict[str, int] = field(default_factory=dict)
    """By id, of messages that others are caused by."""
    caused: dict[str, int] = field(default_factory=dict)
    """By the id of a message, the clock of the first write that it caused."""
    repeated: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The clocks of its further writes: a producer may give an id twice."""
    times: array[int] = field(default_factory=lambda: array("q"))
    """The append time of each write, in microseconds."""
    failed: dict[RecordPlace, str] = field(default_factory=dict)
    """The scopes of dead letters, by the places of their records."""
    failed_clocks: dict[RecordPlace | None, int] = field(default_factory=dict)

    def plan(self) -> None:
        """Reads dead letters, which name the scopes of unreadable records, and the order of
        memory-writes."""
        for partition in self.partitions:
            for record in recorded(self.log, DEAD_LETTERS.name, partition):
                failed = failed_place(record)
                if failed is not None:
                    self.failed[failed] = names_of(record).scope
        for clock, (_, record, names) in enumerate(self.merged(MEMORY_WRITES)):
            self.times.append(microseconds(record.timestamp))
            place = (record.topic, record.partition, record.offset)
            if place in self.failed:
                self.failed_clocks[place] = clock
            if self.of_messages.setdefault(names.id, clock) != clock:
                continue  # a repeat after a crash
            if self.caused.setdefault(names.cause, clock) != clock:
                self.repeated[names.cause].append(clock)
        for lost in (self.of_messages, self.caused, self.repeated):
            lost.pop("", None)

    def merged(self, topic: Topic) -> Iterator[tuple[int, Record, Names]]:
        """Yields the records of all partitions in their order, with their clocks; of topics that
        are followed, and of memory-writes, with their append times: those who follow a topic remove
        its oldest records by these."""
        streams = (self._clocked(topic, each) for each in self.partitions)
        return heapq.merge(*streams, key=lambda each: (each[0], each[1].partition))

    def _clocked(self, topic: Topic, partition: int) -> Iterator[tuple[int, Record, Names]]:
        clock = -1
        for record in recorded(self.log, topic.name, partition):
            # A record never comes before one that it followed in its partition.
            names = names_of(record)
            clock = max(clock, self._clock(topic, record, names))
            place = (topic.name, partition, record.offset)
            if place in self.failed:
                self.failed_clocks.setdefault(place, clock)
            if topic in (TURNS_NORMALIZED, MEMORY_CHANGES):
                self.of_messages.setdefault(names.id, clock)
            elif topic is CONVERSATION_TURNS and self.repeated.get(names.id):
                self.caused[names.id] = self.repeated[names.id].pop(0)
            yield clock, record, names

    def _clock(self, topic: Topic, record: Record, names: Names) -> int:
        at = microseconds(record.timestamp)
        if topic is MEMORY_WRITES or topic in FOLLOWED:
            return at
        known = self.of_messages.get(names.cause)
        if topic in CAUSES:
            known = self.caused.get(names.id, known)
        elif topic is DEAD_LETTERS:
            known = self.failed_clocks.get(failed_place(record), known)
        return bisect_right(self.times, at) - 1 if known is None else known


def failed_place(record: Record) -> RecordPlace | None:
    """Returns the place of the record that a dead letter is about."""
    message = decoded(record)
    body = None if message is None else message.body
    return (body.topic, body.partition, body.offset) if isinstance(body, DeadLetter) else None


# --- recorded -------------------------------------------------------------------------------------
# Reads the records of a log from outside, without a consumer or a position.


@contextlib.contextmanager
def reading_log(settings: Settings) -> Iterator[LogReader]:
    """Yields a separate reader of the live log, which commits no position and joins no group."""
    if settings.log.kind == "kafka":
        from palimpsest.streams.kafka.log import KafkaLog

        with KafkaLog.open(settings.cluster) as log:
            yield log
        return
    with open_log(settings, "read") as embedded:
        yield embedded


@dataclass(frozen=True, slots=True)
class Names:
    """A record's id, cause and scope; empty where the record has none."""

    id: str
    cause: str
    scope: str


def names_of(record: Record) -> Names:
    """Returns the names of any record, even of one that is not a message."""
    try:
        raw = from_json(record.value or b"")
    except ValueError:
        raw = None
    told = raw if isinstance(raw, dict) else {}
    said = (told.get(name) for name in ("id", "causation_id", "scope"))
    return Names(*(each if isinstance(each, str) else "" for each in said))


def recorded(
    log: LogReader, topic: str, partition: int, first: int = 0, end: int | None = None
) -> Iterator[Record]:
    """Yields the records from `first` up to `end`, exclusive; without it, up to the present end of
    the log."""
    for records in blocks(log, topic, partition, first, end):
        yield from records


def intent_of(message: Message | None) -> Intent | None:
    """Returns the intent of a message of memory-writes, None for any other."""
    body = None if message is None else message.body
    return body.write if isinstance(body, MemoryWrite) else None


def command_of(message: Message | None) -> Command | None:
    """Returns the command of a message of memory-writes, None for any other."""
    intent = intent_of(message)
    return intent.command if isinstance(intent, CommandIntent) else None


def decoded(record: Record) -> Message | None:
    """Returns the message of a record, None if it is invalid."""
    try:
        return decode(record.value, TOPICS[record.topic], record.timestamp)
    except InvalidRecord:
        return None


# --- repartitioned log ----------------------------------------------------------------------------
# Copies an embedded log, all processed, into one with another number of partitions.
#
# Within a scope, records keep their order. In a new partition, memory-writes follow their append
# times, and every other topic follows memory-writes: by the write that caused its records, or that
# they caused. So the new log is one that a worker could have written, which `--until` relies on; by
# append times alone it would not be, since one old partition may have waited for a model for an
# hour.
#
# The copy reads the log once (memory-writes twice) and holds two numbers for each message that
# another one refers to, and the new offset of each record. Messages keep their content, except for
# positions: a decision's `as_of` and `decision_order`, and the record of a dead letter.
#
# The write sequences of the new stores are others, and the log does not have the sequence that an
# `as_of` names. It has what apply-writes used it for: a decision was sent back (`reconsidered`)
# where the store had, under a command's hand, come to hold what the decision could not have seen.
# So a decision that was carried out as a whole has seen all that came before it, and another one
# nothing that a command wrote.

BATCH_RECORDS: Final = 2_000
GONE: Final = -1
"""The offset of a record that is no longer in the log."""
SENT_BACK: Final = b'"event":"reconsidered"'
SAW_ALL: Final = 1 << 61
"""An `as_of` past all write sequences."""
OFFSETS: Final = (1 << OFFSET_BITS) - 1
"""The bits of a place that are its offset."""


def repartition_log(folder: Path, log: EmbeddedLog, partitions: int, watch: Watch) -> bool:
    """Writes the new log to the empty `folder`. Returns whether it is complete, False if it
    was stopped before. Nothing may be appended to `log` or removed from it meanwhile. Blocks.
    Raises LogError and OSError."""
    with EmbeddedLog(folder, partitions, utc_now) as new:
        new.number_it(secrets.randbits(62) + 1)
        clocks = Clocks(log, range(log.partitions(MEMORY_WRITES.name)))
        watch.report(ReplayProgress("planning the log", 0, 1, "logs"))
        clocks.plan()
        copying = _Copying(log, new, clocks, watch)
        if not all(map(copying.topic, ORDER)):
            return False
        copying.positions()
    return True


@dataclass(slots=True)
class _Copying:
    old: EmbeddedLog
    new: EmbeddedLog
    clocks: Clocks
    watch: Watch
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    places: dict[tuple[str, int], array[int]] = field(
        default_factory=lambda: defaultdict(lambda: array("q"))
    )
    """By topic and old partition, the new place of each record by its old offset: the partition in
    the high bits, the offset in the low ones."""
    sent_back: set[str] = field(default_factory=set)
    """The ids of writes of which a proposal was reconsidered."""

    # --- the copy --------------------------------------------------------------------------

    def topic(self, topic: Topic) -> bool:
        """Copies a topic. Returns whether it came to its end."""
        first = 0
        ends = [self.old.end_offset(topic.name, old) for old in self.clocks.partitions]
        if topic in FOLLOWED:
            # A reader that resumes at an old offset reads everything again and misses nothing.
            first = max(ends)
            self.new.begin_at(topic.name, first)
        targets = range(self.new.partitions(topic.name))
        self.ends |= {(topic.name, target): first for target in targets}
        copies = self._copies(topic)
        for done in count(BATCH_RECORDS, BATCH_RECORDS):
            self.watch.report(
                ReplayProgress(f"writing {topic.name}", min(done, sum(ends)), sum(ends))
            )
            if self.watch.stopping():
                return False
            if not (batch := [*islice(copies, BATCH_RECORDS)]):
                return True
            self.new.place(batch)
        return True

    def _copies(self, topic: Topic) -> Iterator[Record]:
        for _, record, found in self.clocks.merged(topic):
            # To the partition of its scope. An unreadable record goes with its dead letter. One
            # without a scope, such as a null value, may go anywhere, but always to the same one.
            place = (record.topic, record.partition, record.offset)
            scope = self.clocks.failed.get(place, found.scope)
            partitions = self.new.partitions(record.topic)
            target = record.partition % partitions
            if scope and scope != UNREADABLE_SCOPE:
                target = partition_for(scope, partitions)
            offset = self.ends[topic.name, target]
            self.ends[topic.name, target] = offset + 1
            copy = replace(record, partition=target, offset=offset)
            # What later records, and the positions of consumers, may refer to.
            if topic is MEMORY_CHANGES and SENT_BACK in (record.value or b""):
                self.sent_back.add(found.cause)
            if topic not in FOLLOWED:
                places = self.places[topic.name, record.partition]
                places.extend([GONE] * (record.offset - len(places)))
                places.append(target << OFFSET_BITS | offset)
            yield replace(copy, value=self._value(topic, record, copy))

    def positions(self) -> None:
        """Sets every consumer's position so that no record that it had not read lies before it."""
        followed = {topic.name for topic in FOLLOWED}
        known = {(each.consumer, each.topic) for each in self.old.positions()}
        for consumer, topic in sorted(each for each in known if each[1] not in followed):
            first = {
                target: self.new.end_offset(topic, target)
                for target in range(self.new.partitions(topic))
            }
            for old in range(self.old.partitions(topic)):
                unread = self.places[topic, old][self.old.position(consumer, topic, old) :]
                for target, offset in (divmod(each, OFFSETS + 1) for each in unread if each >= 0):
                    first[target] = min(first[target], offset)
            for target, offset in first.items():
                self.new.seek(Position(consumer, topic, target, offset))

    # --- positions in messages -------------------------------------------------------------

    def _value(self, topic: Topic, old: Record, new: Record) -> bytes | None:
        value = old.value or b""
        rewrite: Callable[[Record, Record, dict[str, Any]], None]
        if topic is MEMORY_WRITES and b'"decision_order":' in value:
            rewrite = self._rewrite_decision
        elif topic is DEAD_LETTERS:
            rewrite = self._rewrite_failed
        else:
            return old.value
        try:
            message = from_json(value)
            rewrite(old, new, message["body"])
        except (ValueError, TypeError, KeyError):
            return old.value  # not a message: nothing reads a position in it
        return to_json(message)

    def _rewrite_decision(self, old: Record, new: Record, body: dict[str, Any]) -> None:
        intent = body["write"]
        if intent["intent"] != "proposals":
            return
        facts = self.places[FACTS_EXTRACTED.name, old.partition]
        later = (facts[each] for each in range(int(intent["decision_order"]), len(facts)))
        of_target = (each & OFFSETS for each in later if each >> OFFSET_BITS == new.partition)
        end = self.ends[FACTS_EXTRACTED.name, new.partition]
        intent["decision_order"] = next(of_target, end)
        found = names_of(old)
        intent["as_of"] = (
            0 if found.id in self.sent_back else SAW_ALL + self.clocks.of_messages[found.id]
        )

    def _rewrite_failed(self, old: Record, new: Record, body: dict[str, Any]) -> None:
        if "offset" not in body:
            return  # what was decided about a dead letter
        topic, offset = str(body["topic"]), int(body["offset"])
        unread = unreadable_item_id(topic, old.partition, offset)
        body["partition"] = new.partition
        places = self.places[topic, old.partition]
        place = places[offset] if 0 <= offset < len(places) else GONE
        body["offset"] = found = GONE if place == GONE else place & OFFSETS
        if found != GONE and topic == CONVERSATION_TURNS.name and body.get("item_ids") == [unread]:
            body["item_ids"] = [unreadable_item_id(topic, new.partition, found)]
