"""What a fact means for existing memories, by bands and rules. Also used to compare shadow deciders
with the active one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from palimpsest.schemas.erasure.quotations import is_mark
from palimpsest.schemas.extraction import Fact
from palimpsest.schemas.identity import fact_memory_id
from palimpsest.schemas.messages import Proposal, ScoredCandidate
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.rows.enumerations import Action
from palimpsest.streams.claims.attributes import is_other_attribute
from palimpsest.streams.claims.conflict import (
    are_of_one_slot,
    contradicts,
    is_ambiguous,
)
from palimpsest.streams.claims.contradiction import by_their_names, same_fact
from palimpsest.streams.claims.grammar import plainly_named
from palimpsest.streams.claims.polarity import opposes, sides
from palimpsest.streams.claims.source import as_stated
from palimpsest.streams.claims.succession import may_succeed
from palimpsest.streams.decide.proposal_policy import MAY_EXCLUDE, SAID_BEFORE, SAID_BY_ITS_SOURCE
from palimpsest.streams.memory_rows import CLOCKS_DIFFER
from palimpsest.streams.settings import StageSettings


class Told(NamedTuple):
    """A statement of a candidate, present or former, and when it was made. `stated`: as its source
    has it, empty where that says more or less."""

    at: datetime
    text: str
    memory_id: str
    stated: str


def known_by_bands(
    fact: Fact,
    candidates: tuple[ScoredCandidate, ...],
    settings: StageSettings,
    speaker: str = "",
) -> Proposal | None:
    """Decides what needs no model: nothing similar, a duplicate, or something clearly distinct. The
    facts of a turn name its `speaker`."""
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
    plain = plainly_named(speaker)
    in_slot = any(may_meet(plain(fact.content), plain(c.content)) for c in candidates)
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
    told: Sequence[Told] = (),
    speaker: str = "",
) -> Proposal:
    """Decides without a model: proposes to update a contradicted memory, and to add anything else.

    The memory must also be about the same holder in the same slot of one value, or denied in the
    same words, or near in meaning, which is unknown without a cosine. And it must not be dated
    later than the fact, as when an old conversation is imported; a memory dated long after `now`
    has a wrong date, and may be ended. Candidates are examined in order, best first. If the text of
    the `source` is known, a fact ends nothing unless the source states it and no more.

    `later` has the candidates said after the fact, by id, as their sources state them, `told` all
    that these have said. Where one contradicts the fact, an UPDATE of it is proposed all the same,
    which stores the fact as ended by the first of what was told.

    What may contradict the fact is proposed to a person. The facts of a turn name its
    `speaker`."""
    plain = plainly_named(speaker)
    found = _decided(
        occurred_at,
        fact.model_copy(update={"content": plain(fact.content)}),
        tuple(c.model_copy(update={"content": plain(c.content)}) for c in candidates),
        near,
        source,
        now,
        {memory_id: plain(text) for memory_id, text in (later or {}).items()},
        [each._replace(text=plain(each.text), stated=plain(each.stated)) for each in told],
        # Who speaks of themselves is known, whoever else has the name.
        is_own=speaker != "" and fact.content.startswith(f"{speaker} "),
    )
    return found.model_copy(update={"fact": fact, "candidates": candidates})


def _decided(
    occurred_at: datetime,
    fact: Fact,
    candidates: tuple[ScoredCandidate, ...],
    near: float,
    source: str | None,
    now: datetime | None,
    later: Mapping[str, str],
    told: Sequence[Told],
    is_own: bool,
) -> Proposal:
    """Returns the same, of statements whose names can be read; `is_own`: the fact is about who
    stated it."""
    stated = fact.content if source is None else as_stated(source, fact.content)
    excluded = _excluded(occurred_at, fact, stated, candidates, near, now)
    past = _ending(occurred_at, fact, candidates, near, later, told)
    if past is not None:
        found = proposed(fact, "UPDATE", candidates, SAID_BEFORE, past)
        today = occurred_at.date()
        against = [each.at for each in told if contradicts(each.text, fact.content, today)]
        until = min((at for at in against if at > occurred_at), default=None)
        # What the memory that ends the fact said before it ends with the fact.
        before = any(
            each.memory_id == past.memory_id
            and each.at < occurred_at
            and stated is not None
            and contradicts(stated, each.text, each.at.date())
            for each in told
        )
        ends = _ids([*excluded, past] if before else excluded)
        return found.model_copy(update={"until": until, "ends": ends})
    target = next((each for each in excluded if each.valid_until is None), None)
    if target is not None:
        reason = "contradicts a known memory"
        found = proposed(fact, "UPDATE", candidates, reason, target, risk=True)
        others = _ids(each for each in excluded if each is not target)
        return found.model_copy(update={"ends": others})
    said = stated or fact.content
    # What has ended already surely ended by then: nobody need be asked about it.
    left = tuple(each for each in candidates if each not in excluded)
    opposed = _opposed(occurred_at, fact, said, left, near, later, is_own)
    if opposed is not None:
        return proposed(fact, "UPDATE", candidates, MAY_EXCLUDE, opposed, risk=True)
    found = proposed(fact, "ADD", candidates, "similar, yet not the same")
    return found.model_copy(update={"ends": _ids(excluded)})


def _excluded(
    occurred_at: datetime,
    fact: Fact,
    stated: str | None,
    candidates: tuple[ScoredCandidate, ...],
    near: float,
    now: datetime | None,
) -> list[ScoredCandidate]:
    """Returns the candidates, in order, that were said before the fact and cannot hold beside it as
    its source has `stated` it; none where one of them may be about a namesake."""
    found: list[ScoredCandidate] = []
    latest = None if now is None else max(now, occurred_at)
    for candidate in candidates:
        when = candidate.occurred_at
        if when is not None and latest is not None and when - latest > CLOCKS_DIFFER:
            when = None
        is_older = when is None or when <= occurred_at
        if stated is None or not is_older or not _is_near(fact, candidate, near):
            continue
        if contradicts(stated, candidate.content, None if when is None else when.date()):
            if is_ambiguous(fact.content, _contents(candidates, candidate)):
                return []
            found.append(candidate)
    if not found:
        return found
    # Who has lived somewhere "for years" lives there: it ends with that.
    ended = {_held(each) for each in found} - {frozenset()}
    same = (each for each in candidates if each not in found and _held(each) in ended)
    return [*found, *(each for each in same if (each.occurred_at or occurred_at) <= occurred_at)]


def _held(candidate: ScoredCandidate) -> frozenset[tuple[str, str, frozenset[str]]]:
    """What a candidate says holds, without since when or for how long."""
    return frozenset(
        (side.holder, side.matter, side.topics) for side in sides(candidate.content) if side.holds
    )


def _ids(candidates: Iterable[ScoredCandidate]) -> tuple[str, ...] | None:
    return tuple(each.memory_id for each in candidates) or None


def _opposed(
    occurred_at: datetime,
    fact: Fact,
    stated: str,
    candidates: tuple[ScoredCandidate, ...],
    near: float,
    later: Mapping[str, str],
    is_own: bool,
) -> ScoredCandidate | None:
    """Returns the first candidate that may not hold beside the fact as it was `stated`, whichever
    was said later; what was said later counts as its sources state it, where they do."""
    for candidate in candidates:
        when = candidate.occurred_at
        is_later = when is not None and when > occurred_at
        new, known, at = stated, candidate.content, when
        if is_later:
            new, known, at = later.get(candidate.memory_id, known), new, occurred_at
        others = _contents(candidates, candidate)
        on = None if at is None else at.date()
        # A contradiction that came so far is not all that the source of the fact says.
        is_against = opposes(new, known, on) or (
            _is_near(fact, candidate, near) and contradicts(new, known, on)
        )
        if not is_against:
            named = by_their_names(new, known)
            is_against = named != (new, known) and (opposes(*named, on) or contradicts(*named, on))
        if is_against and (is_own or not is_ambiguous(new, others)):
            return candidate
    return None


def _ending(
    occurred_at: datetime,
    fact: Fact,
    candidates: tuple[ScoredCandidate, ...],
    near: float,
    later: Mapping[str, str],
    told: Sequence[Told],
) -> ScoredCandidate | None:
    """Returns the candidate that ended what the fact says, by what it says or by what it said
    between the fact and that: one that holds still, if there is one, else the first of those that
    have ended themselves."""
    said = {memory_id: [text] for memory_id, text in later.items()}
    for each in told:
        if each.at > occurred_at:
            said.setdefault(each.memory_id, []).append(each.stated)
    found = [
        candidate
        for candidate in candidates
        if _is_near(fact, candidate, near)
        and any(
            contradicts(text, fact.content, occurred_at.date())
            for text in said.get(candidate.memory_id, ())
        )
        and not is_ambiguous(candidate.content, _contents(candidates, candidate))
    ]
    return next((each for each in found if each.valid_until is None), next(iter(found), None))


def _is_near(fact: Fact, candidate: ScoredCandidate, near: float) -> bool:
    if candidate.cosine is not None and candidate.cosine >= near:
        return True
    return may_meet(fact.content, candidate.content)


def may_meet(one: str, other: str) -> bool:
    """Whether two statements are compared however far apart they are in meaning."""
    # "Now" is not stored with a statement: it may be that either was told with it. Either may also
    # be the older one, which is what ended.
    return any(
        are_of_one_slot(a, b)
        or is_other_attribute(a, b)
        or opposes(a, b)
        or opposes(b, a)
        or may_succeed(a, b)
        for a, b in dict.fromkeys(((one, other), by_their_names(one, other)))
    )


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
