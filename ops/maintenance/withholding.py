"""Removes from the embedded log what may not stay there, once every stage has read it: the content
of private turns that are not kept, and raw records with secrets.

apply-writes identifies the private turns, in log order. Until then the log holds what it reads: the
raw record, and the intent that normalize derived from it. Both still count as turns afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from palimpsest.ops.scheduling.periodic import PeriodicTask, in_thread
from palimpsest.schemas.codec import InvalidRecord, decode, encode
from palimpsest.schemas.envelope import Envelope, Frozen
from palimpsest.schemas.erasure.scrubbing import says_withheld, unread_speaker, withheld_value
from palimpsest.schemas.identity import items_of
from palimpsest.schemas.messages import MemoryWrite, RawTurnIntent
from palimpsest.schemas.privacy import PRIVACY_FULL
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS, MEMORY_WRITES, Topic
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import Position, Record, blocks
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.privacy import is_withheld, rejected
from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.sensitive.settings import PiiSettings

LOOK_SECONDS: Final = 1.0
READ_RECORDS: Final = 500


def unchecked(
    log: EmbeddedLog, consumer: str, topic: str, partition: int, end: int
) -> Iterator[list[Record]]:
    """Yields, in blocks, the records before `end` that the consumer has not checked yet. Its
    position follows when the next block is requested, so a crash repeats only the last one."""
    first = log.position(consumer, topic, partition)
    for read in blocks(log, topic, partition, first, end, READ_RECORDS):
        yield read
        log.seek(Position(consumer, topic, partition, read[-1].offset + 1))
    if first < end:
        log.seek(Position(consumer, topic, partition, end))


CONSUMER: Final = "withholding"
"""The consumer whose position in the log marks how far records have been checked."""
_WITHHELD: Final = (
    "SELECT item_id FROM outcomes WHERE item_kind = 'turn' AND event = 'rejected' AND reason = ?"
    " AND item_id IN (SELECT unnest(?))"
)


class PrivacyRedactor:
    """Removes the content of withheld turns from an embedded log opened for processing. It changes
    records before it moves the position, so a crash between the two repeats the change."""

    def __init__(self, log: EmbeddedLog, shards: Mapping[int, Shard]) -> None:
        self._log = log
        self._shards = shards
        self._marks: dict[int, tuple[int, int]] = {}

    def task(self) -> PeriodicTask:
        name = "turns in the log that are not kept"
        return PeriodicTask(name, LOOK_SECONDS, in_thread(self.once), last=True)

    def once(self) -> int:
        """Returns the number of changed records. Blocks. Raises LogError and a shard's errors."""
        changed = 0
        for partition in self._shards:
            changed += self._topic(CONVERSATION_TURNS, partition, self._raw_end(partition))
            applied = self._log.position("apply-writes", MEMORY_WRITES.name, partition)
            changed += self._topic(MEMORY_WRITES, partition, applied)
        return changed

    def _raw_end(self, partition: int) -> int:
        """Returns the offset up to which it is known whether raw turns are kept: apply-writes has
        applied everything that normalize had written for them at the last check."""
        applied = self._log.position("apply-writes", MEMORY_WRITES.name, partition)
        known, waited_for = self._marks.get(partition, (0, 0))
        if applied < waited_for:
            return 0
        turns = CONVERSATION_TURNS.name
        read = min(self._log.position(each, turns, partition) for each in ("normalize", "audit"))
        # Read after the positions: the log then holds everything sent before they were committed.
        end = self._log.end_offset(MEMORY_WRITES.name, partition)
        self._marks[partition] = (read, end)
        return read if applied >= end else known

    def _topic(self, topic: Topic, partition: int, end: int) -> int:
        shard, changed = self._shards[partition], 0
        for read in unchecked(self._log, CONSUMER, topic.name, partition, end):
            turns = [
                (record, message)
                for record in read
                if record.value is not None and (shard.privacy or says_withheld(record.value))
                if (message := _turn(topic, record)) is not None
            ]
            ids = {record.offset: items_of(message).item_ids[0] for record, message in turns}
            asked = [PRIVACY_FULL, [*ids.values()]]
            withheld = {item_id for (item_id,) in shard.fetch(_WITHHELD, asked)} if ids else set()
            # Also of records that have their new values already: a crash may have left old bytes
            # elsewhere in the log's files.
            values = {} if topic is not CONVERSATION_TURNS else _unread(shard, read)
            values |= {
                record.offset: _value(topic, record, message)
                for record, message in turns
                if ids[record.offset] in withheld
            }
            if values:
                changed += self._log.redact(topic.name, partition, values)
                self._log.forget_bytes()
        return changed


def _turn(topic: Topic, record: Record) -> Envelope[Frozen] | None:
    """Returns the message if it is a turn with content, else None."""
    try:
        message = decode(record.value, topic, record.timestamp)
    except InvalidRecord:
        return None
    body = message.body
    if isinstance(body, MemoryWrite) and not isinstance(body.write, RawTurnIntent):
        return None
    return message


def _unread(shard: Shard, records: Iterable[Record]) -> dict[int, bytes]:
    """Returns new values for invalid turns that are marked private or come from a private
    speaker."""
    values = {}
    for record in records:
        if record.value is None or not (shard.privacy or says_withheld(record.value)):
            continue
        said = unread_speaker(record.value)
        if said is None:
            continue
        scope, speaker = said
        levels = shard.privacy.get(scope, {})
        if says_withheld(record.value) or is_withheld(levels, speaker):
            values[record.offset] = withheld_value(record.value)
    return values


def _value(topic: Topic, record: Record, message: Envelope[Frozen]) -> bytes:
    assert record.value is not None
    if topic is CONVERSATION_TURNS:
        return withheld_value(record.value)
    body = message.body
    assert isinstance(body, MemoryWrite)
    assert isinstance(body.write, RawTurnIntent)
    left = MemoryWrite(write=rejected(body.write.turn))
    return encode(message.model_copy(update={"body": left}))


# --- raw records with secrets ---------------------------------------------------------------------

PURGE: Final = "purge"
"""The consumer whose position in the log marks how far raw records have been checked."""
READERS: Final[dict[Topic, Sequence[str]]] = {
    CONVERSATION_TURNS: ("normalize", "audit"),
    MEMORY_COMMANDS: ("normalize",),
}


class Purge:
    """Removes raw records with a secret from an embedded log opened for processing, once all their
    readers have read them. The log holds what a third-party producer sends unchanged; Palimpsest's
    own publishers remove the sensitive parts before they append. It removes a record before it
    moves the position, so a crash between the two only repeats the removal."""

    def __init__(self, log: EmbeddedLog, settings: PiiSettings) -> None:
        self._is_wanted = settings.purge_raw and settings.mode != "off"
        self._log = log
        self._policy = Policy.of(settings)

    def tasks(self) -> list[PeriodicTask]:
        """None where it is not asked for."""
        if not self._is_wanted:
            return []
        name = "raw records with secrets in the log"
        return [PeriodicTask(name, LOOK_SECONDS, in_thread(self.once), last=True)]

    def once(self) -> int:
        """Returns the number of removed records. Blocks. Raises LogError."""
        removed = 0
        for topic, readers in READERS.items():
            for partition in range(self._log.partitions(topic.name)):
                end = min(self._log.position(reader, topic.name, partition) for reader in readers)
                for read in unchecked(self._log, PURGE, topic.name, partition, end):
                    sensitive = [
                        each.offset for each in read if self._policy.record(each) is not each
                    ]
                    if sensitive:
                        removed += self._log.erase(topic.name, partition, sensitive)
        return removed
