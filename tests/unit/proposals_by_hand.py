"""Proposals carried out by hand, on a memory about tea."""

from __future__ import annotations

from palimpsest.schemas.messages import MemoryWrite, Proposal, ProposalsIntent
from palimpsest.schemas.rows.pipeline import OutcomeRow
from palimpsest.streams.apply.apply_writes import apply_writes_stage
from palimpsest.streams.settings import Flags
from tests.harness import FULL, pipeline_settings
from tests.unit.by_hand import (
    TURN,
    Driven,
    Store,
    candidate,
    context,
    drive,
    memory,
    proposal,
    write_message,
)

TEA = memory("tea", "Ana likes green tea", version=3)
UPDATE = proposal("Ana likes black tea", "UPDATE", target_id="tea", target_version=3)
DELETE = proposal("Ana is off tea", "DELETE", target_id="tea", target_version=3)
ADD = proposal("Ana likes black tea")
NONE = proposal("Ana likes green tea.", "NONE", target_id="tea", reason="duplicate_exact")
FORGOTTEN = memory(TURN.memory_id, "I like tea", type="episodic", is_deleted=True)
SAME = memory("same", "Ana likes black tea!")
NEAR = candidate(memory("near", "Ana likes Black Tea much"), 0.8)


def apply(intent: ProposalsIntent, store: Store | None = None, flags: Flags = FULL) -> Driven:
    stage = apply_writes_stage(pipeline_settings(flags))
    return drive(stage.process(write_message(MemoryWrite(write=intent)), context()), store)


def settled(driven: Driven) -> list[tuple[str, str]]:
    return [(row.item_id, row.event) for row in driven.rows(OutcomeRow)]


def weak(content: str) -> Proposal:
    return proposal(content, fact_confidence=0.69)
