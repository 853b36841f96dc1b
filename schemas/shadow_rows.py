"""The rows of what further deciders propose. As `schemas.rows`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from palimpsest.schemas.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowProposalRow(Row):
    """What a further decider proposed for a fact, in one round; without an action there is an
    `error`."""

    TABLE: ClassVar[str] = "shadow_proposals"
    KEY: ClassVar[tuple[str, ...]] = ("item_id", "round", "decider")

    item_id: str
    round: int
    decider: str
    scope: str
    turn_memory_id: str
    action: str | None
    target_id: str | None
    confidence: float
    reason: str
    error: str | None
    input_tokens: int | None
    output_tokens: int | None
    latency_ms: float | None
    cost: float | None
    recorded_at: datetime
