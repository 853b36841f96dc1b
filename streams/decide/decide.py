"""decide: for each fact, whether it is new, changes or removes something known, or is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from palimpsest.schemas.echoes import spoken
from palimpsest.schemas.extraction import Fact, FactsExtracted
from palimpsest.schemas.messages import (
    EDITION,
    MemoryWrite,
    Proposal,
    ProposalsIntent,
    ScoredCandidate,
)
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.rows.enumerations import Action
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.topics import FACTS_EXTRACTED, MEMORY_WRITES
from palimpsest.streams.claims.conflict import (
    words_of_its_slot,
)
from palimpsest.streams.claims.contradiction import shared_tokens, words_oppose
from palimpsest.streams.claims.grammar import USER, plainly_named
from palimpsest.streams.claims.polarity import words_of_its_topics
from palimpsest.streams.claims.source import as_stated, in_third_person, is_first_person
from palimpsest.streams.decide.proposal_policy import (
    Met,
    decision_order,
    ended_with,
    least_confidence,
    sources_of,
    still_said,
    verdict,
)
from palimpsest.streams.decide.without_model import (
    Told,
    decided_by_rules,
    known_by_bands,
    may_meet,
    of_remembered_text,
    proposed,
)
from palimpsest.streams.extract import model_call
from palimpsest.streams.memory_rows import (
    effective,
    is_said_later,
    origin_of,
)
from palimpsest.streams.models.base import Reply
from palimpsest.streams.privacy import is_private
from palimpsest.streams.prompting.prompts import (
    DECISION_PROMPT_VERSION,
    contradiction_prompt,
    decision_prompt,
)
from palimpsest.streams.prompting.replies import MalformedReply, read_contradiction, read_decision
from palimpsest.streams.recorded_settings import in_space, recorded_settings, with_recorded
from palimpsest.streams.settings import DecisionSettings, StageSettings
from palimpsest.streams.stage import (
    Asking,
    Context,
    Embed,
    Emit,
    Failure,
    Generate,
    Message,
    ModelUnavailable,
    Process,
    Stage,
    Step,
)
from palimpsest.streams.store_port import Anticipated, Candidates, FindCandidates, Load, Vector

MIN_SHARED_FOR_SEMANTIC_CHECK = 3
MAX_BY_WORDS = 50
"""Maximum number of memories among which those are looked for that a fact meets by its slot or its
topic."""
WITHOUT_A_VECTOR = "decided without a vector: the embedding model refuses the text"


class Undecided(Exception):
    """No usable decision for a fact; the text is the reason, `raw` the model's last reply."""

    def __init__(self, reason: str, raw: str | None, attempts: int) -> None:
        super().__init__(reason)
        self.raw = raw
        self.attempts = attempts


def decide_stage(own: StageSettings) -> Stage:
    """Returns the stage, which searches the store and sends what it proposes; apply-writes stores
    that. Facts are decided in order, each seeing the changes proposed before it, so the outcome
    does not depend on how the facts were batched."""
    recorded = recorded_settings(own)

    def process(message: Message, context: Context) -> Process:
        body = message.body
        assert isinstance(body, FactsExtracted)
        texts = tuple(storage_content(fact.content) for fact in body.facts)
        # Without vectors every rephrased known fact would look new.
        embedded = yield from Embed(texts, required=True)
        settings = in_space(own, embedded.space)
        facts, is_first = yield from _undecided_facts(message, body)
        vectors = dict(zip((f.item_id for f in body.facts), embedded.vectors, strict=True))
        proposals: list[Proposal] = []
        failed: list[tuple[Fact, Undecided]] = []
        as_of = 0
        for fact in facts:
            vector = vectors[fact.item_id]
            found = yield from _candidates_of(message, body, fact, vector, settings.decision)
            as_of = found.as_of
            try:
                proposal = yield from _decide(message, body, fact, found.found, settings)
            except Undecided as error:
                failed.append((fact, error))
                continue
            warned = {"warnings": (*proposal.warnings, WITHOUT_A_VECTOR)}
            proposal = proposal.model_copy(update=warned) if vector is None else proposal
            proposals.append(proposal)
            order = decision_order(context.record.offset, len(proposals) - 1)
            expected, ending = yield from _anticipated(message, body, proposal, order, settings)
            for row in ending:
                yield Anticipated(row, None)
            if expected is not None:
                is_its_text = not expected.is_deleted and proposal.action != "NONE"
                sources = fact.sources(body.turn)
                yield Anticipated(expected, vector if is_its_text else None, sources)
        write = _write(body, proposals, as_of, context.record.offset, is_first)
        # A message of which a part was decided before, as after a crash, is another one.
        index = "proposals" if len(facts) == len(body.facts) else "remaining proposals"
        emits = () if write is None else (Emit(MEMORY_WRITES, write, index),)
        step = Step(emits=emits, dead=_failure(failed))
        return with_recorded(step, recorded if settings is own else recorded_settings(settings))

    return Stage(
        name="decide",
        reads=(FACTS_EXTRACTED,),
        process=process,
        stateful=False,
        asks_in_order=True,
        waits_for="apply-writes",
    )


