"""Held proposals, the changes that wait for a person: what is kept of them, and how a person
applies or dismisses them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from pydantic import JsonValue

from palimpsest.schemas.commands import ApplyProposalsCommand, DismissProposalsCommand
from palimpsest.schemas.extraction import Fact
from palimpsest.schemas.identity import fact_memory_id
from palimpsest.schemas.messages import Outcome, Proposal
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.rows.columns import row_of
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.pipeline import PendingProposalRow
from palimpsest.streams.apply.categories import ScopeCategories
from palimpsest.streams.apply.command_work import Work, load_names, outcome_row, refuse_machines
from palimpsest.streams.claims.conflict import contradicts
from palimpsest.streams.claims.grammar import plainly_named
from palimpsest.streams.claims.polarity import opposes
from palimpsest.streams.claims.succession import may_succeed
from palimpsest.streams.decide.proposal_policy import (
    SAID_BEFORE,
    Met,
    Verdict,
    archive_writes,
    edge_writes,
    verdict,
)
from palimpsest.streams.memory_rows import Origin
from palimpsest.streams.privacy import is_private_source
from palimpsest.streams.settings import Flags
from palimpsest.streams.stage import Asking
from palimpsest.streams.store_port import Load, Put

ALLOWED = Flags(allow_update_delete=True)
"""A person's decision replaces the flag."""

Left = dict[tuple[str, int | None], int]
"""The version in which this command left a memory, by its id and the version that the decision
saw."""

HeldCommand = ApplyProposalsCommand | DismissProposalsCommand


def held_row(proposal: Proposal, origin: Origin, turn_memory_id: str) -> PendingProposalRow:
    """A change to execute later, if a person approves it."""
    return row_of(
        PendingProposalRow,
        proposal.fact,
        scope=origin.scope,
        action=proposal.action,
        target_id=proposal.target_id or "",
        target_version=proposal.target_version,
        reason=proposal.reason,
        turn_memory_id=turn_memory_id,
        content=storage_content(proposal.fact.content),
        model=origin.model,
        occurred_at=origin.occurred_at,
        recorded_at=origin.at,
    )


def decision_of(proposal: Proposal, source_id: str, model: str) -> dict[str, JsonValue]:
    """What every event of a proposal says of it; `model` drew the fact from the memory
    `source_id`."""
    return {
        "proposed_action": proposal.action,
        "target_id": proposal.target_id,
        "fact": proposal.fact.content,
        "fact_type": proposal.fact.type,
        "confidence": proposal.confidence,
        "decision_reason": proposal.reason,
        "source_memory": source_id,
        "extraction_model": model,
    }


def review(work: Work, command: HeldCommand) -> Asking[JsonValue]:
    """Applies or dismisses, as a person decided, changes (UPDATE and DELETE) that the flags did not
    allow; the command's result lists the outcome of each."""
    ids = tuple(dict.fromkeys(command.item_ids))
    yield from work.begin(also=Load(work.scope, held_ids=ids))
    pending = work.loaded.held
    rows = pending.values()
    wanted = replace(
        load_names(work.scope, [row.content for row in rows]),
        content_hashes=tuple(content_hash(row.content) for row in rows),
        categories=True,
    )
    if work.edition >= 6:
        seen = {(row.target_id, row.target_version or 1) for row in rows}
        wanted = replace(wanted, texts_at=tuple(sorted(seen)))
    yield from work.load(
        [key for row in rows for key in (row.target_id, row.turn_memory_id)], wanted
    )
    categories = ScopeCategories.of(work.scope, work.loaded)
    refuse_machines(work, "what was held back is for a person to decide")
    results: list[JsonValue] = []
    left: Left = {}
    for item_id in ids:
        held = pending.get(item_id)
        if held is None:
            results.append({"id": item_id, "status": "not_held"})
        elif isinstance(command, DismissProposalsCommand):
            ruling = Verdict("skipped", "dismissed", held.target_id)
            _settle(work, held, ruling, None, command.reason)
            results.append({"id": item_id, "status": "dismissed", "memory_id": held.target_id})
        else:
            results.append(_apply(work, held, command, left, categories))
    work.writes += categories.writes()
    return results


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
    proposal = proposal_of(replace(held, target_version=left.get(seen, held.target_version)))
    proposal = _of_what_is_left(work, held, proposal, target, force=command.force)
    who = "" if target is None else target.who
    met = Met(
        ALLOWED,
        source,
        target,
        work.active(content_hash(held.content)),
        by_person=True,
        private=is_private_source(work.loaded.privacy, who, source),
        forced=command.force,
        # A statement that the memory was stated after becomes one that held until then.
        by_date=work.edition >= 3 and not command.force,
    )
    by = work.intent.actor.id or "local"
    origin = origin_of_held(held, source, work.at, work.edition, by=by)
    # The fact passed its confidence gate before it became pending.
    ruling = verdict(proposal, met, origin, min_confidence=0.0)
    answer: dict[str, JsonValue] = {"id": held.item_id, "memory_id": ruling.memory_id}
    done = ("created", "modified", "deleted", "deduped")
    if ruling.event not in done and ruling.reason != SAID_BEFORE:
        # It stays pending: the memory may be recovered or unpinned.
        if target is not None:
            answer["version"] = target.version
        return answer | {"status": ruling.cause or ruling.reason}
    if ruling.row is not None:
        work.writes += archive_writes(ruling, target, origin)
        row = work.put(categories.folded(ruling.row))
        ruling = replace(ruling, row=row)
        work.writes += edge_writes(ruling, target, (held.turn_memory_id,), source)
        answer["version"] = row.version
        if ruling.event != "created" or work.edition < 6:
            left[seen] = row.version
    status = {"modified": "updated", "created": "added"}.get(ruling.event, str(ruling.event))
    status = "said_before" if ruling.reason == SAID_BEFORE else status
    _settle(work, held, ruling, None if status == "added" else target, command.reason)
    return answer | {"status": status}


