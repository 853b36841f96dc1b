"""Held proposals: changes (UPDATE and DELETE) that the flags do not allow, pending a review. A
person applies or dismisses them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from pydantic import JsonValue

from palimpsest.schemas.commands import ApplyProposalsCommand, DismissProposalsCommand
from palimpsest.schemas.identity import fact_memory_id
from palimpsest.schemas.messages import CommandIntent, Fact, Outcome, Proposal
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.rows import MemoryRow, PendingProposalRow
from palimpsest.streams.apply.categories import ScopeCategories
from palimpsest.streams.apply.command_work import (
    Refused,
    Work,
    command_id,
    done,
    known_id,
    refusal,
    refuse_frozen,
)
from palimpsest.streams.apply.outcomes import load_names, outcome_row
from palimpsest.streams.decide.proposal_policy import (
    Met,
    Verdict,
    archive_writes,
    edge_writes,
    verdict,
)
from palimpsest.streams.memory_rows import Origin
from palimpsest.streams.privacy import is_private_source
from palimpsest.streams.settings import Flags, StageSettings
from palimpsest.streams.stage import Answer, Ask, Message, Step
from palimpsest.streams.store_port import Load, Loaded, Put

ALLOWED = Flags(allow_update_delete=True)
"""A person's decision replaces the flag."""

Left = dict[tuple[str, int | None], int]
"""The version in which this command left a memory, by its id and the version that the decision
saw."""

HeldCommand = ApplyProposalsCommand | DismissProposalsCommand


def held_row(proposal: Proposal, origin: Origin, turn_memory_id: str) -> PendingProposalRow:
    """A change to execute later, if a person approves it."""
    fact = proposal.fact
    return PendingProposalRow(
        item_id=proposal.item_id,
        scope=origin.scope,
        action=proposal.action,
        target_id=proposal.target_id or "",
        target_version=proposal.target_version,
        reason=proposal.reason,
        turn_memory_id=turn_memory_id,
        content=storage_content(fact.content),
        type=fact.type,
        confidence=fact.confidence,
        importance=fact.importance,
        temporal_kind=fact.temporal_kind,
        valid_until=fact.valid_until,
        categories=fact.categories,
        model=origin.model,
        occurred_at=origin.occurred_at,
        recorded_at=origin.at,
    )


def held_step(
    message: Message, intent: CommandIntent, settings: StageSettings
) -> Generator[Ask, Answer, Step]:
    """Applies or dismisses pending proposals; the command's result lists the outcome of each."""
    command = intent.command
    assert isinstance(command, HeldCommand)
    ids = tuple(dict.fromkeys(command.item_ids))
    first = yield Load(message.scope, held_ids=ids, command_id=command_id(message))
    assert isinstance(first, Loaded)
    if first.command is not None and first.command.error is None:
        return known_id(first.command, intent.digest)
    loaded = yield _load(message.scope, tuple(first.held.values()))
    assert isinstance(loaded, Loaded)
    work = Work.begun(message, intent, settings, loaded)
    categories = ScopeCategories.of(message.scope, loaded)
    try:
        refuse_frozen(work)
        if work.by_machine:
            raise Refused("forbidden: what was held back is for a person to decide")
    except Refused as error:
        return refusal(message, intent, str(error))
    results: list[JsonValue] = []
    left: Left = {}
    for item_id in ids:
        held = first.held.get(item_id)
        if held is None:
            results.append({"id": item_id, "status": "not_held"})
        elif isinstance(command, DismissProposalsCommand):
            results.append(_dismiss(work, held, command))
        else:
            results.append(_apply(work, held, command, left, categories))
    work.writes += categories.writes()
    return done(work, command, results)


def _load(scope: str, held: tuple[PendingProposalRow, ...]) -> Load:
    return replace(
        load_names(scope, [row.content for row in held]),
        memory_ids=tuple(key for row in held for key in (row.target_id, row.turn_memory_id)),
        content_hashes=tuple(content_hash(row.content) for row in held),
        categories=True,
    )


