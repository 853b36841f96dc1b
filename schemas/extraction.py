"""What a model drew from a turn, or from a session as a whole: facts with their source."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from palimpsest.schemas.envelope import Frozen, Share, Triple, UtcTime
from palimpsest.schemas.rows.enumerations import FactType, TemporalKind

CONSOLIDATION: Final = "consolidate-"
"""What the version of a prompt about a session as a whole begins with."""


class Fact(Frozen):
    """One statement that a model drew from a turn. `item_id` identifies it in every balance.
    `drawn_from`: the other turns that it rests on (their memories), where it was drawn from a
    session as a whole. `answers`: the turn without which its own says nothing of it, the question
    to which that is the answer."""

    item_id: str
    content: str
    type: FactType = "fact"
    confidence: Share
    importance: Share | None = None
    temporal_kind: TemporalKind = "persistent"
    valid_until: UtcTime | None = None
    categories: tuple[str, ...] = ()
    drawn_from: tuple[str, ...] | None = None
    answers: str | None = None

    def sources(self, turn: TurnReference) -> tuple[str, ...]:
        """Returns the memories that it rests on, that of its extraction's `turn` first."""
        question = () if self.answers is None else (self.answers,)
        return (turn.memory_id, *(self.drawn_from or ()), *question)


class TurnReference(Frozen):
    """Where a fact came from: enough to link, to attribute and to date it. `content_hash` is that
    of a remembered text, which may be changed before its facts are written; a turn has none."""

    turn_id: str
    memory_id: str
    session_id: str = ""
    speaker: str = ""
    source_type: str = "conversation"
    source_id: str | None = None
    project: str | None = None
    explicit_intent: bool = False
    content_hash: str | None = None

    @property
    def is_remembered(self) -> bool:
        """Whether the source is a remembered text, which is a memory itself."""
        return self.content_hash is not None


class ModelCall(Frozen):
    """What one model call was and cost. Latency in milliseconds; tokens None when not told; cost in
    the currency of the prices that were set, None without them."""

    provider: str
    model: str
    prompt_version: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_ms: float = 0.0
    attempts: int = 1
    cost: float | None = None


class FactsExtracted(Frozen):
    """Facts and triples of one turn, with warnings. `round` counts reconsiderations (0 first)."""

    turn: TurnReference
    facts: tuple[Fact, ...] = ()
    triples: tuple[Triple, ...] = ()
    warnings: tuple[str, ...] = ()
    call: ModelCall
    round: int = Field(default=0, ge=0)

    @property
    def is_of_session(self) -> bool:
        """Whether it was drawn from a session as a whole, and is not the extraction of its turn."""
        return self.call.prompt_version.startswith(CONSOLIDATION)
