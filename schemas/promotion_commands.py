"""Commands that bring a branch's facts into the live memory, and take them out again.

What is to be changed in one scope may be more than a record holds: it is sent in parts, which are
kept until the last of them carries all out at once.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from palimpsest.schemas.envelope import Frozen, UtcTime
from palimpsest.schemas.triples import Share, Triple

Id = Annotated[str, Field(min_length=1, max_length=256)]
KeptWhy = Literal["curated", "suppressed", "erased", "other-sources", "newer", "held-back"]
"""Why something stays as it is: a person had a hand in it; it says what a person forgot, or may say
what was erased; some of what it was drawn from was not extracted from anew; the live memory knows
it from a later turn than the branch; or the branch drew it, too, and has not carried it out."""


class PromotedFact(Frozen):
    """A fact as the branch drew it, with what was decided about it there."""

    item_id: Id
    turn_memory_id: Id
    content: str
    type: str
    confidence: Share
    importance: Share | None = None
    temporal_kind: str = "persistent"
    valid_until: UtcTime | None = None
    categories: tuple[str, ...] = ()
    model: str
    prompt_version: str
    occurred_at: UtcTime
    event: Literal["created", "modified", "none", "deduped"]
    action: str = "ADD"
    decision_reason: str = ""
    decision_confidence: Share = 1.0
    decider: str | None = None


class PromotedMemory(Frozen):
    """A memory as the branch has it. `sources` are the memories that it was drawn from, `facts`
    those by which it came to say what it says."""

    memory_id: Id
    content: str = Field(min_length=1)
    type: str
    confidence: Share
    importance: Share
    categories: tuple[str, ...] = ()
    extraction_model: str | None = None
    temporal_kind: str = "persistent"
    valid_from: UtcTime | None = None
    valid_until: UtcTime | None = None
    occurred_at: UtcTime
    first_occurred_at: UtcTime | None = None
    project: str | None = None
    session_id: str = ""
    source_id: str | None = None
    sources: tuple[str, ...] = ()
    facts: tuple[PromotedFact, ...] = ()
    triples: tuple[Triple, ...] = ()


class GainChange(Frozen):
    """Add a memory of the branch."""

    change: Literal["gain"] = "gain"
    memory: PromotedMemory


class ReplaceChange(Frozen):
    """Let a live memory, at this version, say what its counterpart in the branch says."""

    change: Literal["replace"] = "replace"
    memory_id: Id
    if_version: int
    memory: PromotedMemory


class LoseChange(Frozen):
    """Forget a live memory, at this version, that has no counterpart in the branch."""

    change: Literal["lose"] = "lose"
    memory_id: Id
    if_version: int


class KeepChange(Frozen):
    """Change nothing: for the account of what became of each. `counterpart` is what the branch, or
    for what is suppressed the live memory, has in its place."""

    change: Literal["keep"] = "keep"
    memory_id: Id
    why: KeptWhy
    counterpart: str | None = None


PromotionChange = Annotated[
    GainChange | ReplaceChange | LoseChange | KeepChange, Field(discriminator="change")
]


class PromoteCommand(Frozen):
    """Bring what a branch has other than the live memory into this scope, a person's alone.

    `part` (from 0) of `parts` with the same `plan_id`; the last part carries out all. `after` is
    the promotion that was the scope's newest when branch and live memory were compared.
    """

    command: Literal["promote"] = "promote"
    promotion_id: Id
    branch: str = Field(min_length=1, max_length=64)
    plan_id: Id
    part: int = Field(default=0, ge=0)
    parts: int = Field(default=1, ge=1, le=100_000)
    after: str | None = None
    reason: str = ""
    changes: tuple[PromotionChange, ...] = ()


class RollbackPromotionCommand(Frozen):
    """Undo a promotion in this scope, a person's alone: what it added goes, what it replaced or
    forgot comes back. What was changed since stays as it is now."""

    command: Literal["rollback-promotion"] = "rollback-promotion"
    promotion_id: Id
    reason: str = ""
