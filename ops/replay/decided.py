"""decide once more, from what it said the first time: nothing is decided anew."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from palimpsest.ops.replay.recorded import recorded
from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.dead_letters import DeadLetter
from palimpsest.schemas.messages import FactsExtracted, MemoryWrite, ProposalsIntent
from palimpsest.schemas.topics import DEAD_LETTERS, FACTS_EXTRACTED, MEMORY_WRITES, Topic
from palimpsest.streams.decision_rows import extraction_row, fact_row, proposal_row
from palimpsest.streams.logs.base import LogReader
from palimpsest.streams.stage import Context, Failure, Message, Stage, Step, without_asks
from palimpsest.streams.store_port import Put, StorePort, Write

NOTHING_KEPT = "unexpected"
"""A record that decide failed at like this left nothing in its tables."""


def recorded_decide_stage(log: LogReader, partition: int, store: StorePort) -> Stage:
    """The stage, which goes on from where `store` is."""
    said = _Said(log, partition)
    said.skip(store.cursor_of("decide", FACTS_EXTRACTED.name))
    failed = _failures(log, partition)

    def process(message: Message, context: Context) -> Step:
        body = message.body
        assert isinstance(body, FactsExtracted)
        failure = failed.get(message.id)
        if failure is not None and failure.failure == NOTHING_KEPT:
            return Step(dead=Failure(failure.reason))
        intent = said.of(message.id)
        proposals = () if intent is None else intent.proposals
        decided = {proposal.item_id for proposal in proposals}
        decided |= set() if failure is None else set(failure.item_ids)
        facts = [fact for fact in body.facts if fact.item_id in decided]
        writes: list[Write] = [Put(extraction_row(message, body))]
        writes += [Put(fact_row(message, body, fact)) for fact in facts]
        as_of = 0 if intent is None else intent.as_of
        writes += [Put(proposal_row(message, body, each, as_of)) for each in proposals]
        return Step(writes=tuple(writes))

    return Stage("decide", (FACTS_EXTRACTED,), without_asks(process), stateful=True)


@dataclass
class _Said:
    """The proposals by what they were made of, which are asked for in the order of the log: no
    more of them is kept than decide was ahead of what it told."""

    log: LogReader
    partition: int
    _done: set[str] = field(default_factory=set)
    _next: tuple[str, ProposalsIntent] | None = None

    def __post_init__(self) -> None:
        self._rest = self._intents()

    def skip(self, offset: int) -> None:
        """What was made of the records before `offset` is not asked for."""
        for at, message in _messages(self.log, FACTS_EXTRACTED, self.partition):
            if at >= offset:
                return
            self._done.add(message.id)

    def of(self, facts_id: str) -> ProposalsIntent | None:
        while True:
            if self._next is None:
                self._next = next(self._rest, None)
            if self._next is None:
                return None
            cause, intent = self._next
            if cause == facts_id:
                self._next = None
                self._done.add(facts_id)
                return intent
            if cause not in self._done:
                self._done.add(facts_id)
                return None
            self._next = None

    def _intents(self) -> Iterator[tuple[str, ProposalsIntent]]:
        for _, message in _messages(self.log, MEMORY_WRITES, self.partition):
            body = message.body
            if isinstance(body, MemoryWrite) and isinstance(body.write, ProposalsIntent):
                yield message.causation_id or "", body.write


def _failures(log: LogReader, partition: int) -> Mapping[str, DeadLetter]:
    """What decide gave up, by message."""
    return {
        message.causation_id or "": message.body
        for _, message in _messages(log, DEAD_LETTERS, partition)
        if isinstance(message.body, DeadLetter) and message.body.stage == "decide"
    }


def _messages(log: LogReader, topic: Topic, partition: int) -> Iterator[tuple[int, Message]]:
    for record in recorded(log, topic.name, partition):
        with contextlib.suppress(InvalidRecord):
            yield record.offset, decode(record.value, topic, record.timestamp)
