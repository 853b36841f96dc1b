"""A log of another number of partitions, written from one whose records are all processed.

Its records say of themselves what those of the old one say. What they say of places is told again:
a dead letter's record, and what a decision had seen.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, product
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json, to_json

from palimpsest.ops.parts import utc_now
from palimpsest.ops.replay.log_plan import FOLLOWED, LogPlan, Place
from palimpsest.ops.replay.progress import Progress, Report
from palimpsest.schemas.identity import unreadable_item_id
from palimpsest.schemas.topics import (
    ALL_TOPICS,
    CONVERSATION_TURNS,
    DEAD_LETTERS,
    FACTS_EXTRACTED,
    MEMORY_WRITES,
    Topic,
)
from palimpsest.streams.logs.base import Position, Record
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.logs.view import LogView

AT_ONCE: Final = 2_000
READ_RECORDS: Final = 1_000
NUMBER_BITS: Final = 62
GONE: Final = -1
"""The offset of a dead letter's record that lies in the log no more."""


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
            # Whoever goes on from an offset of the old log reads all again, and misses nothing.
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

    def _read(self, topic: Topic, place: Place) -> Record:
        at = (topic.name, place.partition)
        block = self._blocks.get(at, {})
        if place.offset not in block:
            records = self.old.read(topic.name, place.partition, place.offset, READ_RECORDS)
            block = self._blocks[at] = {record.offset: record for record in records}
        return block[place.offset]

    def positions(self) -> None:
        """Every consumer is where it was: no record that it had not read is before that."""
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
                topic, Place(old, self.old.position(consumer, topic, old)), partition
            )
            for old in range(self.old.partitions(topic))
        )
        found = [offset for offset in unread if offset is not None]
        return min(found, default=self.new.end_offset(topic, partition))

    # --- what tells of places ------------------------------------------------------------------

    def _value(self, topic: Topic, record: Record, new: Place) -> bytes | None:
        if topic is MEMORY_WRITES and b'"decision_order":' in (record.value or b""):
            return self._told_anew(record, new, self._tell_decision)
        if topic is DEAD_LETTERS:
            return self._told_anew(record, new, self._tell_failed)
        return record.value

    def _told_anew(
        self, record: Record, new: Place, tell: Callable[[Record, Place, dict[str, Any]], None]
    ) -> bytes | None:
        try:
            message = from_json(record.value or b"")
            tell(record, new, message["body"])
        except (ValueError, TypeError, KeyError):
            return record.value  # no message: no one reads in it where something lies
        return to_json(message)

    def _tell_decision(self, record: Record, new: Place, body: dict[str, Any]) -> None:
        intent = body["write"]
        if intent["intent"] != "proposals":
            return
        decided = Place(record.partition, int(intent["decision_order"]))
        facts = self.plan.first_from(FACTS_EXTRACTED.name, decided, new.partition)
        if facts is None:
            facts = self.new.end_offset(FACTS_EXTRACTED.name, new.partition)
        intent["decision_order"] = facts
        intent["as_of"] = self.plan.sequence_of(
            record.partition, int(intent["as_of"]), new.partition
        )

    def _tell_failed(self, record: Record, new: Place, body: dict[str, Any]) -> None:
        if "offset" not in body:
            return  # what was decided of a dead letter
        topic, failed = str(body["topic"]), Place(record.partition, int(body["offset"]))
        unread = unreadable_item_id(CONVERSATION_TURNS.name, failed.partition, failed.offset)
        found = self.plan.place_of(topic, failed)
        body["partition"], body["offset"] = new.partition, GONE
        if found is not None:
            body["offset"] = found.offset
            if topic == CONVERSATION_TURNS.name and body.get("item_ids") == [unread]:
                body["item_ids"] = [unreadable_item_id(topic, found.partition, found.offset)]