def _candidates_of(
    message: Message,
    body: FactsExtracted,
    fact: Fact,
    vector: Vector | None,
    settings: DecisionSettings,
) -> Asking[Candidates]:
    """Returns the nearest memories and, however near they are, those in the same slot of one value,
    without the remembered text that the fact was extracted from: it would hide the older memory
    that the fact contradicts."""
    text = storage_content(fact.content)
    limit = settings.candidates + (1 if body.turn.is_remembered else 0)
    plain = plainly_named(body.turn.speaker)
    said = plain(text)
    words = words_of_its_slot(said) or words_of_its_topics(said)
    found = yield from FindCandidates(
        message.scope, text, vector, limit, settings.min_score, words, MAX_BY_WORDS
    )
    own = body.turn.memory_id
    nearest = tuple(c for c in found.found if c.memory_id != own)[: settings.candidates]
    seen = {own, *(c.memory_id for c in nearest)}
    met = tuple(
        c for c in found.by_words if c.memory_id not in seen and may_meet(said, plain(c.content))
    )
    return replace(found, found=nearest + met)


def _undecided_facts(
    message: Message, body: FactsExtracted
) -> Asking[tuple[tuple[Fact, ...], bool]]:
    """Returns the message's facts without those decided before in this round (a turn published
    again under another id, or a record read again), and whether the message is the first with any
    of them. Redriven facts are decided again unless they have an outcome."""
    if not body.facts:
        return (), not body.round
    ids = tuple(fact.item_id for fact in body.facts)
    sources = dict.fromkeys(each for fact in body.facts for each in fact.sources(body.turn))
    loaded = yield from Load(
        message.scope,
        memory_ids=tuple(sources),
        content_hashes=tuple(content_hash(storage_content(f.content)) for f in body.facts),
        item_ids=ids if message.redrive else (),
        fact_ids=ids if message.redrive else (),
        proposed_in=tuple((item_id, body.round) for item_id in ids),
    )
    done = loaded.settled if message.redrive else loaded.proposed
    facts = still_said(body.facts, body.turn, loaded.memories)
    is_first = not (body.round or loaded.proposed or loaded.facts)
    return tuple(fact for fact in facts if fact.item_id not in done), is_first