def _dismiss(work: Work, held: PendingProposalRow, command: DismissProposalsCommand) -> JsonValue:
    ruling = Verdict("skipped", "dismissed", held.target_id)
    _settle(work, held, ruling, None, command.reason)
    return {"id": held.item_id, "status": "dismissed", "memory_id": held.target_id}


def _apply(
    work: Work,
    held: PendingProposalRow,
    command: ApplyProposalsCommand,
    left: Left,
    categories: ScopeCategories,
) -> JsonValue:
    target = work.memories.get(held.target_id)
    source = work.memories.get(held.turn_memory_id)
    seen = (held.target_id, held.target_version)
    # Approving several changes of one memory means applying them one after the other.
    proposal = _proposal_of(held, left.get(seen, held.target_version))
    met = Met(
        ALLOWED,
        source,
        target,
        work.active(content_hash(held.content)),
        by_person=True,
        private=is_private_source(
            work.loaded.privacy, "" if target is None else target.who, source
        ),
        forced=command.force,
    )
    origin = Origin(
        held.scope, held.occurred_at, work.at, held.model, by=work.intent.actor.id or "local"
    )
    # The fact passed its confidence gate before it became pending.
    ruling = verdict(proposal, met, origin, min_confidence=0.0)
    answer: dict[str, JsonValue] = {"id": held.item_id, "memory_id": ruling.memory_id}
    if ruling.event not in ("modified", "deleted", "deduped"):
        # It stays pending: the memory may be recovered or unpinned.
        status = ruling.cause or ruling.reason
        if target is not None:
            answer["version"] = target.version
        return answer | {"status": status}
    if ruling.row is not None:
        work.writes += archive_writes(ruling, target, origin)
        ruling = replace(ruling, row=work.put(categories.folded(ruling.row)))
        work.writes += edge_writes(ruling, target, held.turn_memory_id, source)
        if ruling.row is not None:
            answer["version"] = left[seen] = ruling.row.version
    _settle(work, held, ruling, target, command.reason)
    return answer | {"status": "updated" if ruling.event == "modified" else ruling.event}


def _settle(
    work: Work, held: PendingProposalRow, ruling: Verdict, target: MemoryRow | None, reason: str
) -> None:
    """Replaces `blocked` as the fact's outcome in the balance, and adds its event to the
    history."""
    row = ruling.row
    outcome = Outcome(
        event=ruling.event,
        item_kind="fact",
        item_id=held.item_id,
        memory_id=ruling.memory_id,
        old_content=target.content if row is not None and target is not None else None,
        new_content=None if row is None or row.is_deleted else row.content,
        reason=reason,
        changed_by=work.intent.actor.id,
        actor_type=work.intent.actor.type,
        version=None if row is None else row.version,
        metadata={
            "proposed_action": held.action,
            "target_id": held.target_id,
            "fact": held.content,
            "fact_type": held.type,
            "confidence": held.confidence,
            "decision_reason": held.reason,
            "source_memory": held.turn_memory_id,
            "extraction_model": held.model,
            "was": "blocked",
            **({"skipped_reason": ruling.reason} if ruling.event == "skipped" else {}),
        },
    )
    work.outcomes.append(outcome)
    end = outcome_row(work.message, outcome)
    work.writes.append(Put(replace(end, reason=ruling.reason)))


def _proposal_of(held: PendingProposalRow, target_version: int | None) -> Proposal:
    fact = Fact.model_validate(
        {
            "item_id": held.item_id,
            "content": held.content,
            "type": held.type,
            "confidence": held.confidence,
            "importance": held.importance,
            "temporal_kind": held.temporal_kind,
            "valid_until": held.valid_until,
            "categories": held.categories,
        }
    )
    return Proposal.model_validate(
        {
            "item_id": held.item_id,
            "memory_id": fact_memory_id(held.item_id),
            "fact": fact,
            "action": held.action,
            "target_id": held.target_id,
            "target_version": target_version,
            "confidence": held.confidence,
            "reason": held.reason,
        }
    )
