"""decide: for each fact, whether it is new, changes or removes something known, or is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from palimpsest.schemas.echoes import spoken
from palimpsest.schemas.enumerations import Action
from palimpsest.schemas.extraction import Fact, FactsExtracted
from palimpsest.schemas.identity import fact_memory_id
from palimpsest.schemas.messages import MemoryWrite, Proposal, ProposalsIntent, ScoredCandidate
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.redaction import is_mark
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.topics import FACTS_EXTRACTED, MEMORY_WRITES
from palimpsest.streams.claims.conflict import (
    are_of_one_slot,
    contradicts,
    is_ambiguous,
    words_of_its_slot,
)
from palimpsest.streams.claims.grammar import USER
from palimpsest.streams.claims.polarity import opposes, words_of_its_topics
from palimpsest.streams.claims.source import as_stated, in_third_person, is_first_person
from palimpsest.streams.decide.proposal_policy import (
    MAY_EXCLUDE,
    SAID_BEFORE,
    SAID_BY_ITS_SOURCE,
    Met,
    decision_order,
    least_confidence,
    sources_of,
    still_said,
    verdict,
)
from palimpsest.streams.extract import model_call
from palimpsest.streams.memory_rows import (
    CLOCKS_DIFFER,
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
from palimpsest.streams.text.contradiction import same_fact, shared_tokens, words_oppose

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
            expected = yield from _anticipated(message, body, proposal, order, settings)
            if expected is not None:
                is_its_text = not expected.is_deleted and proposal.action != "NONE"
                sources = fact.sources(body.turn)
                yield Anticipated(expected, vector if is_its_text else None, sources)
        intent = _intent(body, proposals, as_of, context.record.offset, is_first)
        # A message of which a part was decided before, as after a crash, is another one.
        index = "proposals" if len(facts) == len(body.facts) else "remaining proposals"
        emits = () if intent is None else (Emit(MEMORY_WRITES, MemoryWrite(write=intent), index),)
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
    words = words_of_its_slot(text) or words_of_its_topics(text)
    found = yield from FindCandidates(
        message.scope, text, vector, limit, settings.min_score, words, MAX_BY_WORDS
    )
    own = body.turn.memory_id
    nearest = tuple(c for c in found.found if c.memory_id != own)[: settings.candidates]
    seen = {own, *(c.memory_id for c in nearest)}
    met = tuple(c for c in found.by_words if c.memory_id not in seen and _meet(text, c.content))
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
    proposal = known_by_bands(fact, candidates, settings)
    if proposal is None and settings.decider == "rules":
        source, named = yield from _named(message, body, candidates)
        later = yield from _as_their_sources_state(message, named)
        decided = decided_by_rules(
            message.occurred_at, fact, named, settings.near, source, message.recorded, later
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
) -> Asking[Mapping[str, str]]:
    """Returns those of the candidates that were said after the fact, by id, as a source of theirs
    states them; without those that say more or less than their sources."""
    now, than = message.recorded, message.occurred_at
    later = {
        c.memory_id: c.content
        for c in candidates
        if c.occurred_at is not None and is_said_later(c.occurred_at, than, now)
    }
    if not later:
        return {}
    loaded = yield from Load(message.scope, sources_of=tuple(later))
    sources: dict[str, list[str]] = {memory_id: [] for memory_id in later}
    for source in loaded.sources.values():
        for statement in source.statements:
            if statement.memory_id in sources:
                sources[statement.memory_id].append(spoken(source.row.content))
    stated: dict[str, str] = {}
    for memory_id, content in later.items():
        # A text that a person asked to remember is its own source.
        texts = sources[memory_id] or [content]
        as_said = [said for text in texts if (said := as_stated(text, content)) is not None]
        if as_said:
            # The one with its "now", where a source has it.
            stated[memory_id] = max(as_said, key=lambda said: (len(said), said))
    return stated


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
) -> Asking[MemoryRow | None]:
    """Returns the row that apply-writes will store for the proposal, for the facts decided after
    it."""
    targets = () if proposal.target_id is None else (proposal.target_id,)
    digest = content_hash(storage_content(proposal.fact.content))
    loaded = yield from Load(
        message.scope,
        memory_ids=(*proposal.fact.sources(body.turn), *targets),
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
    origin = origin_of(message, body.turn, body.call.model, order)
    row = verdict(proposal, met, origin, least_confidence(body.turn, settings.pipeline)).row
    return None if row is None else replace(row, write_seq=loaded.write_seq)


def _intent(
    body: FactsExtracted, proposals: list[Proposal], as_of: int, offset: int, is_first: bool
) -> ProposalsIntent | None:
    triples = body.triples if is_first else ()
    if not proposals and not triples:
        return None
    return ProposalsIntent(
        turn=body.turn,
        proposals=tuple(proposals),
        triples=triples,
        call=body.call,
        as_of=as_of,
        decision_order=offset,
        round=body.round,
        warnings=body.warnings,
        by_date=True,
    )


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


# --- deciders without a model ---------------------------------------------------------------------

# What a fact means for existing memories, by bands and rules. Also used to compare shadow deciders
# with the active one.


def known_by_bands(
    fact: Fact, candidates: tuple[ScoredCandidate, ...], settings: StageSettings
) -> Proposal | None:
    """Decides what needs no model: nothing similar, a duplicate, or something clearly distinct."""
    if not candidates or is_mark(fact.content):
        return proposed(fact, "ADD", (), "no similar memory")
    digest = content_hash(storage_content(fact.content))
    for candidate in candidates:
        if content_hash(candidate.content) == digest:
            return proposed(fact, "NONE", candidates, "duplicate_exact", candidate)
    for candidate in sorted(candidates, key=lambda c: (-(c.cosine or 0.0), c.memory_id)):
        if (candidate.cosine or 0.0) < settings.exact:
            break
        if same_fact(fact.content, candidate.content):
            return proposed(fact, "NONE", candidates, "duplicate_exact", candidate)
    cosine = max(candidate.cosine or 0.0 for candidate in candidates)
    by_keyword = any((c.keyword or 0.0) >= settings.decision.min_score for c in candidates)
    in_slot = any(_meet(fact.content, c.content) for c in candidates)
    if cosine < settings.near and not by_keyword and not in_slot:
        return proposed(fact, "ADD", candidates, "distinct")
    return None


def decided_by_rules(
    occurred_at: datetime,
    fact: Fact,
    candidates: tuple[ScoredCandidate, ...],
    near: float,
    source: str | None = None,
    now: datetime | None = None,
    later: Mapping[str, str] | None = None,
) -> Proposal:
    """Decides without a model: proposes to update a contradicted memory, and to add anything else.

    The memory must also be about the same holder in the same slot of one value, or near in meaning:
    without a cosine that is unknown, and only ADD is proposed. And it must not be dated later than
    the fact, as when an old conversation is imported;
    a memory dated long after `now` has a wrong date, and may be ended. Candidates are examined in
    order, best first. If the text of the `source` is known, a fact ends nothing unless the source
    states it and no more.

    `later` has the candidates said after the fact, by id, as their sources state them. Where one
    contradicts the fact, an UPDATE of it is proposed all the same, which stores the fact as ended.

    What may contradict the fact is proposed to a person."""
    past = _ending(occurred_at, fact, candidates, near, later or {})
    if past is not None:
        return proposed(fact, "UPDATE", candidates, SAID_BEFORE, past)

    def dated(candidate: ScoredCandidate) -> datetime | None:
        when = candidate.occurred_at
        latest = None if now is None else max(now, occurred_at) + CLOCKS_DIFFER
        is_wrong = when is not None and latest is not None and when > latest
        return None if is_wrong else when

    def may_be_ended(candidate: ScoredCandidate) -> bool:
        when = dated(candidate)
        return _is_near(fact, candidate, near) and (when is None or when <= occurred_at)

    known = list(filter(may_be_ended, candidates))
    stated = fact.content if source is None or not known else as_stated(source, fact.content)
    for candidate in known:
        if stated is None:
            break
        when = dated(candidate)
        if contradicts(stated, candidate.content, None if when is None else when.date()):
            if is_ambiguous(fact.content, _contents(candidates, candidate)):
                break
            reason = "contradicts a known memory"
            return proposed(fact, "UPDATE", candidates, reason, candidate, risk=True)
    opposed = _opposed(occurred_at, fact, candidates)
    if opposed is not None:
        return proposed(fact, "UPDATE", candidates, MAY_EXCLUDE, opposed, risk=True)
    return proposed(fact, "ADD", candidates, "similar, yet not the same")


def _opposed(
    occurred_at: datetime, fact: Fact, candidates: tuple[ScoredCandidate, ...]
) -> ScoredCandidate | None:
    """Returns the first candidate that may not hold beside the fact, whichever was said later."""
    for candidate in candidates:
        when = candidate.occurred_at
        is_later = when is not None and when > occurred_at
        new, known, at = fact.content, candidate.content, when
        if is_later:
            new, known, at = known, new, occurred_at
        others = _contents(candidates, candidate)
        if opposes(new, known, None if at is None else at.date()) and not is_ambiguous(new, others):
            return candidate
    return None


def _ending(
    occurred_at: datetime,
    fact: Fact,
    candidates: tuple[ScoredCandidate, ...],
    near: float,
    later: Mapping[str, str],
) -> ScoredCandidate | None:
    """Returns the candidate, said later, that ends what the fact says: one that holds still, if
    there is one, else the first of those that have ended themselves."""
    found = [
        candidate
        for candidate in candidates
        if candidate.memory_id in later
        and _is_near(fact, candidate, near)
        and contradicts(later[candidate.memory_id], fact.content, occurred_at.date())
        and not is_ambiguous(candidate.content, _contents(candidates, candidate))
    ]
    return next((each for each in found if each.valid_until is None), next(iter(found), None))


def _is_near(fact: Fact, candidate: ScoredCandidate, near: float) -> bool:
    if candidate.cosine is not None and candidate.cosine >= near:
        return True
    return _meet(fact.content, candidate.content)


def _meet(one: str, other: str) -> bool:
    """Whether two statements are compared however far apart they are in meaning."""
    return are_of_one_slot(one, other) or opposes(one, other)


def _contents(candidates: tuple[ScoredCandidate, ...], without: ScoredCandidate) -> Iterable[str]:
    return (each.content for each in candidates if each is not without)


def of_remembered_text(
    action: Action, target_id: str | None, reason: str, text_id: str
) -> tuple[Action, str | None, str]:
    """Returns action, target and reason for a fact of the remembered text `text_id`.

    The text is the memory of all its facts: a new fact makes no memory of its own, and one that
    changes another memory removes it, since the text takes its place."""
    if action == "ADD":
        return "NONE", text_id, SAID_BY_ITS_SOURCE
    return "DELETE" if action == "UPDATE" else action, target_id, reason


def proposed(
    fact: Fact,
    action: Action,
    candidates: tuple[ScoredCandidate, ...],
    reason: str,
    target: ScoredCandidate | None = None,
    risk: bool = False,
) -> Proposal:
    return Proposal(
        item_id=fact.item_id,
        memory_id=fact_memory_id(fact.item_id),
        fact=fact,
        action=action,
        target_id=None if target is None else target.memory_id,
        target_version=None if target is None else target.version,
        confidence=fact.confidence,
        reason=reason,
        candidates=candidates,
        contradiction_risk=risk,
        review_needed=risk,
    )
