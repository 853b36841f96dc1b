"""The settings that decide what a record comes to, as they were when it was written.

They lie on the record, so that carrying it out again follows them and not those of today. Only what
differs from the defaults is written: a default that changes takes a new version of the message,
whose upcast fills in the one of before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from pydantic import JsonValue

from palimpsest.schemas.messages import MemoryWrite
from palimpsest.schemas.section import Section
from palimpsest.streams.models.settings import defaults_for
from palimpsest.streams.settings import Flags, StageSettings
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


def recorded_settings(settings: StageSettings) -> Recorded:
    """Return what a record says of the settings by which it is executed."""
    found: Recorded = {"decision": {"near": settings.near}}
    for name, recorded in OUTCOME_SETTINGS.items():
        section: Section = getattr(settings, name)
        differing = section.model_dump(mode="json", include={*recorded}, exclude_defaults=True)
        if differing:
            found[name] = differing
    return found


def in_space(settings: StageSettings, space: str) -> StageSettings:
    """Return the settings with the cosines of the model of a vector space, as far as they are not
    set; those of the configured model for the space ""."""
    if not space:
        return settings
    known, own = defaults_for(space), settings.decision
    return _with_cosines(
        settings,
        known.exact if own.exact is None else own.exact,
        known.near if own.near is None else own.near,
    )


def _with_cosines(settings: StageSettings, exact: float, near: float) -> StageSettings:
    decision = settings.decision.model_copy(update={"exact": exact, "near": near})
    return settings.model_copy(update={"decision": decision})


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


def _applied(own: StageSettings, recorded: Recorded) -> StageSettings:
    near = recorded.get("decision", {}).get("near", own.near)
    assert isinstance(near, int | float)
    sections = {}
    for name, fields in OUTCOME_SETTINGS.items():
        section: Section = getattr(own, name)
        given = {key: value for key, value in recorded.get(name, {}).items() if key in fields}
        then = type(section).model_validate(given)
        sections[name] = section.model_copy(update={each: getattr(then, each) for each in fields})
    return _with_cosines(own.model_copy(update=sections), own.exact, float(near))
