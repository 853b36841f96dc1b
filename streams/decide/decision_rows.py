"""What is stored of decisions: extractions, their facts, and the proposals. Pure."""

from __future__ import annotations

import json

from palimpsest.schemas.messages import (
    Fact,
    FactsExtracted,
    ModelCall,
    Proposal,
    ProposalsIntent,
    ScoredCandidate,
)
from palimpsest.schemas.rows import ExtractionRow, FactRow, ProposalRow
from palimpsest.streams.stage import Message


def extraction_row(message: Message, body: FactsExtracted) -> ExtractionRow:
    call = body.call
    return ExtractionRow(
        message_id=message.id,
        scope=message.scope,
        turn_memory_id=body.turn.memory_id,
        provider=call.provider,
        model=call.model,
        prompt_version=call.prompt_version,
        facts=len(body.facts),
        triples=len(body.triples),
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        latency_ms=call.latency_ms,
        attempts=call.attempts,
        cost=call.cost,
        warnings=body.warnings,
        round=body.round,
        recorded_at=message.recorded,
    )


def fact_row(message: Message, body: FactsExtracted | ProposalsIntent, fact: Fact) -> FactRow:
    """`message` is the extraction or the intent that has the fact."""
    return FactRow(
        item_id=fact.item_id,
        scope=message.scope,
        turn_memory_id=body.turn.memory_id,
        content=fact.content,
        type=fact.type,
        confidence=fact.confidence,
        importance=fact.importance,
        temporal_kind=fact.temporal_kind,
        valid_until=fact.valid_until,
        categories=fact.categories,
        model=body.call.model,
        prompt_version=body.call.prompt_version,
        occurred_at=message.occurred_at,
        correlation_id=message.correlation_id,
    )


def candidates_json(
    candidates: tuple[ScoredCandidate, ...],
) -> list[dict[str, str | int | float | None]]:
    """Returns the candidates that the decision saw, short enough to store with every event."""
    return [
        {
            "memory_id": candidate.memory_id,
            "version": candidate.version,
            "score": candidate.score,
            "cosine": candidate.cosine,
            "keyword": candidate.keyword,
        }
        for candidate in candidates
    ]


def proposal_row(message: Message, intent: ProposalsIntent, proposal: Proposal) -> ProposalRow:
    decider: ModelCall | None = proposal.decider
    return ProposalRow(
        item_id=proposal.item_id,
        round=intent.round,
        scope=message.scope,
        memory_id=proposal.memory_id,
        action=proposal.action,
        target_id=proposal.target_id,
        confidence=proposal.confidence,
        reason=proposal.reason,
        candidates=json.dumps(candidates_json(proposal.candidates)),
        contradiction_risk=proposal.contradiction_risk,
        review_needed=proposal.review_needed,
        dropped=proposal.dropped,
        model=None if decider is None else decider.model,
        prompt_version=None if decider is None else decider.prompt_version,
        input_tokens=None if decider is None else decider.input_tokens,
        output_tokens=None if decider is None else decider.output_tokens,
        latency_ms=None if decider is None else decider.latency_ms,
        cost=None if decider is None else decider.cost,
        as_of=intent.as_of,
        recorded_at=message.recorded,
    )
