"""Shadow deciders run alongside the stages: they receive the live decider's decisions and record
what they would do.

They read `memory-writes` behind apply-writes, so that neither their latency nor their failures
affect a live decision. Their only output is commands in the log: a rebuild reads their proposals
from there and calls no model. Decisions that the live decider made by its bands alone are not shown
to them. They begin with the records that follow their configuration.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from datetime import datetime
from typing import Final

from palimpsest.ops.parts import language_model
from palimpsest.ops.scheduling.periodic import CommandTimer, PeriodicTask, passing
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.commands import (
    RecordShadowProposalsCommand,
    SetFlagsCommand,
    ShadowProposal,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.messages import MemoryWrite, Proposal, ProposalsIntent
from palimpsest.schemas.rows.enumerations import Action
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.shard import Shard
from palimpsest.streams.decide.without_model import (
    decided_by_rules,
    known_by_bands,
    of_remembered_text,
)
from palimpsest.streams.logs.base import LogReader, Outgoing, Record
from palimpsest.streams.memory_rows import effective
from palimpsest.streams.models.base import Reply
from palimpsest.streams.models.hashing import HashingEmbeddingModel
from palimpsest.streams.models.recorded import RecordedReplies
from palimpsest.streams.models.settings import RULES, decider_model, decider_name
from palimpsest.streams.prompting.prompts import decision_prompt
from palimpsest.streams.prompting.replies import MalformedReply, read_decision
from palimpsest.streams.runtime.model_port import ModelPort, Usage
from palimpsest.streams.runtime.offload import in_thread
from palimpsest.streams.runtime.output import own_command
from palimpsest.streams.settings import PipelineSettings
from palimpsest.streams.stage import Generate

# --- deciders -------------------------------------------------------------------------------------
# A shadow decider: the rules, or a model at some address, queried for one decision.

NO_ANSWER = "the provider did not answer, or refused"
LATE = "no answer within pipeline.shadow_seconds"
MOST_CHARACTERS = 2_000
"""Maximum length of a recorded reason."""


Told = dict[str, object]
"""Fields of a ShadowProposal."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision to take: the live one's `proposal` of an `intent`, and the text of the memory that
    the fact was extracted from, a turn or a remembered text."""

    scope: str
    occurred_at: datetime
    intent: ProposalsIntent
    proposal: Proposal
    source: str | None


@dataclass(frozen=True, slots=True)
class Decider:
    """Sends a model one request for a decision, waits for it up to `seconds`, and does not retry.
    Without a `port` it decides like `decision.decider = rules`."""

    name: str
    near: float
    seconds: float
    port: ModelPort | None

    @classmethod
    def of(
        cls, name: str, settings: Settings, replies: RecordedReplies | None, usage: Usage
    ) -> Decider:
        """`usage` counts it as `shadow:` and its name. Raises SetupError if its model cannot be
        created."""
        parsed, seconds = decider_name(name), settings.pipeline.shadow_seconds
        port = None
        if parsed.provider != RULES:
            chosen = decider_model(parsed, settings.llm, seconds)
            port = ModelPort(
                language_model(chosen),
                HashingEmbeddingModel(),  # computes no vectors here
                chosen.concurrency,
                usage=usage,
                replies=replies if settings.replies.retention_days > 0 else None,
                address=chosen.base_url or "",
                called=f"shadow:{name}",
            )
        return cls(name, settings.near, seconds, port)

    async def proposed(self, decision: Decision) -> ShadowProposal:
        """Returns what it would do, or why it has no answer. Never raises a provider's errors."""
        intent, fact = decision.intent, decision.proposal.fact
        if self.port is None:
            said = decided_by_rules(
                decision.occurred_at,
                fact,
                decision.proposal.candidates,
                self.near,
                decision.source,
                speaker=intent.turn.speaker,
            )
            told = _decided(decision, said.action, said.target_id, said.reason, said.confidence)
        else:
            told = await self._by_model(decision)
        known: Told = {"item_id": fact.item_id, "turn_memory_id": intent.turn.memory_id}
        known |= {"decider": self.name, "round": intent.round}
        return ShadowProposal.model_validate(known | told)

    async def _by_model(self, decision: Decision) -> Told:
        assert self.port is not None
        prompt = decision_prompt(
            decision.proposal.fact, decision.occurred_at, decision.proposal.candidates
        )
        try:
            async with asyncio.timeout(self.seconds):
                reply = await self.port.answer(Generate(prompt, advisory=True), decision.scope)
        except TimeoutError:
            return {"error": LATE}
        if reply is None:
            return {"error": NO_ANSWER}
        usage = {name: getattr(reply, name) for name in ("input_tokens", "output_tokens", "cost")}
        return {**usage, "latency_ms": round(reply.latency_ms, 3)} | _read(reply, decision)


