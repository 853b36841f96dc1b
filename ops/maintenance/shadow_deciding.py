"""Shadow deciders run alongside the stages: they receive the live decider's decisions and record
what they would do.

They read `memory-writes` behind apply-writes, so that neither their latency nor their failures
affect a live decision. Their only output is commands in the log: a rebuild reads their proposals
from there and calls no model. Decisions that the live decider made by its bands alone are not shown
to them. They begin with the records that follow their configuration.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from palimpsest.ops.maintenance.own_commands import own_command
from palimpsest.ops.maintenance.periodic import PeriodicTask, passing
from palimpsest.ops.parts import language_model
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.commands import Actor, RecordShadowProposalsCommand, ShadowProposal
from palimpsest.schemas.enumerations import Action
from palimpsest.schemas.messages import (
    Fact,
    MemoryWrite,
    Proposal,
    ProposalsIntent,
    ScoredCandidate,
)
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.stores.shard import Shard
from palimpsest.streams.decide.deciders import decided_by_rules, known_by_bands, of_remembered_text
from palimpsest.streams.logs.base import LogReader, Outgoing, Record
from palimpsest.streams.models.base import LanguageModel, Reply
from palimpsest.streams.models.decider_names import RULES, decider_model, decider_name
from palimpsest.streams.models.hashing import HashingEmbeddingModel
from palimpsest.streams.models.recorded import RecordedReplies
from palimpsest.streams.prompting.prompts import decision_prompt
from palimpsest.streams.prompting.replies import MalformedReply, read_decision
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.model_usage import Usage
from palimpsest.streams.stage import Generate

# --- deciders -------------------------------------------------------------------------------------
# A shadow decider: the rules, or a model at some address, queried for one decision.

NO_ANSWER = "the provider did not answer, or refused"
LATE = "no answer within pipeline.shadow_seconds"
MOST_CHARACTERS = 2_000
"""Maximum length of a recorded reason."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision to take: `source_id` is the memory that the fact was extracted from, a turn or
    (`is_remembered`) a remembered text, and `source` its text."""

    scope: str
    occurred_at: datetime
    fact: Fact
    candidates: tuple[ScoredCandidate, ...]
    source_id: str
    source: str | None
    is_remembered: bool
    round: int


class Decider(Protocol):
    async def proposed(self, decision: Decision) -> ShadowProposal:
        """Returns what it would do, or why it has no answer. Never raises a provider's errors."""
        ...

    async def close(self) -> None: ...


def deciders_of(settings: Settings, replies: RecordedReplies | None, usage: Usage) -> list[Decider]:
    """Returns the configured deciders, in order; `usage` counts each as `shadow:` and its name.
    Raises SetupError if one cannot be created."""
    named = settings.pipeline.shadow_deciders
    return [_decider(name, settings, replies, usage) for name in named]


def _decider(
    text: str, settings: Settings, replies: RecordedReplies | None, usage: Usage
) -> Decider:
    name, seconds = decider_name(text), settings.pipeline.shadow_seconds
    if name.provider == RULES:
        return RulesDecider(text, settings.near)
    chosen = decider_model(name, settings.llm, seconds)
    kept = replies if settings.replies.retention_days > 0 else None
    language = language_model(chosen)
    port = ModelPort(
        language,
        HashingEmbeddingModel(),  # computes no vectors here
        chosen.concurrency,
        usage=usage,
        replies=kept,
        address=chosen.base_url or "",
        called=f"shadow:{text}",
    )
    return ModelDecider(text, language, port, seconds)


class RulesDecider:
    """Decides like `decision.decider = rules`."""

    def __init__(self, name: str, near: float) -> None:
        self._name = name
        self._near = near

    async def proposed(self, decision: Decision) -> ShadowProposal:
        said: Proposal = decided_by_rules(
            decision.occurred_at,
            decision.fact,
            decision.candidates,
            self._near,
            decision.source,
        )
        return _said(self._name, decision).model_copy(
            update=_decided(decision, said.action, said.target_id, said.reason, said.confidence)
        )

    async def close(self) -> None:
        return None