def _decide(
    message: Message,
    body: FactsExtracted,
    fact: Fact,
    candidates: tuple[ScoredCandidate, ...],
    settings: StageSettings,
) -> Asking[Proposal]:
    # What ended before the fact was stated is neither repeated nor changed by it.
    candidates = tuple(
        c for c in candidates if c.valid_until is None or c.valid_until > message.occurred_at
    )
    speaker = body.turn.speaker
    proposal = known_by_bands(fact, candidates, settings, speaker)
    if proposal is None and settings.decider == "rules":
        source, named = yield from _named(message, body, candidates)
        later, told = yield from _as_their_sources_state(message, named)
        now = message.recorded
        decided = decided_by_rules(
            message.occurred_at, fact, named, settings.near, source, now, later, told, speaker
        )
        proposal = decided.model_copy(update={"candidates": candidates})
    if proposal is None:
        proposal = yield from _by_model(message, fact, candidates, settings)
    if not body.turn.is_remembered or proposal.dropped is not None:
        return proposal
    action, target_id, reason = of_remembered_text(
        proposal.action, proposal.target_id, proposal.reason, body.turn.memory_id
    )
    return proposal.model_copy(update={"action": action, "target_id": target_id, "reason": reason})


def _named(
    message: Message, body: FactsExtracted, candidates: tuple[ScoredCandidate, ...]
) -> Asking[tuple[str | None, tuple[ScoredCandidate, ...]]]:
    """Returns the text of the facts' source, and the candidates with a name for the "I" of those
    that the same person asked to remember."""
    own = tuple(c.memory_id for c in candidates if is_first_person(c.content))
    loaded = yield from Load(message.scope, memory_ids=(body.turn.memory_id, *own))
    source = loaded.memories.get(body.turn.memory_id)
    if source is None:
        return None, candidates
    same = {key for key in own if key in loaded.memories and loaded.memories[key].who == source.who}
    speaker = body.turn.speaker or USER
    named = tuple(
        c.model_copy(update={"content": in_third_person(c.content, speaker)})
        if c.memory_id in same
        else c
        for c in candidates
    )
    return spoken(source.content), named


def _as_their_sources_state(
    message: Message, candidates: tuple[ScoredCandidate, ...]
) -> Asking[tuple[Mapping[str, str], tuple[Told, ...]]]:
    """Returns those of the candidates that were said after the fact, by id, as a source of theirs
    states them, without those that say more or less than their sources; and all that these memories
    have said, now or before, with its time."""
    now, than = message.recorded, message.occurred_at
    later = {
        c.memory_id: c.content
        for c in candidates
        if c.occurred_at is not None and is_said_later(c.occurred_at, than, now)
    }
    if not later:
        return {}, ()
    loaded = yield from Load(message.scope, sources_of=tuple(later))
    sources: dict[str, list[str]] = {memory_id: [] for memory_id in later}
    told: list[Told] = []
    for source in loaded.sources.values():
        for statement in source.statements:
            if statement.memory_id in sources:
                text = spoken(source.row.content)
                sources[statement.memory_id].append(text)
                as_said = as_stated(text, statement.text)
                at, of = source.row.occurred_at, statement.memory_id
                told.append(Told(at, statement.text, of, as_said or ""))
    stated: dict[str, str] = {}
    for memory_id, content in later.items():
        # A text that a person asked to remember is its own source.
        texts = sources[memory_id] or [content]
        found = [said for text in texts if (said := as_stated(text, content)) is not None]
        if found:
            # The one with its "now", where a source has it.
            stated[memory_id] = max(found, key=lambda said: (len(said), said))
    return stated, tuple(sorted(told))


def _by_model(
    message: Message, fact: Fact, candidates: tuple[ScoredCandidate, ...], settings: StageSettings
) -> Asking[Proposal]:
    prompt = decision_prompt(fact, message.occurred_at, candidates)
    by_id = {candidate.memory_id: candidate for candidate in candidates}
    raw, why = "", ""
    attempts = settings.worker.max_attempts
    for attempt in range(1, attempts + 1):
        try:
            reply = yield from Generate(prompt, attempt=attempt, fresh=bool(message.redrive))
        except ModelUnavailable as error:
            raise Undecided(str(error), None, attempt) from error
        assert isinstance(reply, Reply)
        raw = reply.text
        try:
            draft = read_decision(raw, list(by_id))
        except MalformedReply as error:
            why = str(error)
            continue
        target = by_id.get(draft.target_id or "")
        risk = False
        if target is not None and draft.action in ("UPDATE", "DELETE"):
            risk = yield from _at_risk(fact, target, draft.action, settings)
        of_model = {
            "target_id": draft.target_id,
            "confidence": draft.confidence,
            "dropped": draft.dropped,
            "warnings": draft.warnings,
            "decider": model_call(reply, DECISION_PROMPT_VERSION, attempt),
        }
        said = proposed(fact, draft.action, candidates, draft.reason, target, risk)
        return said.model_copy(update=of_model)
    why = f"the decision could not be read in {attempts} attempts: {why}"
    raise Undecided(why, raw, attempts)


