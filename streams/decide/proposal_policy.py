"""The outcome of a proposal: one function, with which decide anticipates and apply-writes acts.

Pure: the verdict depends only on the arguments, so what is anticipated is what is applied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from palimpsest.schemas.erasure.quotations import ERASED, mark_of
from palimpsest.schemas.extraction import Fact, FactsExtracted, TurnReference
from palimpsest.schemas.identity import fact_memory_id
from palimpsest.schemas.messages import Proposal, ProposalsIntent, ScoredCandidate
from palimpsest.schemas.privacy import PRIVACY_FULL
from palimpsest.schemas.rows.columns import row_of
from palimpsest.schemas.rows.enumerations import OutcomeEvent
from palimpsest.schemas.rows.memories import SOURCE_TYPES, MemoryRow
from palimpsest.schemas.rows.pipeline import ExtractionRow, FactRow, ProposalRow
from palimpsest.streams.memory_rows import (
    Origin,
    archived,
    archived_id,
    changed,
    deleted,
    edge,
    edge_rows,
    ended,
    fact_memory,
    is_erased,
    is_past,
    is_said_later,
    protected,
    restated,
    said_again,
    skip_reason,
)
from palimpsest.streams.settings import Flags, PipelineSettings
from palimpsest.streams.stage import Message
from palimpsest.streams.store_port import BETWEEN, Put, Write

SAID_BY_ITS_SOURCE = "said_by_its_source"
"""Reason for a fact that a remembered text already states."""


# Larger than the number of facts per extraction, so that the orders of two records never overlap.
ORDERS_PER_RECORD = 64

STALE = "decided on what has changed since"
SAID_BEFORE = "said before what excludes it"
"""Reason for a statement older than the memory that it contradicts."""
MAY_EXCLUDE = "may not hold beside a known memory"
"""Reason for a change that only a person may make: both may be true, or the one may not be all
that was said."""

MAY_HOLD_NOW = "what it may not hold beside is no longer said"
"""Reason for a statement that waited until its memory said something else."""

Cause = Literal["target_gone", "version_conflict", "near_duplicate"]
"""Why a proposal no longer fits the store."""


@dataclass(frozen=True, slots=True)
class Met:
    """The state of the store relevant to a proposal.

    `source` is its turn, or the remembered text that it was extracted from while that had the hash
    `source_hash` (None for a turn). `target` is the memory that it names, `same` the id of the
    active memory with the fact's content, `newcomer` that of a near duplicate which the decision
    could not have seen. `is_final`: it may not be sent back again. `by_date`: what holds follows
    from when it was said, not from when it arrived. `by_person`: a person requested
    it, `forced` even for a pinned memory. `private`: the privacy level of a person that it is from
    or about allows none of it to be kept."""

    flags: Flags
    source: MemoryRow | None
    target: MemoryRow | None
    same: str | None
    newcomer: str | None = None
    is_final: bool = False
    source_hash: str | None = None
    by_person: bool = False
    forced: bool = False
    private: bool = False
    by_date: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome: its event, its reason and the memory that it names. `row` is the new state of
    the memory (without a write sequence), None if none changes; `cause` is why the proposal is out
    of date, if it is."""

    event: OutcomeEvent
    reason: str
    memory_id: str | None
    row: MemoryRow | None = None
    cause: Cause | None = None


def decision_order(offset: int, number: int) -> int:
    """The position of a record's proposal in the order of all decisions."""
    return offset * ORDERS_PER_RECORD + number


def least_confidence(turn: TurnReference, pipeline: PipelineSettings) -> float:
    """Returns the minimum confidence of a fact of the turn. A request to remember confirms its
    content, however unsure the model was."""
    return 0.0 if turn.explicit_intent else pipeline.min_fact_confidence


def verdict(proposal: Proposal, met: Met, origin: Origin, min_confidence: float) -> Verdict:
    """Decides the outcome of the proposal. The first gate that applies determines the reason."""
    target_id = proposal.target_id
    if met.private:
        return Verdict("skipped", PRIVACY_FULL, None)
    if proposal.dropped is not None:
        return Verdict("dropped", proposal.dropped, target_id)
    if met.flags.shadow_mode or met.flags.mutations_frozen:
        why = "mutations_frozen" if met.flags.mutations_frozen else "shadow_mode"
        return Verdict("shadowed", why, target_id)
    if not met.flags.enabled:
        return Verdict("skipped", "pipeline_disabled", None)
    if proposal.action == "ADD":
        return _added(proposal, met, origin, min_confidence)
    if proposal.action == "NONE":
        return _unchanged(proposal, met, origin, min_confidence)
    return _changed(proposal, met, origin, min_confidence)


