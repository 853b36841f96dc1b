"""Traces with OpenTelemetry: who publishes, the stages, and calls to models.

Turns and commands are traced up to a number per second, so that a bulk load costs no more than a
conversation. Spans carry ids, topics and counts, and no text or name of a memory's."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

from palimpsest.ops.distribution import program_version
from palimpsest.schemas.topics import Topic
from palimpsest.streams.logs.base import Record
from palimpsest.streams.runtime import tracing
from palimpsest.streams.stage import Message

FIRST_STAGE = "normalize"
"""Begins the trace of a record that came without one, from a producer that does not trace."""


class RateLimit:
    """Permits `per_second` on average, and as many (at least one) at once."""

    def __init__(self, per_second: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_second
        self._monotonic = monotonic
        self._left = max(1.0, per_second)
        self._at = monotonic()
        self._lock = threading.Lock()

    def __call__(self) -> bool:
        with self._lock:
            now = self._monotonic()
            self._left = min(max(1.0, self._rate), self._left + (now - self._at) * self._rate)
            self._at = now
            if self._left < 1.0:
                return False
            self._left -= 1.0
            return True


class OpenTelemetrySpan:
    """A `streams.runtime.tracing.Span`."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span

    @property
    def traceparent(self) -> bytes:
        return _written(self._span.get_span_context())

    @property
    def context(self) -> SpanContext:
        return self._span.get_span_context()

    def call(self, provider: str, model: str, others: Sequence[tracing.Span]) -> OpenTelemetrySpan:
        kind = "embeddings" if provider == "embedding" else "chat"
        span = self._tracer.start_span(
            f"{kind} {model}",
            trace.set_span_in_context(self._span),
            SpanKind.CLIENT,
            {
                "gen_ai.operation.name": kind,
                "gen_ai.provider.name": provider.removeprefix("llm:"),
                "gen_ai.request.model": model,
            },
            [trace.Link(other.context) for other in others if isinstance(other, OpenTelemetrySpan)],
        )
        return OpenTelemetrySpan(self._tracer, span)

    def note(self, name: str, value: int) -> None:
        self._span.set_attribute(name, value)

    def end(self, error: str | None = None) -> None:
        if not self._span.is_recording():
            return
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


class OpenTelemetryTracer:
    """A `streams.runtime.tracing.Tracer`. `permits` decides what is traced, in addition to the
    provider's sampler."""

    def __init__(self, provider: trace.TracerProvider, permits: Callable[[], bool]) -> None:
        self._tracer = provider.get_tracer("palimpsest", program_version())
        self._permits = permits

    def published(self, topic: Topic, message: Message) -> bytes:
        parent = trace.get_current_span().get_span_context()
        asked = _read(tracing.caller.get()) or (parent if parent.is_valid else None)
        is_refused = asked is not None and not asked.trace_flags.sampled
        if not is_refused and self._permits():
            attributes = _of_message("create", topic.name, message)
            span = self._tracer.start_span(
                f"publish {topic.name}", _context(asked), SpanKind.PRODUCER, attributes
            )
            span.end()
            if span.get_span_context().trace_flags.sampled:
                return _written(span.get_span_context())
        if asked is None:
            return tracing.untraced(message.correlation_id, sampled=False)
        return _written(asked)[:-2] + b"00"

    def now(self) -> int:
        return time.time_ns()

    def processing(
        self, stage: str, record: Record, message: Message | None, began: int
    ) -> OpenTelemetrySpan | None:
        if message is None:
            return None
        header = tracing.valid(record.headers.get(tracing.HEADER))
        if header is not None and not _flags(header).sampled:
            return None
        if header is None or (header[:35] == tracing.untraced(message.correlation_id)[:35]):
            if stage != FIRST_STAGE or not self._permits():
                return None
            header = None
        span = self._tracer.start_span(
            f"process {stage}",
            _context(_read(header)),
            SpanKind.CONSUMER,
            {
                **_of_message("process", record.topic, message),
                "messaging.destination.partition.id": str(record.partition),
                "messaging.kafka.offset": record.offset,
                "palimpsest.stage": stage,
            },
            start_time=began,
        )
        return OpenTelemetrySpan(self._tracer, span) if span.is_recording() else None


def _of_message(operation: str, topic: str, message: Message) -> dict[str, AttributeValue]:
    return {
        "messaging.system": "palimpsest",
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
        "messaging.message.id": message.id,
        "messaging.message.conversation_id": message.correlation_id,
    }


def _context(parent: SpanContext | None) -> Context:
    if parent is None:
        return Context()
    return trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())


def _written(context: SpanContext) -> bytes:
    flags = int(context.trace_flags)
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}".encode()


def _read(header: bytes | None) -> SpanContext | None:
    """Of a valid header, or None."""
    if header is None:
        return None
    return SpanContext(int(header[3:35], 16), int(header[36:52], 16), True, _flags(header))


def _flags(header: bytes) -> TraceFlags:
    return TraceFlags(int(header[53:], 16))


def tracer(per_second: float) -> OpenTelemetryTracer:
    """Returns a tracer for the program's own provider, or for the one that the program which uses
    the library has set up."""
    permits = (lambda: True) if "OTEL_TRACES_SAMPLER" in os.environ else RateLimit(per_second)
    known = trace.get_tracer_provider()
    return OpenTelemetryTracer(known if isinstance(known, TracerProvider) else _own(), permits)


def _own() -> TracerProvider:
    """The variables OTEL_* set its resource, sampler, batches and exporter. It sends the rest when
    the process ends."""
    named = {"service.version": program_version()}
    if OTELResourceDetector().detect().attributes.get("service.name") is None:
        named["service.name"] = "palimpsest"
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
