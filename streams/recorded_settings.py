"""The settings that decide what a record comes to, as they were when it was written.

They lie on the record, so that carrying it out again follows them and not those of today. Only what
differs from the defaults is written: a default that changes takes a new version of the message,
whose upcast fills in the one of before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, TypeVar

from pydantic import JsonValue

from palimpsest.schemas.messages import MemoryWrite
from palimpsest.schemas.section import Section
from palimpsest.streams.settings import (
    DecisionSettings,
    ExtractionSettings,
    Flags,
    GraphSettings,
    IntentSettings,
    PiiSettings,
    PipelineSettings,
    SessionSettings,
    ShortTermSettings,
    StageSettings,
    WorkerSettings,
)
from palimpsest.streams.stage import Step

Recorded: TypeAlias = dict[str, dict[str, JsonValue]]
"""By section the settings that differ from the defaults, and the cosine `near`."""

OUTCOME_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "sessions": ("silence_minutes",),
    "short_term": ("conversation_hours", "summary_hours", "turns", "characters"),
    "extraction": ("roles", "context_turns"),
    "pipeline": (
        *Flags.model_fields,
        *("min_fact_confidence", "max_reconsiderations", "recovery_days"),
    ),
    "graph": ("enabled", "extraction_writes_enabled"),
}
"""What apply-writes and graph-persist go by."""

SectionT = TypeVar("SectionT", bound=Section)


@dataclass(frozen=True, slots=True)
class AppliedSettings:
    """Settings in which those that a record carries have taken the place of the program's."""

    intent: IntentSettings
    sessions: SessionSettings
    short_term: ShortTermSettings
    extraction: ExtractionSettings
    decision: DecisionSettings
    pipeline: PipelineSettings
    pii: PiiSettings
    graph: GraphSettings
    worker: WorkerSettings
    decider: Literal["rules", "model"]
    exact: float
    near: float


def recorded_settings(settings: StageSettings) -> Recorded:
    """Return what a record says of the settings by which it is executed."""
    found: Recorded = {"decision": {"near": settings.near}}
    for name, fields in OUTCOME_SETTINGS.items():
        section: Section = getattr(settings, name)
        differing = section.model_dump(mode="json", include={*fields}, exclude_defaults=True)
        if differing:
            found[name] = differing
    return found


def with_recorded(step: Step, recorded: Recorded | None) -> Step:
    """Let what a step writes to the write-ahead log carry the settings."""
    if recorded is None:
        return step
    emits = (
        replace(emit, body=emit.body.model_copy(update={"settings": recorded}))
        if isinstance(emit.body, MemoryWrite)
        else emit
        for emit in step.emits
    )
    return replace(step, emits=tuple(emits))


def settings_by_record(own: StageSettings) -> Callable[[MemoryWrite], StageSettings]:
    """Return what gives the settings of a record; `own` for one that carries none. Records after
    each other mostly carry the same."""
    last: tuple[Recorded | None, StageSettings] = (None, own)

    def of(write: MemoryWrite) -> StageSettings:
        nonlocal last
        if write.settings is None:
            return own
        if write.settings != last[0]:
            last = (write.settings, _applied(own, write.settings))
        return last[1]

    return of


def _applied(own: StageSettings, recorded: Recorded) -> AppliedSettings:
    near = recorded.get("decision", {}).get("near", own.near)
    assert isinstance(near, int | float)
    return AppliedSettings(
        intent=own.intent,
        sessions=_section(own.sessions, "sessions", recorded),
        short_term=_section(own.short_term, "short_term", recorded),
        extraction=_section(own.extraction, "extraction", recorded),
        decision=own.decision,
        pipeline=_section(own.pipeline, "pipeline", recorded),
        pii=own.pii,
        graph=_section(own.graph, "graph", recorded),
        worker=own.worker,
        decider=own.decider,
        exact=own.exact,
        near=float(near),
    )


def _section(own: SectionT, name: str, recorded: Recorded) -> SectionT:
    fields = OUTCOME_SETTINGS[name]
    given = {key: value for key, value in recorded.get(name, {}).items() if key in fields}
    then = type(own).model_validate(given)
    return own.model_copy(update={field: getattr(then, field) for field in fields})