def out_of_date(proposal: Proposal, target: MemoryRow | None) -> Cause | None:
    """Returns whether the target differs from what the decision saw. A proposal without a version
    (or NONE without a target) does not record what it saw."""
    if proposal.action == "NONE" and proposal.target_id is None:
        return None
    # Turns and chunks are never shown to a decision: one that is named anyway is no target.
    if target is None or target.is_deleted or target.type in SOURCE_TYPES:
        return "target_gone"
    if proposal.action == "NONE" and proposal.target_version is None:
        return None
    return None if target.version == proposal.target_version else "version_conflict"


def _added(
    proposal: Proposal, met: Met, origin: Origin, min_confidence: float, reason: str | None = None
) -> Verdict:
    why = skip_reason(proposal.fact, min_confidence)
    if why is not None:
        return Verdict("skipped", why, None)
    if met.same is not None:
        return Verdict("deduped", "same content", met.same)
    why = source_gone(met.source, met.source_hash)
    if why is not None:
        return Verdict("skipped", why, None)
    if met.newcomer is not None and not met.is_final:
        return Verdict("reconsidered", STALE, met.newcomer, cause="near_duplicate")
    row = fact_memory(origin, proposal)
    return Verdict("created", reason or proposal.reason, row.memory_id, row)


def _unchanged(proposal: Proposal, met: Met, origin: Origin, min_confidence: float) -> Verdict:
    """NONE is valid while its target still has its content: otherwise nothing would keep the
    fact."""
    gone = source_gone(met.source, met.source_hash)
    if gone is not None and proposal.reason == SAID_BY_ITS_SOURCE:
        return Verdict("skipped", gone, None)
    cause = out_of_date(proposal, met.target)
    if cause is None:
        again = None
        if met.by_date and met.target is not None and proposal.reason != SAID_BY_ITS_SOURCE:
            again = said_again(met.target, origin)
        return Verdict("none", proposal.reason, proposal.target_id, again)
    if met.same is not None:
        return Verdict("none", proposal.reason, met.same)
    why = skip_reason(proposal.fact, min_confidence) or gone
    if why is not None:
        return Verdict("skipped", why, None)
    return _again(proposal, met, origin, min_confidence, cause)


def _changed(proposal: Proposal, met: Met, origin: Origin, min_confidence: float) -> Verdict:
    why = skip_reason(proposal.fact, min_confidence)
    # The content of a DELETE is not kept, so it may be empty.
    if why is not None and (proposal.action == "UPDATE" or why != "empty_fact_content"):
        return Verdict("skipped", why, None)
    why = source_gone(met.source, met.source_hash)
    if why is not None:
        return Verdict("skipped", why, None)
    target = met.target
    cause = out_of_date(proposal, target)
    # Checked before the flag: a review pending for a memory that no longer exists would be lost.
    if target is None or cause == "target_gone":
        return _again(proposal, met, origin, min_confidence, "target_gone")
    if proposal.reason == MAY_EXCLUDE and not met.by_person:
        return Verdict("blocked", "needs_a_person", target.memory_id)
    if met.by_date:
        # What excludes an ended memory excludes this statement as well.
        is_older = origin.occurred_at < (target.valid_until or origin.occurred_at)
        if is_past(target) and target.valid_until is not None and is_older:
            is_between = origin.occurred_at >= target.occurred_at
            end = target.valid_until if is_between else target.occurred_at
            return _ended(proposal, target, met, origin, end)
        if is_said_later(target.occurred_at, origin.occurred_at, origin.at):
            return _ended(proposal, target, met, origin, target.occurred_at)
    if not met.flags.allow_update_delete:
        return Verdict("blocked", "update_delete_not_allowed", target.memory_id)
    if _is_guarded(target, met):
        # A machine's change becomes pending for a person, who may unpin the memory, or force the
        # change.
        return Verdict("skipped" if met.by_person else "blocked", "pinned", target.memory_id)
    if cause is not None:
        return _again(proposal, met, origin, min_confidence, cause)
    return _executed(proposal, target, met.same, origin)


