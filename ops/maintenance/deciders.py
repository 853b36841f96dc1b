"""A further decider: the rules, or a model at some address, asked about one decision."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from palimpsest.ops.parts import language_model
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.messages import Action, Fact, Proposal, ScoredCandidate
from palimpsest.schemas.shadow_commands import ShadowProposal
from palimpsest.streams.decide.deciders import decided_by_rules, of_remembered_text
from palimpsest.streams.models.base import LanguageModel, Reply
from palimpsest.streams.models.decider_names import RULES, decider_model, decider_name
from palimpsest.streams.models.hashing import HashingEmbeddingModel
from palimpsest.streams.models.recorded import RecordedReplies
from palimpsest.streams.prompting.prompts import decision_prompt
from palimpsest.streams.prompting.replies import MalformedReply, read_decision
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.model_usage import Usage
from palimpsest.streams.stage import Generate

NO_ANSWER = "the provider did not answer, or refused"
LATE = "no answer within pipeline.shadow_seconds"
MOST_CHARACTERS = 2_000
"""Of a reason that is kept."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was to be decided: `source_id` is the memory that the fact was drawn from, a turn or
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
        """What it would do, or why it says nothing. Never raises what a provider does."""
        ...

    async def close(self) -> None: ...


def deciders_of(settings: Settings, replies: RecordedReplies | None, usage: Usage) -> list[Decider]:
    """Those that are set, in their order; in `usage` each counts as `shadow:` and its name. Raises
    SetupError where none can be made."""
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
        HashingEmbeddingModel(),  # it is asked for no vectors
        chosen.concurrency,
        usage=usage,
        replies=kept,
        address=chosen.base_url or "",
        called=f"shadow:{text}",
    )
    return ModelDecider(text, language, port, seconds)


class RulesDecider:
    """As `decision.decider = rules` decides."""

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
    """Asks once, and waits `seconds`: no one retries for it."""

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
