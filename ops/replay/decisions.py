"""Decide's tables, from what it was given and what it is recorded to have come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from palimpsest.ops.replay.recorded_decisions import DECIDE, Decision, RecordedDecisions
from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.identity import message_key
from palimpsest.schemas.messages import FactsExtracted
from palimpsest.schemas.topics import FACTS_EXTRACTED
from palimpsest.stores.shard import Shard
from palimpsest.streams.decide.decision_rows import extraction_row, fact_row, proposal_row
from palimpsest.streams.logs.base import LogReader, Record
from palimpsest.streams.stage import Message
from palimpsest.streams.store_port import Load, Loaded, Outbound, Progress, Put, UnitPort, Write


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