def _at_risk(
    fact: Fact, target: ScoredCandidate, action: Action, settings: StageSettings
) -> Asking[bool]:
    """Returns whether fact and target contradict each other: by words, else (if enabled) by
    model."""
    if words_oppose(fact.content, target.content):
        return True
    if (
        not settings.decision.semantic_contradiction
        or action != "UPDATE"
        or shared_tokens(fact.content, target.content) < MIN_SHARED_FOR_SEMANTIC_CHECK
    ):
        return False
    reply = yield from Generate(contradiction_prompt(fact.content, target.content), advisory=True)
    if not isinstance(reply, Reply):
        return False
    try:
        return read_contradiction(reply.text).contradicts
    except MalformedReply:
        return False


def _anticipated(
    message: Message, body: FactsExtracted, proposal: Proposal, order: int, settings: StageSettings
) -> Asking[tuple[MemoryRow | None, list[MemoryRow]]]:
    """Returns the row that apply-writes will store for the proposal, and those that end with it,
    for the facts decided after it."""
    targets = () if proposal.target_id is None else (proposal.target_id,)
    digest = content_hash(storage_content(proposal.fact.content))
    loaded = yield from Load(
        message.scope,
        memory_ids=(*proposal.fact.sources(body.turn), *targets, *(proposal.ends or ())),
        content_hashes=(digest,),
    )
    same = loaded.by_hash.get(digest)
    target = loaded.memories.get(proposal.target_id or "")
    sources = sources_of(proposal.fact, body.turn, loaded.memories)
    met = Met(
        effective(settings.pipeline, loaded.flags),
        sources[0],
        None if target is None or target.scope != message.scope else target,
        None if same is None else same.memory_id,
        is_final=body.round >= settings.pipeline.max_reconsiderations,
        source_hash=body.turn.content_hash,
        private=is_private(loaded.privacy, body.turn.speaker, sources, target),
        by_date=True,
    )
    origin = origin_of(message, body.turn, body.call.model, order, sources[0])
    ruling = verdict(proposal, met, origin, least_confidence(body.turn, settings.pipeline))
    row, seq = ruling.row, loaded.write_seq
    ending = ended_with(proposal, ruling, met, origin, loaded.memories)
    return (
        None if row is None else replace(row, write_seq=seq),
        [replace(each, write_seq=seq) for each in ending],
    )


def _write(
    body: FactsExtracted, proposals: list[Proposal], as_of: int, offset: int, is_first: bool
) -> MemoryWrite | None:
    triples = body.triples if is_first else ()
    if not proposals and not triples:
        return None
    intent = ProposalsIntent(
        turn=body.turn,
        proposals=tuple(proposals),
        triples=triples,
        call=body.call,
        as_of=as_of,
        decision_order=offset,
        round=body.round,
        warnings=body.warnings,
        by_date=True,
        held_once=True,
    )
    return MemoryWrite(write=intent, edition=EDITION)


def _failure(failed: list[tuple[Fact, Undecided]]) -> Failure | None:
    if not failed:
        return None
    last = failed[-1][1]
    return Failure(
        str(last),
        "malformed-output" if last.raw is not None else "invalid",
        raw_output=last.raw,
        attempts=last.attempts,
        item_ids=tuple(fact.item_id for fact, _ in failed),
    )