def _ended(
    proposal: Proposal, target: MemoryRow, met: Met, origin: Origin, at: datetime
) -> Verdict:
    """What was said later stays as it is, so nothing has to be allowed. The older statement becomes
    a memory that ended when the later one was made; a DELETE keeps nothing of its statement."""
    if proposal.action == "DELETE":
        return Verdict("skipped", SAID_BEFORE, target.memory_id)
    if met.same is not None:
        return Verdict("deduped", "same content", met.same)
    # Of what this memory said before, the first that excludes the statement ended it.
    row = ended(fact_memory(origin, proposal), min(at, proposal.until or at))
    return Verdict("created", SAID_BEFORE, row.memory_id, row)


def ended_with(
    proposal: Proposal,
    ruling: Verdict,
    met: Met,
    origin: Origin,
    memories: Mapping[str, MemoryRow],
) -> list[MemoryRow]:
    """Returns the new states of the other memories that the proposal's fact excludes, if it came to
    be: what ended later ends when the fact was stated; what holds ends then if that is allowed."""
    if not met.by_date or ruling.event not in ("created", "modified", "deduped"):
        return []
    found: list[MemoryRow] = []
    at = origin.occurred_at
    for key in proposal.ends or ():
        row = memories.get(key)
        if row is None or row.is_deleted or row.type in SOURCE_TYPES or row.occurred_at > at:
            continue
        if row.memory_id in (ruling.memory_id, proposal.target_id):
            continue
        if is_past(row):
            if row.valid_until is not None and at < row.valid_until:
                found.append(replace(row, valid_until=at))
        elif met.flags.allow_update_delete and not protected(row):
            found.append(ended(changed(row, origin.at, origin.by, 0, origin.order), at))
    return found


def _is_guarded(target: MemoryRow, met: Met) -> bool:
    """An actor that may forget a memory may also change it."""
    if met.by_person:
        return target.pinned and not met.forced
    return protected(target)


def _executed(proposal: Proposal, target: MemoryRow, same: str | None, origin: Origin) -> Verdict:
    row = changed(target, origin.at, origin.by, 0, origin.order)
    if proposal.action == "DELETE":
        gone = deleted(row, origin.at)
        return Verdict("deleted", proposal.reason, target.memory_id, gone)
    if same not in (None, target.memory_id):
        return Verdict("deduped", "same content", same)
    updated = restated(row, fact_memory(origin, proposal), proposal.fact)
    return Verdict("modified", proposal.reason, target.memory_id, updated)


def _again(
    proposal: Proposal, met: Met, origin: Origin, min_confidence: float, cause: Cause
) -> Verdict:
    """Decides it again; finally, without the target: a fact becomes a memory of its own, and a
    DELETE, which keeps nothing of its fact, does nothing."""
    if not met.is_final:
        return Verdict("reconsidered", STALE, proposal.target_id, cause=cause)
    if proposal.action == "DELETE":
        return Verdict("skipped", cause, proposal.target_id, cause=cause)
    if met.source_hash is not None:
        source_id = None if met.source is None else met.source.memory_id
        return Verdict("deduped", SAID_BY_ITS_SOURCE, source_id)
    return _added(proposal, met, origin, min_confidence, f"{cause}: kept as a memory of its own")


def sources_of(
    fact: Fact, turn: TurnReference, memories: Mapping[str, MemoryRow]
) -> list[MemoryRow | None]:
    """Returns what the fact rests on, that of its turn first, or before it what was forgotten."""
    found = [memories.get(each) for each in fact.sources(turn)]
    return sorted(found, key=lambda row: row is None or not row.is_deleted)


def source_gone(source: MemoryRow | None, source_hash: str | None) -> str | None:
    """Returns why nothing derived from the source may be written any more: it was forgotten, or its
    content changed."""
    if source is None:
        return None
    if source.is_deleted:
        return "source_forgotten"
    if source_hash is not None and source.content_hash != source_hash:
        return "source_changed"
    return None


def archive_writes(ruling: Verdict, target: MemoryRow | None, origin: Origin) -> list[Write]:
    """The cold tier's copy of the state that the verdict's row replaces."""
    if ruling.row is None or target is None or ruling.event in ("created", "none"):
        return []
    how = "replaced" if ruling.event == "modified" else "deleted"
    by = "the pipeline" if origin.by == "pipeline" else origin.by
    return [Put(archived(target, f"{how} by {by}", origin.at))]


