"""Of private turns that may not be stored, the embedded log keeps only the count.

apply-writes identifies them, in log order. Until then the log holds what it reads: the raw record,
and the intent that normalize derived from it. Both lose their content once every stage that reads
them has passed them, and still count as turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from palimpsest.ops.maintenance.periodic import PeriodicTask, in_thread
from palimpsest.ops.maintenance.purge import LOOK_SECONDS, READ_RECORDS
from palimpsest.schemas.codec import InvalidRecord, decode, encode
from palimpsest.schemas.envelope import Envelope, Frozen
from palimpsest.schemas.identity import items_of
from palimpsest.schemas.messages import MemoryWrite, RawTurnIntent
from palimpsest.schemas.privacy import PRIVACY_FULL
from palimpsest.schemas.scrubbing import says_withheld, unread_speaker, withheld_value
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_WRITES, Topic
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import Position, Record
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.privacy import is_withheld, rejected

CONSUMER: Final = "withholding"
"""The consumer whose position in the log marks how far records have been checked."""
_WITHHELD: Final = (
    "SELECT item_id FROM outcomes WHERE item_kind = 'turn' AND event = 'rejected' AND reason = ?"
    " AND item_id IN (SELECT unnest(?))"
)


class PrivacyRedactor:
    """Removes the content of withheld turns from an embedded log opened for processing. It changes
    records before it moves the position, so a crash between the two repeats the change."""

    def __init__(self, log: EmbeddedLog, shards: Sequence[Shard]) -> None:
        self._log = log
        self._shards = shards
        self._marks: dict[int, tuple[int, int]] = {}

    def task(self) -> PeriodicTask:
        name = "turns in the log that are not kept"
        return PeriodicTask(name, LOOK_SECONDS, in_thread(self.once), last=True)

    def once(self) -> int:
        """Returns the number of changed records. Blocks. Raises LogError and a shard's errors."""
        changed = 0
        for partition in range(len(self._shards)):
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
        offset = self._log.position(CONSUMER, topic.name, partition)
        changed = 0
        while offset < end:
            records = self._log.read(topic.name, partition, offset, READ_RECORDS)
            read = [record for record in records if record.offset < end]
            values = self._without_words(topic, partition, read)
            if values:
                changed += self._log.redact(topic.name, partition, values)
                self._log.forget_bytes()
            offset = read[-1].offset + 1 if len(read) == len(records) > 0 else end
            self._log.seek(Position(CONSUMER, topic.name, partition, offset))
        return changed

    def _without_words(
        self, topic: Topic, partition: int, records: Sequence[Record]
    ) -> dict[int, bytes]:
        """Returns new values by offset, also for records that have them already: a crash may have
        left old bytes elsewhere in the log's files."""
        shard = self._shards[partition]
        turns = [
            (record, message)
            for record in records
            if record.value is not None and (shard.privacy or says_withheld(record.value))
            if (message := _turn(topic, record)) is not None
        ]
        ids = {record.offset: items_of(message).item_ids[0] for record, message in turns}
        withheld = _withheld(shard, [*ids.values()])
        unread = {} if topic is not CONVERSATION_TURNS else _unread(shard, records)
        return unread | {
            record.offset: _value(topic, record, message)
            for record, message in turns
            if ids[record.offset] in withheld
        }


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


def _withheld(shard: Shard, item_ids: Sequence[str]) -> set[str]:
    if not item_ids:
        return set()
    with shard.reading() as reader:
        found = reader.execute(_WITHHELD, [PRIVACY_FULL, [*item_ids]]).fetchall()
    return {item_id for (item_id,) in found}


def _value(topic: Topic, record: Record, message: Envelope[Frozen]) -> bytes:
    assert record.value is not None
    if topic is CONVERSATION_TURNS:
        return withheld_value(record.value)
    body = message.body
    assert isinstance(body, MemoryWrite)
    assert isinstance(body.write, RawTurnIntent)
    left = MemoryWrite(write=rejected(body.write.turn))
    return encode(message.model_copy(update={"body": left}))
