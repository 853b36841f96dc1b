"""extract: a model draws facts and triples from one turn, or one remembered text."""

from __future__ import annotations

from dataclasses import asdict, replace

from palimpsest.schemas.echoes import spoken
from palimpsest.schemas.envelope import local_time
from palimpsest.schemas.erasure.quotations import is_mark
from palimpsest.schemas.extraction import Fact, FactsExtracted, ModelCall, TurnReference
from palimpsest.schemas.identity import fact_item_id, item_id_of, turn_memory_id
from palimpsest.schemas.messages import NormalizedTurn
from palimpsest.schemas.topics import FACTS_EXTRACTED, TURNS_NORMALIZED
from palimpsest.streams.claims.turn import rests_on
from palimpsest.streams.models.base import Reply
from palimpsest.streams.prompting.prompts import (
    EXTRACTION_PROMPT_VERSION,
    extraction_prompt,
)
from palimpsest.streams.prompting.replies import (
    ExtractionDraft,
    FactDraft,
    MalformedReply,
    read_extraction,
)
from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Context, Emit, Failure, Generate, Message, Process, Stage, Step
from palimpsest.streams.text.counts import counted


def extract_stage(settings: StageSettings) -> Stage:
    """The stage; it needs no store, so it scales out."""

    policy = Policy.of(settings.pii)

    def process(message: Message, context: Context) -> Process:
        turn = message.body
        assert isinstance(turn, NormalizedTurn)
        if is_mark(turn.content):  # erased since it was published
            return Step()
        if not spoken(turn.published_content or turn.content):
            return Step()
        offset = turn.utc_offset_minutes or 0
        said_at = local_time(message.occurred_at, offset)
        prompt = extraction_prompt(
            turn,
            message.occurred_at,
            turn.context or (),
            settings.extraction.max_input_characters,
            settings.extraction.max_output_tokens,
            utc_offset_minutes=offset,
        )
        why = ""
        raw = ""
        attempts = settings.worker.max_attempts
        for attempt in range(1, attempts + 1):
            reply = yield from Generate(prompt, attempt=attempt, fresh=bool(message.redrive))
            assert isinstance(reply, Reply)
            raw = reply.text
            try:
                draft = read_extraction(raw, said_at)
            except MalformedReply as error:
                why = str(error)
                continue
            body = _extracted(message, turn, safe(draft, policy), reply, attempt)
            return Step(emits=(Emit(FACTS_EXTRACTED, body, "facts"),))
        return Step(
            dead=Failure(
                f"the model's reply could not be read in {attempts} attempts: {why}",
                "malformed-output",
                raw_output=policy.text(raw),
                attempts=attempts,
            )
        )

    return Stage(name="extract", reads=(TURNS_NORMALIZED,), process=process, stateful=False)


def safe(draft: ExtractionDraft, policy: Policy) -> ExtractionDraft:
    """What a model drew, as safe as what producers send: it may put together what the turn has in
    parts, or make a secret up. A relation with a secret is none."""
    triples = tuple(
        triple
        for triple in draft.triples
        for said in [(triple.source, triple.relationship, triple.target)]
        if tuple(map(policy.text, said)) == said
    )
    left_out = len(draft.triples) - len(triples)
    told = (f"{counted(left_out, 'relations with a secret')} left out",) if left_out else ()
    return replace(
        draft,
        facts=tuple(
            replace(
                fact,
                content=policy.text(fact.content),
                categories=tuple(map(policy.text, fact.categories)),
            )
            for fact in draft.facts
        ),
        triples=triples,
        warnings=(*map(policy.text, draft.warnings), *told),
    )


def _extracted(
    message: Message, turn: NormalizedTurn, draft: ExtractionDraft, reply: Reply, attempt: int
) -> FactsExtracted:
    def item_id(index: int) -> str:
        item = item_id_of(message.scope, turn)
        return fact_item_id(item, reply.model, EXTRACTION_PROMPT_VERSION, index)

    return FactsExtracted(
        turn=TurnReference(
            turn_id=turn.turn_id,
            memory_id=turn.memory_id or turn_memory_id(message.scope, turn.turn_id),
            session_id=turn.session_id,
            speaker=turn.speaker,
            source_type=turn.source_type,
            source_id=turn.source_id,
            project=turn.project,
            explicit_intent=turn.explicit_long_term_memory_intent,
            content_hash=None if turn.memory_id is None else turn.content_hash,
        ),
        facts=tuple(
            fact_of(fact, item_id(index)).model_copy(update={"answers": _question(turn, fact)})
            for index, fact in enumerate(draft.facts)
        ),
        triples=draft.triples,
        warnings=draft.warnings,
        call=model_call(reply, EXTRACTION_PROMPT_VERSION, attempt),
    )


def _question(turn: NormalizedTurn, fact: FactDraft) -> str | None:
    """Returns the memory of the turn right before, where the turn agrees to it and the fact says
    what only that one says."""
    before = turn.context[-1] if turn.context else None
    if before is None or not rests_on(fact.content, turn.content, before.content):
        return None
    return before.memory_id


def fact_of(draft: FactDraft, item_id: str, drawn_from: tuple[str, ...] = ()) -> Fact:
    """The fact of a draft."""
    stated = {name: given for name, given in asdict(draft).items() if name != "turns"}
    return Fact(item_id=item_id, drawn_from=drawn_from or None, **stated)


def model_call(reply: Reply, prompt_version: str, attempts: int) -> ModelCall:
    """What a reply was and cost."""
    return ModelCall(
        provider=reply.provider,
        model=reply.model,
        prompt_version=prompt_version,
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        latency_ms=round(reply.latency_ms, 3),
        attempts=attempts,
        cost=reply.cost,
    )
