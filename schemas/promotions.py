"""What a promotion changes in the live memory, as the branch has it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from palimpsest.schemas.envelope import Frozen, Share, Triple, UtcTime

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
    utc_offset_minutes: int | None = None
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
