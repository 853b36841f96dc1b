"""Who decides what a fact means for what is known, without asking a model: bands and rules.

decide asks them, and so does who compares other deciders with the one that acts.
"""

from __future__ import annotations

from datetime import datetime

from palimpsest.schemas.identity import fact_memory_id
from palimpsest.schemas.messages import Action, Fact, Proposal, ScoredCandidate
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.redaction import is_mark
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.text.contradiction import ends, told
from palimpsest.streams.text.sameness import same_statement

ITS_OWN_SOURCE = "a fact changes no memory that it was drawn from: it is added instead"


def known_by_bands(
    fact: Fact, candidates: tuple[ScoredCandidate, ...], settings: StageSettings
) -> Proposal | None:
    """What needs no model: nothing similar, a duplicate, or something clearly distinct."""
    if not candidates or is_mark(fact.content):
        return proposed(fact, "ADD", (), "no similar memory")
    digest = content_hash(storage_content(fact.content))
    for candidate in candidates:
        if content_hash(candidate.content) == digest:
            return proposed(fact, "NONE", candidates, "duplicate_exact", candidate)
    for candidate in sorted(candidates, key=lambda c: (-(c.cosine or 0.0), c.memory_id)):
        if (candidate.cosine or 0.0) < settings.exact:
            break
        if same_statement(fact.content, candidate.content):
            return proposed(fact, "NONE", candidates, "duplicate_exact", candidate)
    cosine = max(candidate.cosine or 0.0 for candidate in candidates)
    by_keyword = any((c.keyword or 0.0) >= settings.decision.min_score for c in candidates)
    if cosine < settings.near and not by_keyword:
        return proposed(fact, "ADD", candidates, "distinct")
    return None


def decided_by_rules(
    occurred_at: datetime,
    fact: Fact,
    candidates: tuple[ScoredCandidate, ...],
    near: float,
    source_id: str,
) -> Proposal:
    """Without a model: a contradicted memory is proposed to be updated, all else is new.

    The memory must be near in meaning, too: without a cosine nothing is known of that, and
    nothing is proposed but ADD. And it must not be told later than the fact, as when an old
    conversation is read in, and not be what the fact was drawn from. Candidates are looked at in
    their order, best first.
    """

    def may_be_ended(candidate: ScoredCandidate) -> bool:
        is_near = candidate.cosine is not None and candidate.cosine >= near
        when = candidate.occurred_at
        is_older = when is None or when <= occurred_at
        return is_near and is_older and candidate.memory_id != source_id

    known = list(filter(may_be_ended, candidates))
    news = told(fact.content) if known else ()
    for candidate in known:
        if ends(news, candidate.content):
            return proposed(
                fact, "UPDATE", candidates, "contradicts a known memory", candidate, risk=True
            )
    return proposed(fact, "ADD", candidates, "similar, yet not the same")


def beside_its_source(proposal: Proposal) -> Proposal:
    """A new memory instead of a change of the one that the fact was drawn from: a remembered text
    says more than one of its facts, and it is a person's."""
    return proposal.model_copy(
        update={
            "action": "ADD",
            "target_id": None,
            "target_version": None,
            "contradiction_risk": False,
            "review_needed": False,
            "warnings": (*proposal.warnings, ITS_OWN_SOURCE),
        }
    )


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
