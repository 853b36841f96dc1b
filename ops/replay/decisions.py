"""Builds decide's tables from its input and its recorded results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.identity import message_key
from palimpsest.schemas.messages import DeadLetter, FactsExtracted, MemoryWrite, ProposalsIntent
from palimpsest.schemas.topics import DEAD_LETTERS, FACTS_EXTRACTED, MEMORY_WRITES, TOPICS
from palimpsest.stores.shard import Shard
from palimpsest.streams.decide.decision_rows import extraction_row, fact_row, proposal_row
from palimpsest.streams.logs.base import LogReader, Record
from palimpsest.streams.stage import Message
from palimpsest.streams.store_port import Load, Loaded, Outbound, Progress, Put, UnitPort, Write

# --- recorded decisions ---------------------------------------------------------------------------
# The results of decide, as the log recorded them: nothing is decided again.

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
        """The offset of facts-extracted before which the log has all results of decide."""
        return max(self._sent_through, max(self._dead, default=-1) + 1)

    def read(self, begin: int, end: int) -> None:
        """Reads on until the decisions of all records before `end` are known or the log ends.
        Discards those of records before `begin`."""
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


# --- decisions ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Batch:
    """What is to be committed at once. `end` is the next offset."""

    unit: UnitPort
    end: int = 0
    seen: list[tuple[str, int]] = field(default_factory=list)
    outbox: list[Outbound] = field(default_factory=list)


class DecisionFold:
    """Folds records of facts-extracted into one shard."""

    def __init__(
        self, shard: Shard, log: LogReader, partition: int, decisions: RecordedDecisions
    ) -> None:
        self._shard = shard
        self._log = log
        self._partition = partition
        self._decisions = decisions

    def fold(self, records: Sequence[Record]) -> int:
        """Fold records that follow the cursor and commit that; how many. None from the first on of
        which no one knows what decide came to: it was never sent, and can only be decided again."""
        if not records:
            return 0
        self._decisions.read(records[0].offset, records[-1].offset + 1)
        messages = [_decoded(record) for record in records]
        done = self._shard.seen(DECIDE, [message_key(m) for m in messages if m is not None])
        batch = _Batch(self._shard.unit())
        folded = 0
        for record, message in zip(records, messages, strict=True):
            if not self._fold(batch, record, message, done):
                break
            batch.end = record.offset + 1
            folded += 1
        if folded:
            self._commit(batch)
        return folded

    def _fold(self, batch: _Batch, record: Record, message: Message | None, done: set[str]) -> bool:
        """Whether it is known what came of the record."""
        is_recorded = record.offset < self._decisions.known_through
        if message is None:
            return is_recorded  # it became a dead letter and nothing else
        key = message_key(message)
        if key in done:
            return True
        decision = self._decisions.of(record, message)
        if not is_recorded:
            found = self._unsent(batch, message)
            if found is None and self._has_result(batch, message):
                return False
            decision = found or decision
        done.add(key)
        batch.seen.append((key, record.offset))
        batch.unit.stage(self._writes(batch, message, decision))
        return True

    def _unsent(self, batch: _Batch, message: Message) -> Decision | None:
        """What a copy of the store was about to send, which the new one sends then."""
        found = self._decisions.unsent(message)
        if found is None:
            return None
        out, intent = found
        seq = self._shard.next_outbox_seq(DECIDE) + len(batch.outbox)
        batch.outbox.append(Outbound(seq, out.topic, out.scope, out.key, out.value))
        return Decision(intent)

    def _has_result(self, batch: _Batch, message: Message) -> bool:
        """Whether decide would send anything: all but a repeat, and what has nothing to decide."""
        body = _facts_of(message)
        if not body.facts:
            return bool(body.triples) and not body.round
        return bool(body.round or message.redrive) or len(_known(batch, message)) < len(body.facts)

    def _writes(self, batch: _Batch, message: Message, decision: Decision) -> list[Write]:
        body = _facts_of(message)
        if decision.failed:
            return []
        writes: list[Write] = [Put(extraction_row(message, body))]
        facts = [fact for fact in body.facts if fact.item_id in decision.undecided]
        if decision.intent is not None:
            # As decide had them: of an erased memory without their text.
            facts += [proposal.fact for proposal in decision.intent.proposals]
            writes += [
                Put(proposal_row(message, body, proposal, decision.intent.as_of))
                for proposal in decision.intent.proposals
            ]
        # A reconsidered fact stays as it was noted first; a redriven one is noted again.
        known = _known(batch, message) if body.round or message.redrive else frozenset()
        kept = known if body.round else frozenset()
        return writes + [
            Put(fact_row(message, body, fact)) for fact in facts if fact.item_id not in kept
        ]

    def _commit(self, batch: _Batch) -> None:
        batch.unit.commit(
            Progress(
                stage=DECIDE,
                cursors={FACTS_EXTRACTED.name: batch.end},
                seen=batch.seen,
                outbox=batch.outbox,
                sent_through=-1,
            )
        )


def _decoded(record: Record) -> Message | None:
    try:
        return decode(record.value, FACTS_EXTRACTED, record.timestamp)
    except InvalidRecord:
        return None


def _facts_of(message: Message) -> FactsExtracted:
    assert isinstance(message.body, FactsExtracted)
    return message.body


def _known(batch: _Batch, message: Message) -> frozenset[str]:
    """Which of the message's facts were taken note of before."""
    ids = tuple(fact.item_id for fact in _facts_of(message).facts)
    loaded = batch.unit.answer(Load(message.scope, fact_ids=ids))
    assert isinstance(loaded, Loaded)
    return frozenset(loaded.facts)