class ModelDecider:
    """Sends one request and waits up to `seconds`; does not retry."""

    def __init__(self, name: str, language: LanguageModel, port: ModelPort, seconds: float) -> None:
        self._name = name
        self._language = language
        self._port = port
        self._seconds = seconds

    async def proposed(self, decision: Decision) -> ShadowProposal:
        prompt = decision_prompt(decision.fact, decision.occurred_at, decision.candidates)
        said = _said(self._name, decision)
        try:
            async with asyncio.timeout(self._seconds):
                reply = await self._port.answer(Generate(prompt, advisory=True), decision.scope)
        except TimeoutError:
            return said.model_copy(update={"error": LATE})
        if reply is None:
            return said.model_copy(update={"error": NO_ANSWER})
        return said.model_copy(update=_cost(reply) | _read(reply, decision))

    async def close(self) -> None:
        await self._language.close()


def _said(name: str, decision: Decision) -> ShadowProposal:
    return ShadowProposal(
        item_id=decision.fact.item_id,
        round=decision.round,
        turn_memory_id=decision.source_id,
        decider=name,
    )


def _cost(reply: Reply) -> dict[str, object]:
    return {
        "input_tokens": reply.input_tokens,
        "output_tokens": reply.output_tokens,
        "latency_ms": round(reply.latency_ms, 3),
        "cost": reply.cost,
    }


def _read(reply: Reply, decision: Decision) -> dict[str, object]:
    ids = [candidate.memory_id for candidate in decision.candidates]
    try:
        draft = read_decision(reply.text, ids)
    except MalformedReply as error:
        return {"error": str(error)[:MOST_CHARACTERS]}
    if draft.dropped is not None:
        return {"error": draft.dropped[:MOST_CHARACTERS]}
    reason = draft.reason[:MOST_CHARACTERS]
    return _decided(decision, draft.action, draft.target_id, reason, draft.confidence)


def _decided(
    decision: Decision, action: Action, target_id: str | None, reason: str, confidence: float
) -> dict[str, object]:
    if decision.is_remembered:
        action, target_id, reason = of_remembered_text(
            action, target_id, reason, decision.source_id
        )
    return {"action": action, "target_id": target_id, "confidence": confidence, "reason": reason}


# --- shadow deciding ------------------------------------------------------------------------------

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
AT_ONCE: Final = 16
"""Records processed together."""
IN_A_COMMAND: Final = 50
"""Maximum number of proposals: with their reasons they must fit into a record."""
STATE: Final = "shadow_deciders_next_offset"
"""Key of a shard's state: the next offset of memory-writes to process; empty if no shadow decider
is configured."""
SHADOW: Final = Actor(id="shadow-deciders", type="system")


@dataclass(frozen=True, slots=True)
class _Read:
    """Decisions of a batch of records, from the store after this number of `erasures`."""

    decisions: tuple[Decision, ...]
    next_offset: int
    erasures: int


