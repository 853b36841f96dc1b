"""Executes proposals: modes, gates, guarded paths, and sending stale decisions back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from palimpsest.schemas.echoes import spoken
from palimpsest.schemas.extraction import FactsExtracted
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.messages import GraphWork, MemoryChange, Outcome, Proposal, ProposalsIntent
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.rows.enumerations import OutcomeEvent
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.pipeline import PendingProposalRow
from palimpsest.schemas.topics import FACTS_EXTRACTED
from palimpsest.streams.apply.categories import ScopeCategories
from palimpsest.streams.apply.command_work import (
    MemoryChanges,
    changes,
    link_writes,
    load_names,
    outcome_row,
)
from palimpsest.streams.apply.pending import (
    decision_of,
    held_row,
    may_exclude,
    may_oppose,
    origin_of_held,
    outcome_of_held,
    proposal_of,
)
from palimpsest.streams.claims.conflict import contradicts, is_ambiguous
from palimpsest.streams.claims.contradiction import same_fact
from palimpsest.streams.claims.grammar import plainly_named
from palimpsest.streams.claims.source import as_stated
from palimpsest.streams.decide.proposal_policy import (
    MAY_EXCLUDE,
    MAY_HOLD_NOW,
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
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Asking, Emit, Message, Step
from palimpsest.streams.store_port import (
    SAME_IS_PENDING,
    KeepVector,
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
    yield from _load(work, intent)
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
        outcome = yield from _execute(work, proposal, number)
        work.outcomes.append(_explained(outcome, work, proposal))
        if outcome.event != "reconsidered":
            work.writes.append(Put(outcome_row(message, outcome)))
    return Step(writes=(*work.writes, *work.categories.writes()), emits=_emits(work))


def _load(work: _Work, intent: ProposalsIntent) -> Asking[None]:
    """Loads the memories that the proposals name, and what waits for a person that they may
    settle."""
    # The texts that may become a memory's, as far as that is known without the store.
    least = least_confidence(intent.turn, work.settings.pipeline)
    yield from work.embed(
        storage_content(proposal.fact.content)
        for proposal in intent.proposals
        if proposal.dropped is None and skip_reason(proposal.fact, least) is None
    )
    texts = [storage_content(each.fact.content) for each in intent.proposals]
    targets = [p.target_id for p in intent.proposals if p.target_id is not None]
    sources = [each for p in intent.proposals for each in p.fact.drawn_from or ()]
    targets += [each for p in intent.proposals for each in p.ends or ()]
    made = [p.memory_id for p in intent.proposals]
    changed = [
        p.target_id
        for p in intent.proposals
        if p.target_id is not None and (intent.by_date if p.action == "NONE" else intent.held_once)
    ]
    # A statement settles what waits against any memory that it was compared with.
    met = [c.memory_id for p in intent.proposals for c in p.candidates if work.edition >= 6]
    also = replace(
        load_names(work.scope, texts),
        content_hashes=tuple(map(content_hash, texts)),
        item_ids=tuple(p.item_id for p in intent.proposals),
        held_for=tuple(dict.fromkeys([*changed, *met])),
        categories=True,
    )
    yield from work.load(*([intent.turn.memory_id, *targets, *sources, *made], also))
    pending = work.loaded.held.values() if work.edition >= 6 else ()
    if pending:
        texts += [row.content for row in pending]
        of_pending = yield from replace(
            load_names(work.scope, texts),
            memory_ids=tuple(row.turn_memory_id for row in pending),
            content_hashes=tuple(content_hash(row.content) for row in pending),
        )
        work.add(of_pending)
        work.know(of_pending)
        work.names = of_pending.entities


def _execute(work: _Work, proposal: Proposal, number: int) -> Asking[Outcome]:
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
        _settle_pending(work, ruling.row, proposal, origin, ruling.event)
    elif ruling.row is not None:
        work.writes += archive_writes(ruling, target, origin)
        work.put(work.categories.folded(ruling.row))
        source_ids = proposal.fact.sources(work.intent.turn)
        work.writes += edge_writes(ruling, target, source_ids, sources[0], proposal)
        if ruling.event != "deleted":
            work.writes += link_writes(ruling.row, work.names)
        if ruling.reason == SAID_BEFORE and target is not None:
            _begin_earlier(work, target, origin)
        elif ruling.event in ("created", "modified"):
            _settle_pending(work, ruling.row, proposal, origin, ruling.event)
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


def _settle_pending(
    work: _Work, row: MemoryRow, proposal: Proposal, origin: Origin, event: OutcomeEvent
) -> None:
    """Settles the pending changes that a statement decides, of which `row` is the memory. What was
    said before the statement, and cannot hold beside it, held until then. What was said after it,
    and only against what the memory said before, becomes a memory of its own."""
    pending = [each for each in work.loaded.held.values() if each.item_id not in work.settled]
    is_repeat = event == "none"
    if is_repeat:
        pending = [each for each in pending if each.target_id == row.memory_id]
    elif pending and not (work.edition >= 6 and _is_all_that_was_said(work, proposal)):
        return
    if work.edition >= 6:
        pending.sort(key=lambda each: (each.occurred_at, each.item_id))
    plain = plainly_named(work.intent.turn.speaker if work.edition >= 3 else "")
    said = plain(proposal.fact.content)
    beside = [replace(row, content=said)]
    for held in pending:
        other = plain(held.content)
        source = work.memories.get(held.turn_memory_id)
        of_held = origin_of_held(held, source, origin.at, work.edition, origin.order)
        memory = fact_memory(of_held, proposal_of(held))
        if held.occurred_at < origin.occurred_at:
            is_against = contradicts(said, other, held.occurred_at.date())
            if is_repeat and work.edition >= 3:
                # What may not hold beside the memory was not said again, and the memory was.
                is_against |= may_oppose(said, other)
            if is_against:
                _settle_as(work, held, ended(memory, row.occurred_at), SAID_BEFORE, row)
                if work.edition >= 6:
                    _begin_earlier(work, work.memories[row.memory_id], of_held)
        elif (event, held.target_id, held.reason) == ("modified", row.memory_id, MAY_EXCLUDE):
            against = next((each for each in beside if may_exclude(other, each)), None)
            if against is None:
                _settle_as(work, held, memory, MAY_HOLD_NOW, None)
                beside.append(replace(memory, content=other))
            elif against is not beside[0]:
                waits = replace(held, target_id=against.memory_id, target_version=against.version)
                work.writes.append(Put(waits))


def _is_all_that_was_said(work: _Work, proposal: Proposal) -> bool:
    """Whether the fact is all that its turn says, of somebody who has no namesake here: no other
    ends what was said before it."""
    source = work.memories.get(work.intent.turn.memory_id)
    fact, target_id = proposal.fact.content, proposal.target_id
    others = (each.content for each in proposal.candidates if each.memory_id != target_id)
    return (
        source is not None
        and as_stated(spoken(source.content), fact, by_clause=work.edition >= 11) is not None
        and not is_ambiguous(fact, others)
    )


def _settle_as(
    work: _Work,
    held: PendingProposalRow,
    memory: MemoryRow,
    reason: str,
    ended_by: MemoryRow | None,
) -> None:
    """Replaces `blocked` as the outcome of a pending change, whose statement becomes this memory
    unless another one says it."""
    work.settled.add(held.item_id)
    source = work.memories.get(held.turn_memory_id)
    same = work.active(memory.content_hash)
    target_id = held.target_id if ended_by is None else ended_by.memory_id
    ruling = Verdict("skipped", reason, target_id)
    is_kept = work.edition < 6 or not (
        source_gone(source, None) or is_private_source(work.loaded.privacy, "", source)
    )
    if held.action == "UPDATE" and same is None and is_kept:
        ruling = Verdict("created", reason, memory.memory_id, memory)
        work.put(work.categories.folded(memory))
        work.writes += edge_writes(ruling, ended_by, (held.turn_memory_id,), source)
        if work.edition >= 6:
            work.writes += link_writes(memory, work.names)
    settled = outcome_of_held(held, ruling, None, reason)
    work.outcomes.append(settled)
    work.writes.append(Put(outcome_row(work.message, settled)))


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
