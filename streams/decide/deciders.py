"""Deciders without a model: what a fact means for existing memories, by bands and rules.

Used by decide, and by the comparison of shadow deciders with the active one."""

from __future__ import annotations

from datetime import datetime, timedelta

from palimpsest.schemas.enumerations import Action
from palimpsest.schemas.identity import fact_memory_id
from palimpsest.schemas.messages import Fact, Proposal, ScoredCandidate
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.redaction import is_mark
from palimpsest.streams.claims.conflict import contradicts, is_ambiguous
from palimpsest.streams.claims.source import as_stated
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.text.sameness import same_fact

SAID_BY_ITS_SOURCE = "said_by_its_source"
"""Reason for a fact that a remembered text already states."""
CLOCKS_DIFFER = timedelta(days=2)
"""How far ahead a time may lie, because of time zones and of producers' clocks."""


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
    if cosine < settings.near and not by_keyword:
        return proposed(fact, "ADD", candidates, "distinct")
    return None


def decided_by_rules(
    occurred_at: datetime,
    fact: Fact,
    candidates: tuple[ScoredCandidate, ...],
    near: float,
    source: str | None = None,
    now: datetime | None = None,
) -> Proposal:
    """Decides without a model: proposes to update a contradicted memory, and to add anything else.

    The memory must also be near in meaning: without a cosine that is unknown, and only ADD is
    proposed. And it must not be dated later than the fact, as when an old conversation is imported;
    a memory dated long after `now` has a wrong date, and may be ended. Candidates are examined in
    order, best first. If the text of the `source` is known, a fact ends nothing unless the source
    states it and no more."""

    def dated(candidate: ScoredCandidate) -> datetime | None:
        when = candidate.occurred_at
        latest = None if now is None else max(now, occurred_at) + CLOCKS_DIFFER
        is_wrong = when is not None and latest is not None and when > latest
        return None if is_wrong else when

    def may_be_ended(candidate: ScoredCandidate) -> bool:
        is_near = candidate.cosine is not None and candidate.cosine >= near
        when = dated(candidate)
        return is_near and (when is None or when <= occurred_at)

    known = list(filter(may_be_ended, candidates))
    stated = fact.content if source is None or not known else as_stated(source, fact.content)
    for candidate in known:
        if stated is None:
            break
        when = dated(candidate)
        if contradicts(stated, candidate.content, None if when is None else when.date()):
            others = (each.content for each in candidates if each is not candidate)
            if is_ambiguous(fact.content, others):
                break
            reason = "contradicts a known memory"
            return proposed(fact, "UPDATE", candidates, reason, candidate, risk=True)
    return proposed(fact, "ADD", candidates, "similar, yet not the same")


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
