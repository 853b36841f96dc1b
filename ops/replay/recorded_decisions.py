"""What decide came to, as the log recorded it: nothing is decided again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.dead_letters import DeadLetter
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.identity import message_key
from palimpsest.schemas.messages import MemoryWrite, ProposalsIntent
from palimpsest.schemas.topics import DEAD_LETTERS, FACTS_EXTRACTED, MEMORY_WRITES, TOPICS
from palimpsest.streams.logs.base import LogReader, Record
from palimpsest.streams.stage import Message
from palimpsest.streams.store_port import Outbound

READ_RECORDS = 2_000
DECIDE = "decide"


@dataclass(frozen=True, slots=True)
class Decision:
    """What decide came to of one record of facts-extracted: the intent that it sent, if any; of
    which facts it came to no end (`undecided`, their ids); whether it failed altogether."""

    intent: ProposalsIntent | None = None
    undecided: frozenset[str] = frozenset()
    failed: bool = False


class RecordedDecisions:
    """The decisions of one partition, read in step with the records that they are about. `unsent`
    are outboxes of decide in copies of the store: what was committed and is not in the log."""

    def __init__(self, log: LogReader, partition: int, unsent: Iterable[Outbound] = ()) -> None:
        self._log = log
        self._partition = partition
        self._intents: dict[str, tuple[int, ProposalsIntent]] = {}
        self._next = 0
        self._dead = _dead_letters(log, partition)
        self._kept = {key: out for out in unsent if (key := _intent_id(out)) is not None}
        self._sent_through = 0

    @property
    def known_through(self) -> int:
        """The offset of facts-extracted before which all that decide came to is in the log."""
        return max(self._sent_through, max(self._dead, default=-1) + 1)

    def read(self, begin: int, end: int) -> None:
        """Read on until the decisions of all records before `end` are known or the log ends; those
        of records before `begin` are not asked for any more."""
        self._intents = {key: found for key, found in self._intents.items() if found[0] >= begin}
        # By the intents alone: a dead letter of a later record says nothing of those before it.
        while self._sent_through < end:
            records = self._log.read(MEMORY_WRITES.name, self._partition, self._next, READ_RECORDS)
            if not records:
                return
            self._next = records[-1].offset + 1
            for record in records:
                self._take(record, begin)

    def _take(self, record: Record, begin: int) -> None:
        # The field's name in quotes that nothing escapes stands in no text.
        if b'"decision_order":' not in (record.value or b""):
            return
        try:
            message = decode(record.value, MEMORY_WRITES, record.timestamp)
        except InvalidRecord:
            return
        body = message.body
        if isinstance(body, MemoryWrite) and isinstance(body.write, ProposalsIntent):
            order = body.write.decision_order
            self._sent_through = max(self._sent_through, order + 1)
            if order >= begin:
                self._intents.setdefault(message.id, (order, body.write))

    def of(self, record: Record, message: Message) -> Decision:
        """What came of a record that lies before the `end` of `read`."""
        key = derived_id(DECIDE, message_key(message), "proposals")
        _, intent = self._intents.get(key, (0, None))
        dead_letter = self._dead.get(record.offset)
        if dead_letter is None:
            return Decision(intent)
        if dead_letter.failure == "unexpected":
            return Decision(intent, failed=True)
        return Decision(intent, frozenset(dead_letter.item_ids))

    def unsent(self, message: Message) -> tuple[Outbound, ProposalsIntent] | None:
        """The intent that a copy of the store has in its outbox."""
        out = self._kept.get(derived_id(DECIDE, message_key(message), "proposals"))
        if out is None:
            return None
        body = decode(out.value, TOPICS[out.topic], None).body
        assert isinstance(body, MemoryWrite)
        assert isinstance(body.write, ProposalsIntent)
        return out, body.write


def _intent_id(out: Outbound) -> str | None:
    """The id of a committed intent; None of all else."""
    if out.topic != MEMORY_WRITES.name:
        return None
    try:
        message = decode(out.value, MEMORY_WRITES, None)
    except InvalidRecord:
        return None
    body = message.body
    is_intent = isinstance(body, MemoryWrite) and isinstance(body.write, ProposalsIntent)
    return message.id if is_intent else None


def _dead_letters(log: LogReader, partition: int) -> dict[int, DeadLetter]:
    """Decide's dead letters, by the offset of the record that died."""
    found: dict[int, DeadLetter] = {}
    offset = 0
    while records := log.read(DEAD_LETTERS.name, partition, offset, READ_RECORDS):
        offset = records[-1].offset + 1
        for record in records:
            if f'"{DECIDE}"'.encode() not in (record.value or b""):
                continue
            try:
                dead_letter = decode(record.value, DEAD_LETTERS, record.timestamp).body
            except InvalidRecord:
                continue
            if (
                isinstance(dead_letter, DeadLetter)
                and dead_letter.stage == DECIDE
                and dead_letter.topic == FACTS_EXTRACTED.name
            ):
                found.setdefault(dead_letter.offset, dead_letter)
    return found