def edge_writes(
    ruling: Verdict,
    target: MemoryRow | None,
    source_ids: Sequence[str],
    source: MemoryRow | None,
    proposal: Proposal | None = None,
) -> list[Write]:
    """The edges of the verdict's row: to its sources, and to the state that it replaces. The
    remembered text whose fact deleted a memory replaces that memory; a turn replaces none."""
    row = ruling.row
    answers = None if proposal is None else proposal.fact.answers
    if row is None or ruling.event == "none":
        return []
    if ruling.event == "created" and target is not None and row.valid_from is not None:
        is_between = proposal is not None and target.memory_id in (proposal.ends or ())
        evidence = BETWEEN if is_between else ""
        past = edge(target.memory_id, row.memory_id, "supersedes", row.scope, evidence=evidence)
        return [*map(Put, edge_rows(row, source_ids, answers=answers)), Put(past)]
    if ruling.event != "deleted":
        replaced = target if ruling.event == "modified" else None
        return [Put(each) for each in edge_rows(row, source_ids, replaced, answers)]
    if target is None or source is None or source.type in SOURCE_TYPES:
        return []
    return [Put(edge(source_ids[0], archived_id(target), "supersedes", row.scope))]


# --- what is stored of decisions ------------------------------------------------------------------


def extraction_row(message: Message, body: FactsExtracted) -> ExtractionRow:
    return row_of(
        ExtractionRow,
        body.call,
        message_id=message.id,
        scope=message.scope,
        turn_memory_id=body.turn.memory_id,
        facts=len(body.facts),
        triples=len(body.triples),
        warnings=body.warnings,
        round=body.round,
        recorded_at=message.recorded,
    )


def fact_row(message: Message, body: FactsExtracted | ProposalsIntent, fact: Fact) -> FactRow:
    """`message` is the extraction or the intent that has the fact."""
    return row_of(
        FactRow,
        fact,
        scope=message.scope,
        turn_memory_id=body.turn.memory_id,
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
    of_model = ("model", "prompt_version", "input_tokens", "output_tokens", "latency_ms", "cost")
    return row_of(
        ProposalRow,
        proposal,
        **{name: getattr(proposal.decider, name, None) for name in of_model},
        round=intent.round,
        scope=message.scope,
        candidates=json.dumps(candidates_json(proposal.candidates)),
        as_of=intent.as_of,
        recorded_at=message.recorded,
    )


# In-flight facts of an erased memory: they are counted, but their texts are removed. Pure. The
# embedded log is redacted; on Kafka the records stay unchanged, so the stages that write to a
# store must remove the texts.


def still_said(
    facts: tuple[Fact, ...], turn: TurnReference, memories: Mapping[str, MemoryRow]
) -> tuple[Fact, ...]:
    """Returns the facts, with marks in place of their texts if a source of theirs was erased."""
    gone = _erased(memories)
    return tuple(each if gone.isdisjoint(each.sources(turn)) else _unsaid(each) for each in facts)


def still_proposed(
    intent: ProposalsIntent, memories: Mapping[str, MemoryRow], private: set[str]
) -> ProposalsIntent:
    """The same for an intent, whose facts are then skipped, and for facts of `private` sources."""
    gone = private | _erased(memories)
    if intent.turn.memory_id in gone:
        return unsaid(intent)
    proposals = tuple(
        each if gone.isdisjoint(each.fact.sources(intent.turn)) else _unproposed(each)
        for each in intent.proposals
    )
    return intent.model_copy(update={"proposals": proposals})


def unsaid(intent: ProposalsIntent) -> ProposalsIntent:
    """Returns the intent with marks in place of its facts' texts."""
    proposals = tuple(map(_unproposed, intent.proposals))
    return intent.model_copy(update={"proposals": proposals, "triples": (), "warnings": ()})


def _erased(memories: Mapping[str, MemoryRow]) -> set[str]:
    return {memory_id for memory_id, row in memories.items() if is_erased(row)}


def _unproposed(proposal: Proposal) -> Proposal:
    left = {"fact": _unsaid(proposal.fact), "reason": ERASED, "warnings": ()}
    return proposal.model_copy(update=left)


def _unsaid(fact: Fact) -> Fact:
    mark = mark_of(fact_memory_id(fact.item_id))
    return fact.model_copy(update={"content": mark, "categories": ()})