def _of_what_is_left(
    work: Work,
    held: PendingProposalRow,
    proposal: Proposal,
    target: MemoryRow | None,
    *,
    force: bool,
) -> Proposal:
    """Returns the proposal for what has become of its memory. Its statement is added if the memory
    is gone, or says something else now, beside which it may hold. Where the memory still says what
    the decision saw, or who saw both texts forces it, the change is carried out."""
    if work.edition < 6:
        return proposal
    if target is not None and not target.is_deleted:
        if target.version == proposal.target_version:
            return proposal
        if force or (held.target_id, held.target_version or 1) not in work.loaded.texts_at:
            return proposal.model_copy(update={"target_version": target.version})
        source = work.memories.get(held.turn_memory_id)
        plain = plainly_named("" if source is None else source.who)
        if may_exclude(plain(held.content), replace(target, content=plain(target.content))):
            return proposal
    if held.action != "UPDATE":
        return proposal
    return proposal.model_copy(update={"action": "ADD", "target_id": None, "target_version": None})


def _settle(
    work: Work, held: PendingProposalRow, ruling: Verdict, target: MemoryRow | None, reason: str
) -> None:
    """Replaces `blocked` as the fact's outcome in the balance, and adds its event to the
    history."""
    by = {"changed_by": work.intent.actor.id, "actor_type": work.intent.actor.type}
    outcome = outcome_of_held(held, ruling, target, reason).model_copy(update=by)
    work.outcomes.append(outcome)
    end = outcome_row(work.message, outcome)
    work.writes.append(Put(replace(end, reason=ruling.reason)))


def outcome_of_held(
    held: PendingProposalRow, ruling: Verdict, target: MemoryRow | None, reason: str
) -> Outcome:
    """The outcome that replaces `blocked`, by the pipeline."""
    row = ruling.row
    return Outcome(
        event=ruling.event,
        item_kind="fact",
        item_id=held.item_id,
        memory_id=ruling.memory_id,
        old_content=target.content if row is not None and target is not None else None,
        new_content=None if row is None or row.is_deleted else row.content,
        reason=reason,
        changed_by="pipeline",
        version=None if row is None else row.version,
        metadata={
            **decision_of(proposal_of(held), held.turn_memory_id, held.model),
            "was": "blocked",
            **({"skipped_reason": ruling.reason} if ruling.event == "skipped" else {}),
        },
    )


def proposal_of(held: PendingProposalRow) -> Proposal:
    fact = {name: getattr(held, name) for name in Fact.model_fields if hasattr(held, name)}
    memory_id = fact_memory_id(held.item_id)
    shared = {name: getattr(held, name) for name in Proposal.model_fields if hasattr(held, name)}
    return Proposal.model_validate({**shared, "memory_id": memory_id, "fact": fact})


def origin_of_held(
    held: PendingProposalRow,
    source: MemoryRow | None,
    at: datetime,
    edition: int,
    order: int | None = None,
    by: str = "pipeline",
) -> Origin:
    """The origin of a fact that waited, drawn from its `source`, for a change recorded `at`."""
    zone = None if source is None or edition < 4 else source.utc_offset_minutes
    return Origin(
        held.scope, held.occurred_at, at, held.model, order, by=by, utc_offset_minutes=zone
    )


def may_exclude(said: str, memory: MemoryRow) -> bool:
    """Whether a later statement may not hold beside what the memory says."""
    known, on = memory.content, memory.occurred_at.date()
    return contradicts(said, known, on) or may_oppose(said, known)


def may_oppose(said: str, known: str) -> bool:
    """Whether one of two statements may not hold beside the other, whichever was said later."""
    return opposes(said, known) or opposes(known, said) or may_succeed(said, known)
