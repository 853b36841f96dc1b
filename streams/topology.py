"""The whole pipeline on one page.

    conversation-turns ─┐
    memory-commands ────┴─> normalize ──> memory-writes ──> apply-writes
                                                              ├─> turns-normalized ─> extract
    facts-extracted <─────────────────────────────────────────┼───────────────────────┘
        └─> decide ──> memory-writes ──> apply-writes         │
                                            ├─> memory-changes ─┬─> graph-persist ─> graph-changes
                                            ├─> cache-invalidations   │
                                            └─> facts-extracted       │   (stale decisions)
    audit <── conversation-turns, memory-changes, graph-changes, dead-letters ──> memory-history

A turn is stored before it is extracted from: apply-writes knows the scope's flags, whether the turn
is new, and which turns before it may still be shown to a model. Any stage may write to
dead-letters. normalize and extract hold no store and scale out; the other four share the worker
that owns the shard.
"""

from __future__ import annotations

from dataclasses import dataclass

from streams.apply_writes import apply_writes_stage
from streams.audit import audit_stage
from streams.decide import decide_stage
from streams.extract import extract_stage
from streams.graph_persist import graph_persist_stage
from streams.normalize import normalize_stage
from streams.settings import ApplySettings, DecisionSettings, ExtractionSettings
from streams.stage import Stage

STAGE_NAMES = ("normalize", "extract", "decide", "apply-writes", "graph-persist", "audit")


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """What all the stages are told."""

    extraction: ExtractionSettings = ExtractionSettings()
    decision: DecisionSettings = DecisionSettings()
    applying: ApplySettings = ApplySettings()
    graph_writes: bool = True


def stages(settings: PipelineSettings) -> tuple[Stage, ...]:
    """The stages in the order of the flow."""
    flags = settings.applying.flags
    return (
        normalize_stage(),
        extract_stage(settings.extraction),
        decide_stage(settings.decision, flags),
        apply_writes_stage(settings.applying, settings.extraction),
        graph_persist_stage(settings.graph_writes),
        audit_stage(),
    )
