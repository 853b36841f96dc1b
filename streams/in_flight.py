"""Which turns and facts the log and an outbox hold that no store has settled yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.identity import UNREADABLE_SCOPE, items_of, items_of_unreadable
from palimpsest.schemas.messages import DeadLetter
from palimpsest.schemas.topics import (
    CONVERSATION_TURNS,
    DEAD_LETTERS,
    FACTS_EXTRACTED,
    MEMORY_WRITES,
    TOPICS,
)
from palimpsest.streams.logs.base import LogReader, Record, partition_for
from palimpsest.streams.store_port import LogItem

READ_RECORDS = 1_000


def items_in_flight(
    log: LogReader,
    partition: int,
    admit: Callable[[Record], Record],
    cursors: Mapping[tuple[str, str], int],
    outbox: Iterable[tuple[str, bytes]],
) -> Iterator[LogItem]:
    """Bound to a log, a partition and what makes of a producer's record what the stages take, the
    FindItems of its store.

    The log is read from the first topic of the flow to the last: an item that moves meanwhile is
    met again further down, never missed.
    """
    turns = CONVERSATION_TURNS.name
    partitions = log.partitions(turns)
    normalized = log.position("normalize", turns, partition)
    audited = cursors.get(("audit", turns), 0)
    for record in tail(log, turns, partition, min(normalized, audited)):
        for item in _items(admit(record), partitions):
            if record.offset >= audited:
                yield item("known")
            if record.offset >= normalized:
                yield item("in_flight")
    decided = log.position("decide", FACTS_EXTRACTED.name, partition)
    for record in tail(log, FACTS_EXTRACTED.name, partition, decided):
        for item in _items(record, partitions):
            yield item("known")
            yield item("in_flight")
    applied = cursors.get(("apply-writes", MEMORY_WRITES.name), 0)
    for record in tail(log, MEMORY_WRITES.name, partition, applied):
        for item in _items(record, partitions):
            if item.item_kind == "fact":
                yield item("known")
            yield item("in_flight")
    buried = cursors.get(("audit", DEAD_LETTERS.name), 0)
    for record in tail(log, DEAD_LETTERS.name, partition, buried):
        yield from _dead_items(record.value)
    for topic, value in outbox:
        yield from _in_outbox(topic, value)


def tail(log: LogReader, topic: str, partition: int, offset: int) -> Iterator[Record]:
    """The records of a partition from the offset on."""
    end = log.end_offset(topic, partition)
    while offset < end:
        records = log.read(topic, partition, offset, READ_RECORDS)
        if not records:
            return
        yield from records
        offset = records[-1].offset + 1


@dataclass(frozen=True, slots=True)
class _Found:
    """An item met in the log; called with what its being there means."""

    item_kind: str
    item_id: str
    scope: str
    place: str

    def __call__(self, found_as: str) -> LogItem:
        return LogItem(self.item_kind, self.item_id, self.scope, found_as, self.place)


def _items(record: Record, partitions: int) -> Iterator[_Found]:
    place = f"{record.topic}[{record.partition}]@{record.offset}"
    try:
        message = decode(record.value, TOPICS[record.topic], record.timestamp)
    except InvalidRecord:
        topic = TOPICS[record.topic]
        unread = items_of_unreadable(topic, record.partition, record.offset, record.value)
        if unread.kind in ("turn", "fact"):
            for item_id in unread.item_ids:
                yield _Found(unread.kind, item_id, UNREADABLE_SCOPE, place)
        return
    if (
        record.topic == CONVERSATION_TURNS.name
        and partition_for(message.scope, partitions) != record.partition
    ):
        return  # normalize reroutes it to its partition, where it counts
    carried = items_of(message)
    if carried.kind in ("turn", "fact"):
        for item_id in carried.item_ids:
            yield _Found(carried.kind, item_id, message.scope, place)


def _in_outbox(topic: str, value: bytes) -> Iterator[LogItem]:
    if topic == DEAD_LETTERS.name:
        yield from _dead_items(value)
        return
    message = decode(value, TOPICS[topic], None)
    carried = items_of(message)
    if carried.kind in ("turn", "fact"):
        for item_id in carried.item_ids:
            yield LogItem(carried.kind, item_id, message.scope, "in_flight", "outbox")


def _dead_items(value: bytes | None) -> Iterator[LogItem]:
    try:
        message = decode(value, DEAD_LETTERS, None)
    except InvalidRecord:
        return  # audit dead-letters the unreadable dead letter; it names no item
    dead_letter = message.body
    if not isinstance(dead_letter, DeadLetter):
        return  # what became of one; its items are counted by it
    if dead_letter.item_kind in ("turn", "fact"):
        for item_id in dead_letter.item_ids:
            item = _Found(dead_letter.item_kind, item_id, message.scope, dead_letter.reason)
            yield item("known")
            yield item("dead")