def _read(reply: Reply, decision: Decision) -> Told:
    ids = [candidate.memory_id for candidate in decision.proposal.candidates]
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
) -> Told:
    turn = decision.intent.turn
    if turn.is_remembered:
        action, target_id, reason = of_remembered_text(action, target_id, reason, turn.memory_id)
    return {"action": action, "target_id": target_id, "confidence": confidence, "reason": reason}


# --- shadow deciding ------------------------------------------------------------------------------

LOOK_SECONDS: Final = 0.5
AT_ONCE: Final = 16
"""Records processed together."""
IN_A_COMMAND: Final = 50
"""Maximum number of proposals: with their reasons they must fit into a record."""
STATE: Final = "shadow_deciders_next_offset"
"""Key of a shard's state: the next offset of memory-writes to process; empty if no shadow decider
is configured."""
SHADOW: Final = Actor(id="shadow-deciders", type="system")


@dataclass(eq=False)
class ShadowDeciding:
    """Queries every shadow decider for all open shards, which `shards` returns and which may change
    at any time. Raises SetupError if a decider cannot be created."""

    shards: Callable[[], Mapping[int, Shard]]
    log: LogReader
    append: Callable[[Sequence[Outgoing]], object]
    settings: Settings
    clock: Callable[[], datetime]
    replies: InitVar[RecordedReplies | None]
    usage: InitVar[Usage]

    def __post_init__(self, replies: RecordedReplies | None, usage: Usage) -> None:
        named = self.settings.pipeline.shadow_deciders
        self._deciders = [Decider.of(name, self.settings, replies, usage) for name in named]

    async def tasks(self) -> list[PeriodicTask]:
        """Notes where they begin in the shards that are open; returns what asks them."""
        for partition, shard in self.shards().items():
            await self._begin(partition, shard)
        if not self._deciders:
            return []
        return [PeriodicTask("further deciders", LOOK_SECONDS, self._once)]

    async def close(self) -> None:
        """Closes their models."""
        for decider in self._deciders:
            if decider.port is not None:
                await decider.port.language.close()

    def busy(self) -> bool:
        """Whether they have not yet seen every decision."""
        for partition, shard in self.shards().items() if self._deciders else ():
            with contextlib.suppress(StoreClosed):  # the partition has moved to another worker
                end = self.log.end_offset(MEMORY_WRITES.name, partition)
                if (_next_of(shard) or 0) < end:
                    return True
        return False

    async def _once(self) -> float | None:
        found = False
        for partition, shard in self.shards().items():
            with passing("further deciders", partition):
                found |= await self._look(partition, shard)
        return 0.0 if found else None

    async def _begin(self, partition: int, shard: Shard) -> None:
        async with shard.lock:
            await in_thread(self.opened, partition, shard)

    def opened(self, partition: int, shard: Shard) -> None:
        """Notes the end of the log as where they begin, unless an earlier process did. Call it
        before the stages work on the shard, or under its lock. Blocks. Raises LogError."""
        kept = _next_of(shard)
        if self._deciders and kept is None:
            _note(shard, str(self.log.end_offset(MEMORY_WRITES.name, partition)))
        elif not self._deciders and kept is not None:
            _note(shard, "")

    # --- the work ----------------------------------------------------------------------------

    async def _look(self, partition: int, shard: Shard) -> bool:
        """Submits the next decisions to them; returns whether there were records to process."""
        start = await asyncio.to_thread(_next_of, shard)
        if start is None:
            await self._begin(partition, shard)
            return True
        erasures = await asyncio.to_thread(_erasures, shard)
        records = await asyncio.to_thread(self._read, partition, shard, start)
        if not records:
            return False
        decisions = await asyncio.to_thread(
            lambda: [each for record in records for each in self._contested(record, shard)]
        )
        pairs = [(decision, decider) for decision in decisions for decider in self._deciders]
        said = await asyncio.gather(*(decider.proposed(each) for each, decider in pairs))
        by_scope: dict[str, list[ShadowProposal]] = defaultdict(list)
        for (decision, _), proposal in zip(pairs, said, strict=True):
            by_scope[decision.scope].append(proposal)
        commands = []
        for scope, all_of_scope in by_scope.items():
            for first in range(0, len(all_of_scope), IN_A_COMMAND):
                some = tuple(all_of_scope[first : first + IN_A_COMMAND])
                command = RecordShadowProposalsCommand(proposals=some)
                commands.append(own_command(scope, command, SHADOW, self.clock())[1])
        # Under the lock, so that nothing is erased meanwhile: what is appended here is either
        # redacted with the log later, or was derived from redacted records.
        async with shard.lock:
            if await in_thread(_erasures, shard) == erasures:
                await in_thread(self._keep, shard, commands, records[-1].offset + 1)
        return True

    def _read(self, partition: int, shard: Shard, start: int) -> Sequence[Record]:
        topic = MEMORY_WRITES.name
        if start >= shard.cursor_of("apply-writes", topic):
            return ()
        return self.log.read(topic, partition, start, AT_ONCE)

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
        query = "SELECT content FROM memory_rows WHERE memory_id = ?"
        rows = shard.fetch(query, [intent.turn.memory_id])
        source = str(rows[0][0]) if rows else None
        return [
            Decision(message.scope, message.occurred_at, intent, proposal, source)
            for proposal in intent.proposals
            if known_by_bands(
                proposal.fact, proposal.candidates, self.settings, intent.turn.speaker
            )
            is None
        ]

    def _keep(self, shard: Shard, commands: Sequence[Outgoing], next_offset: int) -> None:
        if commands:
            self.append(commands)
        _note(shard, str(next_offset))