class ShadowDeciding:
    """Queries every shadow decider for all open shards, which `shards` returns and which may change
    at any time."""

    def __init__(
        self,
        shards: Callable[[], Mapping[int, Shard]],
        log: LogReader,
        append: Callable[[Sequence[Outgoing]], object],
        settings: Settings,
        clock: Callable[[], datetime],
        replies: RecordedReplies | None,
        usage: Usage,
    ) -> None:
        self._shards = shards
        self._log = log
        self._append = append
        self._settings = settings
        self._clock = clock
        self._deciders: list[Decider] = deciders_of(settings, replies, usage)
        self._next: dict[int, tuple[Shard, int]] = {}

    async def tasks(self) -> list[PeriodicTask]:
        """Notes where they begin in the shards that are open; returns what asks them."""
        for partition, shard in self._shards().items():
            await self._begin(partition, shard)
        if not self._deciders:
            return []
        return [PeriodicTask("further deciders", LOOK_SECONDS, self._once)]

    async def close(self) -> None:
        """Closes their models."""
        for decider in self._deciders:
            await decider.close()

    def busy(self) -> bool:
        """Whether they have not yet seen every decision."""
        return any(
            self._next_of(partition, shard) < self._log.end_offset(MEMORY_WRITES.name, partition)
            for partition, shard in (self._shards().items() if self._deciders else ())
        )

    async def _once(self) -> float | None:
        found = False
        shards = self._shards()
        # Drop shards that are no longer open.
        self._next = {
            number: known for number, known in self._next.items() if shards.get(number) is known[0]
        }
        for partition, shard in shards.items():
            with passing("further deciders", partition):
                found |= await self._look(partition, shard)
        return 0.0 if found else None

    # --- where they are ----------------------------------------------------------------------

    async def _begin(self, partition: int, shard: Shard) -> None:
        async with shard.lock:
            await asyncio.to_thread(self.opened, partition, shard)

    def opened(self, partition: int, shard: Shard) -> None:
        """Resumes where an earlier process ended, or at the end of the log if there was none. Call
        it before the stages work on the shard, or under its lock. Blocks. Raises LogError."""
        with shard.writing():
            kept = shard.state(STATE)
            if not self._deciders:
                if kept:
                    shard.set_state(STATE, "")
                return
            if not kept:
                kept = str(self._log.end_offset(MEMORY_WRITES.name, partition))
                shard.set_state(STATE, kept)
        self._next[partition] = (shard, int(kept))

    def _next_of(self, partition: int, shard: Shard) -> int:
        """Returns the next offset; 0 for a shard that was just opened."""
        known, offset = self._next.get(partition, (None, 0))
        return offset if known is shard else 0

    # --- the work ----------------------------------------------------------------------------

    async def _look(self, partition: int, shard: Shard) -> bool:
        """Submits the next decisions to them; returns whether there were records to process."""
        if self._next.get(partition, (None, 0))[0] is not shard:
            await self._begin(partition, shard)
        read = await asyncio.to_thread(self._read, partition, shard)
        if read is None:
            return False
        said = await asyncio.gather(
            *(
                decider.proposed(decision)
                for decision in read.decisions
                for decider in self._deciders
            )
        )
        scopes = [decision.scope for decision in read.decisions for _ in self._deciders]
        by_scope: dict[str, list[ShadowProposal]] = defaultdict(list)
        for scope, proposal in zip(scopes, said, strict=True):
            by_scope[scope].append(proposal)
        records = [
            self._record(scope, some)
            for scope, proposals in by_scope.items()
            for some in _batched(proposals)
        ]
        # Under the lock, so that nothing is erased meanwhile: what is appended here is either
        # redacted with the log later, or was derived from redacted records.
        async with shard.lock:
            await asyncio.to_thread(self._keep, partition, shard, read, records)
        return True

    def _record(self, scope: str, proposals: tuple[ShadowProposal, ...]) -> Outgoing:
        command = RecordShadowProposalsCommand(proposals=proposals)
        _, record = own_command(scope, command, SHADOW, self._clock())
        return record

    def _read(self, partition: int, shard: Shard) -> _Read | None:
        start, topic = self._next_of(partition, shard), MEMORY_WRITES.name
        if start >= shard.cursor_of("apply-writes", topic):
            return None
        erasures = _erasures(shard)
        records = self._log.read(topic, partition, start, AT_ONCE)
        if not records:
            return None
        decisions = tuple(each for record in records for each in self._contested(record, shard))
        return _Read(decisions, records[-1].offset + 1, erasures)

    def _contested(self, record: Record, shard: Shard) -> list[Decision]:
        """Returns the decisions of a record that the bands alone did not settle."""
        try:
            message = decode(record.value, MEMORY_WRITES, record.timestamp)
        except InvalidRecord:
            return []  # apply-writes wrote a dead letter for it
        body = message.body
        if not isinstance(body, MemoryWrite) or not isinstance(body.write, ProposalsIntent):
            return []
        intent = body.write
        source = _text_of(shard, intent.turn.memory_id)
        return [
            Decision(
                message.scope,
                message.occurred_at,
                proposal.fact,
                proposal.candidates,
                intent.turn.memory_id,
                source,
                intent.turn.is_remembered,
                intent.round,
            )
            for proposal in intent.proposals
            if known_by_bands(proposal.fact, proposal.candidates, self._settings) is None
        ]

    def _keep(self, partition: int, shard: Shard, read: _Read, records: Sequence[Outgoing]) -> None:
        if _erasures(shard) != read.erasures:
            return  # the next round reads the redacted records again
        if records:
            self._append(records)
        with shard.writing():
            shard.set_state(STATE, str(read.next_offset))
        self._next[partition] = (shard, read.next_offset)


def _batched(proposals: Sequence[ShadowProposal]) -> list[tuple[ShadowProposal, ...]]:
    starts = range(0, len(proposals), IN_A_COMMAND)
    return [tuple(proposals[start : start + IN_A_COMMAND]) for start in starts]


def _text_of(shard: Shard, memory_id: str) -> str | None:
    with shard.reading() as reader:
        row = reader.execute(
            "SELECT content FROM memory_rows WHERE memory_id = ?", [memory_id]
        ).fetchone()
    return None if row is None else str(row[0])


def _erasures(shard: Shard) -> int:
    with shard.reading() as reader:
        row = reader.execute("SELECT count(*) FROM erasures").fetchone()
    assert row is not None
    return int(row[0])
