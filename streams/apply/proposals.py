"""Executes proposals: modes, gates, guarded paths, and sending stale decisions back."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.messages import (
    FactsExtracted,
    GraphWork,
    MemoryChange,
    Outcome,
    Proposal,
    ProposalsIntent,
)
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.rows import MemoryRow
from palimpsest.schemas.topics import FACTS_EXTRACTED
from palimpsest.streams.apply.categories import ScopeCategories
from palimpsest.streams.apply.outcomes import (
    InvalidationKind,
    changes,
    kinds_of,
    link_writes,
    outcome_row,
)
from palimpsest.streams.apply.pending_proposals import held_row
from palimpsest.streams.decide.decision_rows import candidates_json, fact_row, proposal_row
from palimpsest.streams.decide.erased_facts import still_proposed, unsaid
from palimpsest.streams.decide.proposal_policy import (
    Met,
    Verdict,
    archive_writes,
    decision_order,
    edge_writes,
    least_confidence,
    source_gone,
    verdict,
)
from palimpsest.streams.memory_rows import Origin, effective, origin_of, skip_reason
from palimpsest.streams.models.base import Embedding
from palimpsest.streams.privacy import is_private, is_private_source
from palimpsest.streams.settings import Flags, StageSettings
from palimpsest.streams.stage import Answer, Ask, Embed, Embedded, Emit, Message, Step
from palimpsest.streams.store_port import (
    Candidates,
    KeepVector,
    Load,
    Loaded,
    NearDuplicates,
    Put,
    Write,
)
from palimpsest.streams.text.linker import candidate_names, unspaced_part


@dataclass(slots=True)
class _Work:
    """The state of one intent while its proposals are executed one after another."""

    message: Message
    intent: ProposalsIntent
    settings: StageSettings
    flags: Flags
    loaded: Loaded
    embeddings: dict[str, Embedding | None]
    write_seq: int
    memories: dict[str, MemoryRow]
    by_hash: dict[str, str]
    private: bool
    categories: ScopeCategories
    writes: list[Write] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    sent_back: list[Proposal] = field(default_factory=list)
    touched: list[tuple[str, InvalidationKind]] = field(default_factory=list)

    def put(self, row: MemoryRow) -> None:
        row = self.categories.folded(row)
        self.keep_embedding(row.content)
        self.writes.append(Put(row))
        kinds = kinds_of(self.memories.get(row.memory_id), row)
        self.memories[row.memory_id] = row
        if row.dedup_key is not None:
            self.by_hash[row.content_hash] = row.memory_id
        self.touched += [(row.memory_id, kind) for kind in kinds]

    def keep_embedding(self, content: str) -> None:
        found = self.embeddings.get(content)
        if found is not None:
            self.writes.append(KeepVector(embedding_key(content), found.vector, found.tokens))

    def same_content(self, digest: str) -> str | None:
        """Returns the active memory with this content, including the intent's changes so far."""
        row = self.memories.get(self.by_hash.get(digest, ""))
        if row is None or row.dedup_key is None or row.content_hash != digest:
            return None
        return row.memory_id

    def next_seq(self) -> int:
        self.write_seq += 1
        return self.write_seq


def proposals_step(
    message: Message, intent: ProposalsIntent, settings: StageSettings
) -> Generator[Ask, Answer, Step]:
    """Executes the proposals of one turn, in order."""
    texts = tuple(storage_content(p.fact.content) for p in intent.proposals)
    wanted = _texts_to_keep(intent, settings)
    embedded = yield Embed(wanted)
    assert isinstance(embedded, Embedded)
    loaded = yield _load(message, intent, texts)
    assert isinstance(loaded, Loaded)
    source = loaded.memories.get(intent.turn.memory_id)
    private = is_private_source(loaded.privacy, intent.turn.speaker, source)
    intent = unsaid(intent) if private else still_proposed(intent, source)
    work = _Work(
        message,
        intent,
        settings,
        effective(settings.pipeline, loaded.flags),
        loaded,
        dict(zip(wanted, embedded.embeddings, strict=True)),
        loaded.write_seq,
        _of_scope(message.scope, loaded),
        {digest: row.memory_id for digest, row in loaded.by_hash.items()},
        private,
        ScopeCategories.of(message.scope, loaded),
    )
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