def _next_of(shard: Shard) -> int | None:
    """Returns the next offset that they process of the shard's memory-writes; None before they
    begin."""
    [*kept] = shard.fetch("SELECT value FROM shard_state WHERE name = ? AND value <> ''", [STATE])
    return int(kept[0][0]) if kept else None


def _note(shard: Shard, state: str) -> None:
    with shard.writing():
        shard.set_state(STATE, state)


def _erasures(shard: Shard) -> int:
    [(count,)] = shard.fetch("SELECT count(*) FROM erasures")
    return int(count)


# Scopes earn and lose permission to update and delete, by people's verdicts on proposals. The
# newest `pipeline.earn_proposals` updates and deletes with a human verdict count: to apply or
# confirm one is agreement; to dismiss, correct, forget or revert one is disagreement. The change
# is a command in the log with a reason, like that of a person. A flag that a person set for the
# scope is never overridden, and nothing is earned or lost while anything is frozen, or before the
# store has applied all verdicts in the log.

EARNING: Final = Actor(id="earning", type="system")
SLIGHTLY: Final = 1e-9
"""Tolerance, so that 9 of 10 equals 0.9 in binary floating point."""

JUDGED: Final = """
SELECT scope, count(*) AS judged, sum(is_right::INTEGER) AS agreed FROM (
    SELECT scope, is_right,
        row_number() OVER (PARTITION BY scope ORDER BY judged_at DESC, item_id) AS number
    FROM main.decision_verdicts WHERE action IN ('UPDATE', 'DELETE'))
WHERE number <= ? GROUP BY scope ORDER BY scope
"""
CHANGES: Final = "SELECT count(*) FROM history_rows WHERE scope = ? AND event = 'flags'"


@dataclass(frozen=True, slots=True)
class Judged:
    """How many of the newest judged proposals people agreed with."""

    proposals: int = 0
    agreed: int = 0

    def __str__(self) -> str:
        return f"people agreed with {self.agreed} of the last {self.proposals} proposals"


def change_of(judged: Judged, earned: bool, settings: PipelineSettings) -> str | None:
    """Returns why a scope earns the permission, or loses one that it has `earned`; None if nothing
    changes. Losing it takes a clearly lower share than earning it, so that a single verdict does
    not flip it."""
    if not settings.earn_update_delete:
        return "pipeline.earn_update_delete is off" if earned else None
    bar = settings.earn_agreement
    if earned:
        lost = bar - settings.earn_margin
        fell = judged.agreed < lost * judged.proposals - SLIGHTLY
        return f"{judged}: less than {lost:.0%}" if fell else None
    enough = judged.proposals >= settings.earn_proposals
    if enough and judged.agreed >= bar * judged.proposals - SLIGHTLY:
        return f"{judged}: at least {bar:.0%}"
    return None


@dataclass(eq=False)
class Earning(CommandTimer):
    """Grants and revokes the permission for all scopes of the open shards."""

    what = "what scopes earn"
    seconds = 30.0

    def commands(self, shard: Shard) -> dict[str, Outgoing]:
        flags, settings = dict(shard.flags), self.settings.pipeline
        judged: dict[str, Judged] = {}
        if settings.earn_update_delete:
            rows = shard.fetch(JUDGED, [settings.earn_proposals])
            judged = {scope: Judged(int(count), int(right)) for scope, count, right in rows}
        found = {}
        for scope in sorted(judged.keys() | flags.keys()):
            own = flags.get(scope)
            now = effective(settings, own)
            is_set = settings.allow_update_delete or (
                own is not None and own.allow_update_delete is not None
            )
            if is_set or now.mutations_frozen or now.autonomous_frozen:
                continue
            earned = own is not None and bool(own.earned_update_delete)
            why = change_of(judged.get(scope, Judged()), earned, settings)
            if why is not None:
                # The count of changes gives each further change a command id of its own.
                command = SetFlagsCommand(earned_update_delete=not earned, reason=why)
                [(changes,)] = shard.fetch(CHANGES, [scope])
                key, record = own_command(scope, command, EARNING, self.clock(), changes)
                found[key] = record
        return found
