"""Sets up what the section `telemetry` asks for; nothing more is imported otherwise."""

from __future__ import annotations

from pydantic import BaseModel, SecretStr

from palimpsest.ops.distribution import install_hint
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.telemetry import logs
from palimpsest.streams.runtime import tracing


def set_up(settings: Settings) -> None:
    """Begins to trace if the settings say so; a second call has no effect. Raises SetupError if the
    extra is missing."""
    if not settings.telemetry.traces or tracing.installed() is not None:
        return
    try:
        from palimpsest.ops.telemetry.traces import tracer
    except ModuleNotFoundError as error:
        from palimpsest.ops.parts import SetupError

        raise SetupError(
            f"telemetry.traces needs OpenTelemetry ({error.name}): {install_hint('telemetry')}"
        ) from None
    tracing.install(tracer(settings.telemetry.traces_per_second))


def set_up_program(settings: Settings) -> None:
    """The same for the program, which has a log of its own, too."""
    logs.configure(settings.telemetry.log_format == "json", _secrets(settings), _context)
    set_up(settings)


def _secrets(settings: Settings) -> list[str]:
    sections = [getattr(settings, name) for name in Settings.model_fields]
    values = [value for each in sections if isinstance(each, BaseModel) for _, value in each]
    return [value.get_secret_value() for value in values if isinstance(value, SecretStr)]


def _context() -> dict[str, object]:
    """What the running code works for, for a line of the log."""
    works = tracing.current.get()
    found: dict[str, object] = {}
    if len(works) == 1 and works[0].message is not None:
        found["correlation_id"] = works[0].message.correlation_id
        found["message_id"] = works[0].message.id
    spans = [work.span.traceparent for work in works if work.span is not None]
    header = spans[0] if spans else tracing.caller.get()
    if header is not None:
        found["trace_id"] = tracing.trace_id(header)
    return found
