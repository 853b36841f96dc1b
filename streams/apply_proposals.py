"""Carrying out proposals: modes, gates, guarded paths, and sending stale decisions back."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from schemas.messages import (
    FactsExtracted,
    GraphWork,
    MemoryChange,
    Outcome,
    OutcomeEvent,
    Proposal,
    ProposalsIntent,
)
from schemas.rows import EdgeRow, MemoryRow
from schemas.topics import FACTS_EXTRACTED
from streams.decide import candidates_json
from streams.linker import candidate_names, unspaced_part
from streams.memory import (
    archived,
    archived_id,
    changed,
    deleted,
    effective,
    fact_memory,
    protected,
    skip_reason,
    with_content,
)
from streams.outcomes import changes, link_writes, outcome_row
from streams.settings import ApplySettings, Flags
from streams.stage import (
    Answer,
    Ask,
    Candidates,
    Embed,
    Embedded,
    Emit,
    KeepVector,
    Load,
    Loaded,
    Message,
    NearDuplicates,
    Put,
    Step,
    Vector,
    Write,
)
from streams.text import content_hash, storage_content

# More than the facts that one extraction may give, so that orders of two records never meet.
ORDERS_PER_RECORD = 64


@dataclass(slots=True)
class _Work:
    """The state of one intent while its proposals are carried out one after another."""

    message: Message
    intent: ProposalsIntent
    settings: ApplySettings
    flags: Flags
    loaded: Loaded
    vectors: dict[str, Vector | None]
    write_seq: int
    memories: dict[str, MemoryRow]
    by_hash: dict[str, str]
    writes: list[Write] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    sent_back: list[Proposal] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)

    def put(self, row: MemoryRow) -> None:
        vector = self.vectors.get(row.content)
        if vector is not None:
            self.writes.append(KeepVector(row.embedding_key, vector))
        self.writes.append(Put(row))
        self.memories[row.memory_id] = row
        if row.dedup_key is not None:
            self.by_hash[row.content_hash] = row.memory_id
        self.touched.append(row.memory_id)

    def same_content(self, digest: str) -> str | None:
        """The active memory of this content, as the intent has left things so far."""
        row = self.memories.get(self.by_hash.get(digest, ""))
        if row is None or row.dedup_key is None or row.content_hash != digest:
            return None
        return row.memory_id

    def next_seq(self) -> int:
        self.write_seq += 1
        return self.write_seq


def proposals_step(
    message: Message, intent: ProposalsIntent, settings: ApplySettings
) -> Generator[Ask, Answer, Step]:
    """Carry out the proposals of one turn, in order."""
    texts = tuple(storage_content(p.fact.content) for p in intent.proposals)
    embedded = yield Embed(texts)
    assert isinstance(embedded, Embedded)
    loaded = yield _load(message, intent, texts)
    assert isinstance(loaded, Loaded)
    work = _Work(
        message,
        intent,
        settings,
        effective(settings.flags, loaded.flags),
        loaded,
        dict(zip(texts, embedded.vectors, strict=True)),
        loaded.write_seq,
        {**{row.memory_id: row for row in loaded.by_hash.values()}, **loaded.memories},
        {digest: row.memory_id for digest, row in loaded.by_hash.items()},
    )
    for number, proposal in enumerate(intent.proposals):
        if proposal.item_id in loaded.settled:
            continue
        outcome = yield from _carry_out(work, proposal, number)
        work.outcomes.append(_explained(outcome, work, proposal))
        if outcome.event != "reconsidered":
            work.writes.append(Put(outcome_row(message, outcome)))
    return Step(writes=tuple(work.writes), emits=_emits(work))


def _load(message: Message, intent: ProposalsIntent, texts: tuple[str, ...]) -> Load:
    names: dict[str, str] = {}
    for text in texts:
        names.update(candidate_names(text))
    targets = [p.target_id for p in intent.proposals if p.target_id is not None]
    return Load(
        message.scope,
        memory_ids=(intent.turn.memory_id, *targets, *(p.memory_id for p in intent.proposals)),
        content_hashes=tuple(content_hash(text) for text in texts),
        names=tuple(names),
        unspaced_text=" ".join(filter(None, map(unspaced_part, texts))),
        item_ids=tuple(p.item_id for p in intent.proposals),
    )


def _carry_out(work: _Work, proposal: Proposal, number: int) -> Generator[Ask, Answer, Outcome]:
    if proposal.dropped is not None:
        return _outcome(proposal, "dropped", proposal.dropped, proposal.target_id)
    if work.flags.shadow_mode or work.flags.mutations_frozen:
        why = "mutations_frozen" if work.flags.mutations_frozen else "shadow_mode"
        return _outcome(proposal, "shadowed", why, proposal.target_id, changed_by="pipeline-shadow")
    if not work.flags.enabled:
        return _outcome(proposal, "skipped", "pipeline_disabled", None)
    if proposal.action == "NONE":
        return _outcome(proposal, "none", proposal.reason, proposal.target_id)
    if proposal.action == "ADD":
        return (yield from _add(work, proposal, number))
    if _forgotten(work):
        return _outcome(proposal, "skipped", "source_forgotten", None)
    if not work.flags.allow_update_delete:
        return _outcome(proposal, "blocked", "update_delete_not_allowed", proposal.target_id)
    return _change(work, proposal, number)


def _forgotten(work: _Work) -> bool:
    source = work.memories.get(work.intent.turn.memory_id)
    return source is not None and source.is_deleted


def _add(work: _Work, proposal: Proposal, number: int) -> Generator[Ask, Answer, Outcome]:
    why = skip_reason(proposal.fact, work.settings.min_fact_confidence)
    if why is not None:
        return _outcome(proposal, "skipped", why, None)
    order = _order(work, number)
    row = fact_memory(work.message, work.intent.turn, proposal, work.intent.call.model, 0, order)
    existing = work.same_content(row.content_hash)
    if existing is not None:
        return _outcome(proposal, "deduped", "same content", existing)
    if _forgotten(work):
        return _outcome(proposal, "skipped", "source_forgotten", None)
    if work.intent.round < work.settings.max_reconsiderations:
        unseen = yield NearDuplicates(
            work.message.scope,
            row.content_hash,
            work.vectors.get(row.content),
            work.settings.near,
            work.intent.as_of,
            order,
        )
        assert isinstance(unseen, Candidates)
        seen = {candidate.memory_id for candidate in proposal.candidates}
        newcomers = [c for c in unseen.found if c.memory_id not in seen]
        if newcomers:
            return _send_back(work, proposal, newcomers[0].memory_id)
    work.put(replace(row, write_seq=work.next_seq()))
    work.writes.append(_edge(work, row.memory_id, work.intent.turn.memory_id, "derived_from"))
    work.writes += _links(work, row)
    return _outcome(
        proposal, "created", proposal.reason, row.memory_id, new_content=row.content, version=1
    )


def _change(work: _Work, proposal: Proposal, number: int) -> Outcome:
    """UPDATE and DELETE: the state before goes to the cold tier first."""
    target = work.memories.get(proposal.target_id or "")
    if target is None or target.is_deleted:
        return _outcome(proposal, "skipped", "target_gone", proposal.target_id)
    if protected(target):
        return _outcome(proposal, "skipped", "pinned", target.memory_id)
    if target.version != proposal.target_version:
        if work.intent.round < work.settings.max_reconsiderations:
            return _send_back(work, proposal, target.memory_id)
        return _outcome(proposal, "skipped", "version_conflict", target.memory_id)
    at = work.message.recorded
    if proposal.action == "DELETE":
        work.writes.append(Put(archived(target, "deleted by the pipeline", at)))
        work.put(deleted(_moved(work, target, number), at))
        return _outcome(
            proposal,
            "deleted",
            proposal.reason,
            target.memory_id,
            old_content=target.content,
            version=target.version + 1,
        )
    updated = with_content(_moved(work, target, number), proposal.fact.content)
    other = work.same_content(updated.content_hash)
    if other not in (None, target.memory_id):
        return _outcome(proposal, "deduped", "same content", other)
    work.writes.append(Put(archived(target, "replaced by the pipeline", at)))
    work.put(updated)
    work.writes.append(_edge(work, target.memory_id, archived_id(target), "supersedes"))
    work.writes.append(_edge(work, target.memory_id, work.intent.turn.memory_id, "derived_from"))
    work.writes += _links(work, updated)
    return _outcome(
        proposal,
        "modified",
        proposal.reason,
        target.memory_id,
        old_content=target.content,
        new_content=updated.content,
        version=updated.version,
    )


def _moved(work: _Work, target: MemoryRow, number: int) -> MemoryRow:
    return changed(target, work.message.recorded, "pipeline", work.next_seq(), _order(work, number))


def _send_back(work: _Work, proposal: Proposal, because: str) -> Outcome:
    work.sent_back.append(proposal)
    return _outcome(proposal, "reconsidered", "decided on what has changed since", because)


def _order(work: _Work, number: int) -> int:
    return work.intent.decision_order * ORDERS_PER_RECORD + number


def _edge(work: _Work, source: str, target: str, relation: str) -> Put:
    return Put(
        EdgeRow(
            source_id=source, target_id=target, relation_type=relation, scope=work.message.scope
        )
    )


def _links(work: _Work, row: MemoryRow) -> list[Write]:
    return link_writes(work.message.scope, row.memory_id, work.loaded, row.content)


def _outcome(
    proposal: Proposal,
    event: OutcomeEvent,
    reason: str,
    memory_id: str | None,
    old_content: str | None = None,
    new_content: str | None = None,
    version: int | None = None,
    changed_by: str = "pipeline",
) -> Outcome:
    return Outcome(
        event=event,
        item_kind="fact",
        item_id=proposal.item_id,
        memory_id=memory_id,
        old_content=old_content,
        new_content=new_content,
        reason=reason,
        version=version,
        changed_by=changed_by,
    )


def _explained(outcome: Outcome, work: _Work, proposal: Proposal) -> Outcome:
    """The outcome with all that led to it."""
    decider = proposal.decider
    candidates: list[JsonValue] = [dict(c) for c in candidates_json(proposal.candidates)]
    warnings: list[JsonValue] = [*proposal.warnings]
    metadata: dict[str, JsonValue] = {
        "proposed_action": proposal.action,
        "target_id": proposal.target_id,
        "fact": proposal.fact.content,
        "fact_type": proposal.fact.type,
        "confidence": proposal.confidence,
        "decision_reason": proposal.reason,
        "candidates": candidates,
        "source_memory": work.intent.turn.memory_id,
        "extraction_model": work.intent.call.model,
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
    if intent.triples and not shadowed and not _forgotten(work):
        created = [o.memory_id for o in work.outcomes if o.event == "created" and o.memory_id]
        graph = GraphWork(memory_ids=(intent.turn.memory_id, *created), triples=intent.triples)
    if work.outcomes or graph is not None:
        change = MemoryChange(
            outcomes=tuple(work.outcomes), session_id=intent.turn.session_id, graph=graph
        )
        emits += changes(change, tuple(dict.fromkeys(work.touched)))
    return tuple(emits)
