"""Executes proposals: modes, gates, guarded paths, and sending stale decisions back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from pydantic import JsonValue

from palimpsest.schemas.commands import ApplyProposalsCommand, DismissProposalsCommand
from palimpsest.schemas.extraction import Fact, FactsExtracted
from palimpsest.schemas.identity import fact_memory_id
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.messages import GraphWork, MemoryChange, Outcome, Proposal, ProposalsIntent
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.rows.columns import row_of
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.pipeline import PendingProposalRow
from palimpsest.schemas.topics import FACTS_EXTRACTED
from palimpsest.streams.apply.categories import ScopeCategories
from palimpsest.streams.apply.command_work import (
    MemoryChanges,
    Work,
    changes,
    link_writes,
    load_names,
    outcome_row,
    refuse_machines,
)
from palimpsest.streams.claims.conflict import contradicts
from palimpsest.streams.claims.contradiction import same_fact
from palimpsest.streams.claims.grammar import plainly_named
from palimpsest.streams.claims.polarity import opposes
from palimpsest.streams.claims.succession import may_succeed
from palimpsest.streams.decide.proposal_policy import (
    SAID_BEFORE,
    Met,
    Verdict,
    archive_writes,
    candidates_json,
    decision_order,
    edge_writes,
    ended_with,
    fact_row,
    least_confidence,
    proposal_row,
    source_gone,
    sources_of,
    still_proposed,
    unsaid,
    verdict,
)
from palimpsest.streams.memory_rows import (
    Origin,
    edge,
    ended,
    fact_memory,
    is_said_later,
    origin_of,
    protected,
    skip_reason,
)
from palimpsest.streams.privacy import is_private, is_private_source, is_withheld
from palimpsest.streams.settings import Flags, StageSettings
from palimpsest.streams.stage import Asking, Emit, Message, Step
from palimpsest.streams.store_port import (
    SAME_IS_PENDING,
    KeepVector,
    Load,
    NearDuplicates,
    Put,
)


@dataclass(slots=True)
class _Work(MemoryChanges):
    """The state of one intent while its proposals are executed one after another."""

    intent: ProposalsIntent
    private: bool = field(init=False)
    categories: ScopeCategories = field(init=False)
    sent_back: list[Proposal] = field(default_factory=list)
    settled: set[str] = field(default_factory=set)
    """Facts of pending changes that this intent has settled."""
    held: dict[str, PendingProposalRow] = field(default_factory=dict)
    """Pending changes that this intent has stored, by fact."""


def proposals_step(
    message: Message, intent: ProposalsIntent, settings: StageSettings
) -> Asking[Step]:
    """Executes the proposals of one turn, in order."""
    work = _Work(message, settings, intent)
    # The texts that may become a memory's, as far as that is known without the store.
    least = least_confidence(intent.turn, settings.pipeline)
    yield from work.embed(
        storage_content(proposal.fact.content)
        for proposal in intent.proposals
        if proposal.dropped is None and skip_reason(proposal.fact, least) is None
    )
    # The memories that the proposals name, and what else to load.
    texts = [storage_content(each.fact.content) for each in intent.proposals]
    targets = [p.target_id for p in intent.proposals if p.target_id is not None]
    sources = [each for p in intent.proposals for each in p.fact.drawn_from or ()]
    targets += [each for p in intent.proposals for each in p.ends or ()]
    made = [p.memory_id for p in intent.proposals]
    also = replace(
        load_names(message.scope, texts),
        content_hashes=tuple(map(content_hash, texts)),
        item_ids=tuple(p.item_id for p in intent.proposals),
        held_for=tuple(
            p.target_id
            for p in intent.proposals
            if p.target_id is not None
            and (intent.by_date if p.action == "NONE" else intent.held_once)
        ),
        categories=True,
    )
    yield from work.load(*([intent.turn.memory_id, *targets, *sources, *made], also))
    loaded = work.loaded
    source = loaded.memories.get(intent.turn.memory_id)
    work.private = is_private_source(loaded.privacy, intent.turn.speaker, source)
    withheld = {key for key, row in loaded.memories.items() if is_withheld(loaded.privacy, row.who)}
    intent = unsaid(intent) if work.private else still_proposed(intent, loaded.memories, withheld)
    work.intent = intent
    work.categories = ScopeCategories.of(message.scope, loaded)
    for number, proposal in enumerate(intent.proposals):
        if proposal.item_id in loaded.settled:
            continue
        if not intent.round:
            work.writes.append(Put(fact_row(message, intent, proposal.fact)))
        work.writes.append(Put(proposal_row(message, intent, proposal)))
        outcome = yield from _carry_out(work, proposal, number)
        work.outcomes.append(_explained(outcome, work, proposal))
        if outcome.event != "reconsidered":
            work.writes.append(Put(outcome_row(message, outcome)))
    return Step(writes=(*work.writes, *work.categories.writes()), emits=_emits(work))


def _carry_out(work: _Work, proposal: Proposal, number: int) -> Asking[Outcome]:
    order = decision_order(work.intent.decision_order, number)
    target = work.memories.get(proposal.target_id or "")
    sources = sources_of(proposal.fact, work.intent.turn, work.memories)
    said_in = sources[0] if work.edition >= 4 else None
    origin = origin_of(work.message, work.intent.turn, work.intent.call.model, order, said_in)
    met = Met(
        work.flags,
        sources[0],
        target,
        work.active(content_hash(storage_content(proposal.fact.content))),
        is_final=work.intent.round >= work.settings.pipeline.max_reconsiderations,
        source_hash=work.intent.turn.content_hash,
        private=is_private(work.loaded.privacy, work.intent.turn.speaker, sources, target),
        by_date=bool(work.intent.by_date),
    )
    least = least_confidence(work.intent.turn, work.settings.pipeline)
    ruling = verdict(proposal, met, origin, least)
    is_new = ruling.event == "created" and ruling.reason != SAID_BEFORE
    if is_new and ruling.row is not None and not met.is_final:
        newcomer = yield from _newcomer(work, proposal, ruling.row, order)
        ruling = verdict(proposal, replace(met, newcomer=newcomer), origin, least)
    if ruling.event == "reconsidered":
        work.sent_back.append(proposal)
    if ruling.event == "none" and ruling.row is not None:
        work.put(ruling.row)
        _settle_older(work, ruling.row, proposal, origin)
    elif ruling.row is not None:
        work.writes += archive_writes(ruling, target, origin)
        work.put(work.categories.folded(ruling.row))
        source_ids = proposal.fact.sources(work.intent.turn)
        work.writes += edge_writes(ruling, target, source_ids, sources[0], proposal)
        if ruling.event != "deleted":
            work.writes += link_writes(ruling.row, work.names)
        if ruling.reason == SAID_BEFORE and target is not None:
            _begin_earlier(work, target, origin)
    for row in ended_with(proposal, ruling, met, origin, work.memories):
        # Ended by what holds now, where the fact that ended it has ended itself.
        before = work.memories[row.memory_id]
        work.put(row)
        holder = proposal.target_id if ruling.reason == SAID_BEFORE else ruling.memory_id
        if before.valid_from is None and holder is not None:
            work.writes.append(Put(edge(holder, row.memory_id, "supersedes", row.scope)))
    if ruling.event == "blocked":
        ruling = _hold(work, proposal, origin, ruling)
    return _outcome(proposal, ruling, target)


def _hold(work: _Work, proposal: Proposal, origin: Origin, blocked: Verdict) -> Verdict:
    """Stores what a later approval of the change needs, including its vector: a command's text is
    unknown before the store answers, and after that no model may be called. A change that is
    pending already only gets the later date."""
    row = held_row(proposal, origin, work.intent.turn.memory_id)
    # The pending change that does the same as this one.
    pending = {**work.loaded.held, **work.held} if work.intent.held_once else {}
    same = next(
        (
            each
            for _, each in sorted(pending.items())
            if (each.action, each.target_id) == (row.action, row.target_id)
            and each.item_id not in work.settled
            and same_fact(each.content, row.content)
        ),
        None,
    )
    if same is not None:
        if is_said_later(row.occurred_at, same.occurred_at, origin.at):
            same = replace(same, occurred_at=row.occurred_at)
            work.writes.append(Put(same))
            work.held[same.item_id] = same
        return Verdict("deduped", SAME_IS_PENDING, blocked.memory_id)
    found = work.embeddings.get(row.content)
    if found is not None:
        key = embedding_key(row.content)
        work.writes.append(KeepVector(key, found.vector, found.tokens))
    work.writes.append(Put(row))
    work.held[row.item_id] = row
    return blocked


def _begin_earlier(work: _Work, target: MemoryRow, origin: Origin) -> None:
    """Dates the first statement of the memory that excludes an older one as if that one had arrived
    first, and the memory had been updated from it."""
    first = target.first_occurred_at or target.occurred_at
    if work.flags.allow_update_delete and not protected(target) and origin.occurred_at < first:
        work.put(replace(target, first_occurred_at=origin.occurred_at))


def _settle_older(work: _Work, row: MemoryRow, proposal: Proposal, origin: Origin) -> None:
    """Settles the pending changes of a memory that was stated again after them: what they say is
    stored as what held until then."""
    plain = plainly_named(work.intent.turn.speaker if work.edition >= 3 else "")
    said = plain(proposal.fact.content)
    for held in work.loaded.held.values():
        is_open = held.target_id == row.memory_id and held.item_id not in work.settled
        if not is_open or not held.occurred_at < origin.occurred_at:
            continue
        other = plain(held.content)
        is_against = contradicts(said, other, held.occurred_at.date())
        if work.edition >= 3:
            # What may not hold beside the memory was not said again, and the memory was.
            is_against |= opposes(said, other) or opposes(other, said) or may_succeed(said, other)
        if not is_against:
            continue
        work.settled.add(held.item_id)
        source = work.memories.get(held.turn_memory_id)
        of_held = _origin_of_held(held, source, origin.at, work.edition, origin.order)
        past = ended(fact_memory(of_held, _proposal_of(held)), row.occurred_at)
        ruling = Verdict("skipped", SAID_BEFORE, row.memory_id)
        if held.action == "UPDATE" and work.active(past.content_hash) is None:
            ruling = Verdict("created", SAID_BEFORE, past.memory_id, past)
            work.put(work.categories.folded(past))
            work.writes += edge_writes(ruling, row, (held.turn_memory_id,), source)
        settled = _of_held(held, ruling, None, SAID_BEFORE)
        work.outcomes.append(settled)
        work.writes.append(Put(outcome_row(work.message, settled)))


def _origin_of_held(
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


def _newcomer(work: _Work, proposal: Proposal, row: MemoryRow, order: int) -> Asking[str | None]:
    """Returns a near duplicate of the row that the decision could not have seen."""
    embedding = work.embeddings.get(row.content)
    unseen = yield from NearDuplicates(
        work.message.scope,
        row.content,
        row.content_hash,
        None if embedding is None else embedding.vector,
        work.settings.near,
        work.intent.as_of,
        order,
    )
    seen = {candidate.memory_id for candidate in proposal.candidates}
    return next((c.memory_id for c in unseen.found if c.memory_id not in seen), None)


def _outcome(proposal: Proposal, ruling: Verdict, target: MemoryRow | None) -> Outcome:
    is_change = ruling.event in ("modified", "deleted")
    return Outcome(
        event=ruling.event,
        item_kind="fact",
        item_id=proposal.item_id,
        memory_id=ruling.memory_id,
        old_content=target.content if is_change and target is not None else None,
        new_content=ruling.row.content
        if ruling.row is not None and ruling.event != "deleted"
        else None,
        reason=ruling.reason,
        version=None if ruling.row is None else ruling.row.version,
        changed_by="pipeline-shadow" if ruling.event == "shadowed" else "pipeline",
    )


def _explained(outcome: Outcome, work: _Work, proposal: Proposal) -> Outcome:
    """Adds to the outcome everything that led to it."""
    decider = proposal.decider
    candidates: list[JsonValue] = [dict(c) for c in candidates_json(proposal.candidates)]
    warnings: list[JsonValue] = [*proposal.warnings]
    metadata: dict[str, JsonValue] = {
        **decision_of(proposal, work.intent.turn.memory_id, work.intent.call.model),
        "candidates": candidates,
        "prompt_version": work.intent.call.prompt_version,
        "decision_model": None if decider is None else decider.model,
        "fact_count": len(work.intent.proposals),
        "entity_count": len(work.intent.triples),
        "contradiction_risk": proposal.contradiction_risk,
        "review_needed": proposal.review_needed,
        "round": work.intent.round,
        "warnings": warnings,
    }
    if outcome.event in ("blocked", "skipped"):
        metadata[f"{outcome.event}_reason"] = outcome.reason
    return outcome.model_copy(update={"metadata": metadata})


def _emits(work: _Work) -> tuple[Emit, ...]:
    intent = work.intent
    emits: list[Emit] = []
    if work.sent_back:
        again = FactsExtracted(
            turn=intent.turn,
            facts=tuple(proposal.fact for proposal in work.sent_back),
            warnings=intent.warnings,
            call=intent.call,
            round=intent.round + 1,
        )
        emits.append(Emit(FACTS_EXTRACTED, again, "reconsider"))
    graph = None
    shadowed = work.flags.shadow_mode or work.flags.mutations_frozen or not work.flags.enabled
    source = work.memories.get(intent.turn.memory_id)
    is_gone = source_gone(source, intent.turn.content_hash) is not None
    if intent.triples and not (shadowed or work.private or is_gone):
        created = [o.memory_id for o in work.outcomes if o.event == "created" and o.memory_id]
        graph = GraphWork(
            memory_ids=(intent.turn.memory_id, *created),
            triples=intent.triples,
            from_turns=work.settings.graph.takes_from_turns,
            by_text=work.edition >= 5 or None,
        )
    if work.outcomes or graph is not None:
        change = MemoryChange(
            outcomes=tuple(work.outcomes), session_id=intent.turn.session_id, graph=graph
        )
        emits += changes(change, work.touched)
    return tuple(emits)


# --- held proposals: changes that the flags do not allow, pending a review ------------------------


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
    proposal = _proposal_of(replace(held, target_version=left.get(seen, held.target_version)))
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
        # A statement that the memory was stated after becomes one that held until then.
        by_date=work.edition >= 3 and not command.force,
    )
    by = work.intent.actor.id or "local"
    origin = _origin_of_held(held, source, work.at, work.edition, by=by)
    # The fact passed its confidence gate before it became pending.
    ruling = verdict(proposal, met, origin, min_confidence=0.0)
    answer: dict[str, JsonValue] = {"id": held.item_id, "memory_id": ruling.memory_id}
    is_done = ruling.event in ("modified", "deleted", "deduped") or ruling.reason == SAID_BEFORE
    if not is_done:
        # It stays pending: the memory may be recovered or unpinned.
        status = ruling.cause or ruling.reason
        if target is not None:
            answer["version"] = target.version
        return answer | {"status": status}
    if ruling.row is not None:
        work.writes += archive_writes(ruling, target, origin)
        ruling = replace(ruling, row=work.put(categories.folded(ruling.row)))
        work.writes += edge_writes(ruling, target, (held.turn_memory_id,), source)
        if ruling.row is not None:
            answer["version"] = left[seen] = ruling.row.version
    _settle(work, held, ruling, target, command.reason)
    done = {"modified": "updated", "created": "said_before", "skipped": "said_before"}
    return answer | {"status": done.get(ruling.event, ruling.event)}


def _settle(
    work: Work, held: PendingProposalRow, ruling: Verdict, target: MemoryRow | None, reason: str
) -> None:
    """Replaces `blocked` as the fact's outcome in the balance, and adds its event to the
    history."""
    by = {"changed_by": work.intent.actor.id, "actor_type": work.intent.actor.type}
    outcome = _of_held(held, ruling, target, reason).model_copy(update=by)
    work.outcomes.append(outcome)
    end = outcome_row(work.message, outcome)
    work.writes.append(Put(replace(end, reason=ruling.reason)))


def _of_held(
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
            **decision_of(_proposal_of(held), held.turn_memory_id, held.model),
            "was": "blocked",
            **({"skipped_reason": ruling.reason} if ruling.event == "skipped" else {}),
        },
    )


def _proposal_of(held: PendingProposalRow) -> Proposal:
    fact = {name: getattr(held, name) for name in Fact.model_fields if hasattr(held, name)}
    memory_id = fact_memory_id(held.item_id)
    shared = {name: getattr(held, name) for name in Proposal.model_fields if hasattr(held, name)}
    return Proposal.model_validate({**shared, "memory_id": memory_id, "fact": fact})