def _texts_to_keep(intent: ProposalsIntent, settings: StageSettings) -> tuple[str, ...]:
    """The texts that may become a memory's, as far as that is known without the store."""
    least = least_confidence(intent.turn, settings.pipeline)
    return tuple(
        storage_content(proposal.fact.content)
        for proposal in intent.proposals
        if proposal.dropped is None and skip_reason(proposal.fact, least) is None
    )


def _of_scope(scope: str, loaded: Loaded) -> dict[str, MemoryRow]:
    """The loaded memories by id, without those of other scopes."""
    rows = (*loaded.by_hash.values(), *loaded.memories.values())
    return {row.memory_id: row for row in rows if row.scope == scope}


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
        categories=True,
    )


def _carry_out(work: _Work, proposal: Proposal, number: int) -> Generator[Ask, Answer, Outcome]:
    order = decision_order(work.intent.decision_order, number)
    origin = origin_of(work.message, work.intent.turn, work.intent.call.model, order)
    target = work.memories.get(proposal.target_id or "")
    source = work.memories.get(work.intent.turn.memory_id)
    met = Met(
        work.flags,
        source,
        target,
        work.same_content(content_hash(storage_content(proposal.fact.content))),
        is_final=work.intent.round >= work.settings.pipeline.max_reconsiderations,
        source_hash=work.intent.turn.content_hash,
        private=is_private(work.loaded.privacy, work.intent.turn.speaker, source, target),
    )
    least = least_confidence(work.intent.turn, work.settings.pipeline)
    ruling = verdict(proposal, met, origin, least)
    if ruling.event == "created" and ruling.row is not None and not met.is_final:
        newcomer = yield from _newcomer(work, proposal, ruling.row, order)
        ruling = verdict(proposal, replace(met, newcomer=newcomer), origin, least)
    if ruling.event == "reconsidered":
        work.sent_back.append(proposal)
    if ruling.row is not None:
        work.writes += archive_writes(ruling, target, origin)
        work.put(replace(ruling.row, write_seq=work.next_seq()))
        work.writes += edge_writes(ruling, target, work.intent.turn.memory_id, source)
        if ruling.event != "deleted":
            work.writes += _links(work, ruling.row)
    if ruling.event == "blocked":
        _hold(work, proposal, origin)
    return _outcome(proposal, ruling, target)


def _hold(work: _Work, proposal: Proposal, origin: Origin) -> None:
    """Stores what a later approval of the change needs, including its vector: a command's text is
    unknown before the store answers, and after that no model may be called."""
    row = held_row(proposal, origin, work.intent.turn.memory_id)
    work.keep_embedding(row.content)
    work.writes.append(Put(row))


def _newcomer(
    work: _Work, proposal: Proposal, row: MemoryRow, order: int
) -> Generator[Ask, Answer, str | None]:
    """Returns a near duplicate of the row that the decision could not have seen."""
    embedding = work.embeddings.get(row.content)
    unseen = yield NearDuplicates(
        work.message.scope,
        row.content,
        row.content_hash,
        None if embedding is None else embedding.vector,
        work.settings.near,
        work.intent.as_of,
        order,
    )
    assert isinstance(unseen, Candidates)
    seen = {candidate.memory_id for candidate in proposal.candidates}
    return next((c.memory_id for c in unseen.found if c.memory_id not in seen), None)


def _source_gone(work: _Work) -> bool:
    turn = work.intent.turn
    return source_gone(work.memories.get(turn.memory_id), turn.content_hash) is not None


def _links(work: _Work, row: MemoryRow) -> list[Write]:
    return link_writes(row, work.loaded.entities)


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
    if intent.triples and not (shadowed or work.private or _source_gone(work)):
        created = [o.memory_id for o in work.outcomes if o.event == "created" and o.memory_id]
        graph = GraphWork(
            memory_ids=(intent.turn.memory_id, *created),
            triples=intent.triples,
            from_turns=work.settings.graph.takes_from_turns,
        )
    if work.outcomes or graph is not None:
        change = MemoryChange(
            outcomes=tuple(work.outcomes), session_id=intent.turn.session_id, graph=graph
        )
        emits += changes(change, work.touched)
    return tuple(emits)
