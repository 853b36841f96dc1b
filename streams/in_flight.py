"""Which turns and facts the log and an outbox hold that no store has settled yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.identity import UNREADABLE_SCOPE, ItemsOf, items_of, items_of_unreadable
from palimpsest.schemas.messages import DeadLetter
from palimpsest.schemas.topics import (
    CONVERSATION_TURNS,
    DEAD_LETTERS,
    FACTS_EXTRACTED,
    MEMORY_WRITES,
    TOPICS,
)
from palimpsest.streams.logs.base import LogReader, Record, blocks, partition_for
from palimpsest.streams.store_port import LogItem

_KEPT: Final = 20_000
"""Records of a partition of a topic whose items are kept: a few megabytes."""
_MET: Final[WeakKeyDictionary[LogReader, dict[tuple[str, int], dict[int, Sequence[_Found]]]]] = (
    WeakKeyDictionary()
)


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
    normalized = log.position("normalize", turns, partition)
    audited = cursors.get(("audit", turns), 0)
    for offset, items in _items_from(log, turns, partition, min(normalized, audited), admit):
        for item in items:
            if offset >= audited:
                yield item("known")
            if offset >= normalized:
                yield item("in_flight")
    decided = log.position("decide", FACTS_EXTRACTED.name, partition)
    for _, items in _items_from(log, FACTS_EXTRACTED.name, partition, decided):
        for item in items:
            yield item("known")
            yield item("in_flight")
    applied = cursors.get(("apply-writes", MEMORY_WRITES.name), 0)
    for _, items in _items_from(log, MEMORY_WRITES.name, partition, applied):
        for item in items:
            if item.item_kind == "fact":
                yield item("known")
            yield item("in_flight")
    buried = cursors.get(("audit", DEAD_LETTERS.name), 0)
    for record in tail(log, DEAD_LETTERS.name, partition, buried):
        yield from _dead_items(record.value)
    for topic, value in outbox:
        yield from _in_outbox(topic, value)


def _items_from(
    log: LogReader,
    topic: str,
    partition: int,
    offset: int,
    admit: Callable[[Record], Record] = lambda record: record,
) -> Iterator[tuple[int, Sequence[_Found]]]:
    """Yields the items of each record from an offset on, with its offset. Of the records met at the
    last call it knows them: whoever waits for a backlog asks several times a second, and parsing is
    what takes the time."""
    partitions = log.partitions(CONVERSATION_TURNS.name)
    of_log = _MET.setdefault(log, {})
    before = of_log.get((topic, partition), {})
    met: dict[int, Sequence[_Found]] = {}
    for record in tail(log, topic, partition, offset):
        items = before.get(record.offset)
        if items is None:
            items = tuple(_items(admit(record), partitions))
        if len(met) < _KEPT:
            met[record.offset] = items
        yield record.offset, items
    of_log[topic, partition] = met


def tail(log: LogReader, topic: str, partition: int, offset: int) -> Iterator[Record]:
    """The records of a partition from the offset on."""
    for records in blocks(log, topic, partition, offset):
        yield from records


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
    topic = TOPICS[record.topic]
    try:
        message = decode(record.value, topic, record.timestamp)
    except InvalidRecord:
        unread = items_of_unreadable(topic, record.partition, record.offset, record.value)
        yield from _met(unread, UNREADABLE_SCOPE, place)
        return
    if (
        record.topic == CONVERSATION_TURNS.name
        and partition_for(message.scope, partitions) != record.partition
    ):
        return  # normalize reroutes it to its partition, where it counts
    yield from _met(items_of(message), message.scope, place)


def _met(items: ItemsOf, scope: str, place: str) -> Iterator[_Found]:
    if items.kind in ("turn", "fact"):
        for item_id in items.item_ids:
            yield _Found(items.kind, item_id, scope, place)


def _in_outbox(topic: str, value: bytes) -> Iterator[LogItem]:
    if topic == DEAD_LETTERS.name:
        yield from _dead_items(value)
        return
    message = decode(value, TOPICS[topic], None)
    for item in _met(items_of(message), message.scope, "outbox"):
        yield item("in_flight")


def _dead_items(value: bytes | None) -> Iterator[LogItem]:
    try:
        message = decode(value, DEAD_LETTERS, None)
    except InvalidRecord:
        return  # audit dead-letters the unreadable dead letter; it names no item
    dead_letter = message.body
    if not isinstance(dead_letter, DeadLetter):
        return  # what became of one; its items are counted by it
    items = ItemsOf(dead_letter.item_kind, dead_letter.item_ids)
    for item in _met(items, message.scope, dead_letter.reason):
        yield item("known")
        yield item("dead")
