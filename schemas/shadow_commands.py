"""The command that keeps what further deciders proposed: they act on nothing."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from palimpsest.schemas.envelope import Frozen

Tokens = Annotated[int, Field(ge=0)]


class ShadowProposal(Frozen):
    """What a further decider made of a fact that the live one decided in this `round`: an action,
    or (in `error`) why there is none. `latency_ms` in milliseconds."""

    item_id: str
    round: int = Field(default=0, ge=0)
    turn_memory_id: str
    decider: str = Field(min_length=1, max_length=512)
    action: Literal["ADD", "UPDATE", "DELETE", "NONE"] | None = None
    target_id: str | None = None
    confidence: float = Field(default=0.0, ge=0.0, le=1.0)
    reason: str = ""
    error: str | None = None
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    latency_ms: float | None = None
    cost: float | None = None


class RecordShadowProposalsCommand(Frozen):
    """Keep what further deciders proposed: the worker's alone."""

    command: Literal["record-shadow-proposals"] = "record-shadow-proposals"
    proposals: tuple[ShadowProposal, ...] = Field(min_length=1, max_length=500)
