"""The whole pipeline on one page.

    conversation-turns ─┐
    memory-commands ────┴─> normalize ──> memory-writes ──> apply-writes
                                                              ├─> turns-normalized ─> extract
    facts-extracted <─────────────────────────────────────────┼───────────────────────┘
        └─> decide ──> memory-writes ──> apply-writes         │
                                            ├─> memory-changes ─┬─> graph-persist ─> graph-changes
                                            ├─> cache-invalidations   │
                                            └─> facts-extracted       │   (stale decisions)
    audit <── conversation-turns, facts-extracted, memory-changes, graph-changes, dead-letters
      └─> memory-history

A turn is stored before it is extracted from: apply-writes knows the scope's flags, whether the turn
is new, and which turns before it may still be shown to a model. Any stage may write to
dead-letters. normalize and extract need no store and scale out; the other four share the worker
that owns the shard. decide only searches there: what it proposes, apply-writes stores.
"""

from __future__ import annotations

from palimpsest.streams.apply.apply_writes import apply_writes_stage
from palimpsest.streams.audit import audit_stage
from palimpsest.streams.decide.decide import decide_stage
from palimpsest.streams.extract import extract_stage
from palimpsest.streams.graph.graph_persist import graph_persist_stage
from palimpsest.streams.normalize import normalize_stage
from palimpsest.streams.recorded_settings import recorded_settings
from palimpsest.streams.sensitive.policy import KnownPrivate, nobody
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Stage

STAGE_NAMES = ("normalize", "extract", "decide", "apply-writes", "graph-persist", "audit")


def stages(settings: StageSettings, is_known_private: KnownPrivate = nobody) -> tuple[Stage, ...]:
    """The stages in the order of the flow. `is_known_private` as in `admission`
    and `apply_writes_stage`."""
    return (
        normalize_stage(
            settings.pii, settings.intent, is_known_private, recorded_settings(settings)
        ),
        extract_stage(settings),
        decide_stage(settings),
        apply_writes_stage(settings, is_known_private),
        graph_persist_stage(settings.graph.takes_from_turns),
        audit_stage(settings.pii),
    )
