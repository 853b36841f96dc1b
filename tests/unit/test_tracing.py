"""What is traced, in which trace, and what the header of a record says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import Record
from palimpsest.streams.models.base import PermanentModelError
from palimpsest.streams.runtime import tracing
from palimpsest.streams.runtime.output import published
from palimpsest.streams.runtime.tracing import untraced, valid
from palimpsest.streams.stage import Context, Generate, Message, Process, Step
from palimpsest.streams.store_port import Load
from tests.messages import BEGIN, turn
from tests.unit.memory_ports import MemoryLog, MemoryStore
from tests.unit.runner_parts import ECHO, PROMPT, Model, runner, stage

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from palimpsest.ops.telemetry.traces import OpenTelemetryTracer, RateLimit

CALLER = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@dataclass
class Traced:
    tracer: OpenTelemetryTracer
    exporter: InMemorySpanExporter

    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = tracer(lambda: True)
    tracing.install(made.tracer)
    yield made
    tracing.install(None)


def tracer(permits: Callable[[], bool]) -> Traced:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Traced(OpenTelemetryTracer(provider, permits), exporter)


def record(header: bytes | None) -> Record:
    made = published(CONVERSATION_TURNS, "m1", "ana", BEGIN, turn("hello"))
    headers = {} if header is None else {"traceparent": header}
    return Record(CONVERSATION_TURNS.name, 0, 0, b"ana", made.value, BEGIN, headers)


async def emitted(records: Sequence[Record], **fields: Any) -> bytes | None:
    """The header of the one record that a stage emits."""
    log = MemoryLog()
    await runner(stage(ECHO, stateful=False), log, **fields).process(records)
    [out] = log.sent()
    return out.headers.get("traceparent")


def test_without_a_tracer_a_header_leads_to_no_trace() -> None:
    out = published(CONVERSATION_TURNS, "m1", "ana", BEGIN, turn("hello"))
    assert out.headers["traceparent"] == untraced("m1") == valid(untraced("m1"))
    assert untraced("m1")[:36] != untraced("m2")[:36]


async def test_a_stage_that_does_not_trace_passes_the_context_on() -> None:
    assert await emitted([record(CALLER)]) == CALLER
    assert await emitted([record(None)]) == untraced("m1")
    assert await emitted([record(b"anything" * 1_000)]) == untraced("m1")


@given(st.binary(max_size=80))
def test_only_a_header_of_the_form_is_passed_on(header: bytes) -> None:
    found = valid(header)
    assert found is None or (len(found) == 55 and found[:3] == b"00-")


def test_ids_of_zeros_are_no_context() -> None:
    assert valid(b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01") is None
    assert valid(CALLER[:36] + b"0" * 16 + b"-01") is None


def test_a_publication_continues_the_trace_of_its_caller(traced: Traced) -> None:
    token = tracing.caller.set(CALLER)
    try:
        out = published(CONVERSATION_TURNS, "m1", "ana", BEGIN, turn("hello"))
    finally:
        tracing.caller.reset(token)
    [span] = traced.spans()
    assert span.parent is not None
    assert (span.name, f"{span.parent.span_id:016x}") == (
        "publish conversation-turns",
        "00f067aa0ba902b7",
    )
    header = out.headers["traceparent"]
    assert header[:35] == CALLER[:35]
    assert header[36:52] == f"{span.context.span_id:016x}".encode()


@pytest.mark.parametrize("caller", [None, CALLER, CALLER[:-2] + b"00"])
def test_what_is_not_traced_says_so_to_the_stages(caller: bytes | None) -> None:
    refusing = tracer(lambda: False)
    tracing.install(refusing.tracer)
    token = tracing.caller.set(caller)
    try:
        out = published(CONVERSATION_TURNS, "m1", "ana", BEGIN, turn("hello"))
    finally:
        tracing.caller.reset(token)
        tracing.install(None)
    header = out.headers["traceparent"]
    assert header == (untraced("m1") if caller is None else caller)[:-2] + b"00"
    permitting = tracer(lambda: True).tracer
    assert permitting.processing("normalize", record(header), message(), 1) is None


def message() -> Message:
    from palimpsest.schemas.codec import decode

    return decode(record(None).value, CONVERSATION_TURNS, BEGIN)


@pytest.mark.parametrize("header", [None, untraced("m1"), b"garbage", b""])
def test_the_first_stage_begins_a_trace_that_has_none(traced: Traced, header: bytes | None) -> None:
    assert traced.tracer.processing("audit", record(header), message(), 1) is None
    span = traced.tracer.processing("normalize", record(header), message(), 1)
    assert span is not None
    span.end()
    [ended] = traced.spans()[-1:]
    assert (ended.name, ended.parent, ended.start_time) == ("process normalize", None, 1)


async def test_a_span_per_record_and_its_context_in_what_follows(traced: Traced) -> None:
    header = await emitted([record(CALLER)], tracer=traced.tracer)
    [*_, span] = traced.spans()
    assert header is not None
    assert header == (
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{span.context.span_id:016x}-01".encode()
    )
    assert span.attributes is not None
    assert span.attributes["palimpsest.emitted"] == 1
    assert span.attributes["messaging.message.conversation_id"] == "m1"


async def test_a_stage_with_a_store_carries_the_context_through_its_outbox(traced: Traced) -> None:
    log, store = MemoryLog(), MemoryStore()
    await runner(stage(ECHO, stateful=True), log, store, tracer=traced.tracer).process(
        [record(CALLER)]
    )
    [out] = log.sent()
    assert out.headers["traceparent"][:35] == CALLER[:35]
    assert out.headers["traceparent"] != CALLER


def asking(message: Message, context: Context) -> Process:
    yield Generate(PROMPT)
    return Step()


async def test_calls_to_models_belong_to_the_record_they_are_for(traced: Traced) -> None:
    log = MemoryLog()
    model = Model("{}")
    await runner(stage(asking), log, language=model, tracer=traced.tracer).process([record(CALLER)])
    call, work = traced.spans()[-2:]
    assert (call.name, work.name) == ("chat m", "process echo")
    assert call.parent is not None
    assert call.parent.span_id == work.context.span_id
    assert call.attributes is not None
    assert call.attributes["gen_ai.provider.name"] == "scripted"


async def test_a_refused_call_and_a_dead_letter_are_errors_without_their_text(
    traced: Traced,
) -> None:
    model = Model(*[PermanentModelError("what Ana said"), "{}"] * 2)
    log = MemoryLog()
    await runner(stage(asking), log, language=model, tracer=traced.tracer).process([record(CALLER)])
    failed = [span for span in traced.spans() if not span.status.is_ok]
    errors = {span.name: (span.attributes or {}).get("error.type") for span in failed}
    assert errors == {"chat m": "PermanentModelError", "process echo": "invalid"}
    assert all("Ana" not in span.to_json() for span in traced.spans())


def raising(message: Message, context: Context) -> Process:
    yield Load(message.scope)
    raise LookupError("a bug")


async def test_a_batch_that_failed_ends_its_spans_and_the_repeat_has_its_own(
    traced: Traced,
) -> None:
    log, store = MemoryLog(), MemoryStore()
    what = runner(stage(raising, stateful=True), log, store, tracer=traced.tracer)
    await what.process([record(CALLER)])
    found = [span for span in traced.spans() if span.name == "process echo"]
    errors = [(span.attributes or {}).get("error.type") for span in found]
    assert errors == ["StageRaised", "unexpected"]


@given(
    rate=st.floats(0.1, 50.0),
    steps=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=60),
)
def test_no_more_than_the_rate_and_a_second_in_advance(rate: float, steps: list[float]) -> None:
    now = [100.0]
    permits = RateLimit(rate, lambda: now[0])
    assert permits()  # the first of a quiet moment
    granted = 1
    for step in steps:
        now[0] += step
        granted += permits()
    assert granted <= max(1.0, rate) + (now[0] - 100.0) * rate + 1e-6


def test_nothing_is_imported_without_the_setting() -> None:
    program = (
        "import sys; from palimpsest.ops.settings.sections import Settings;"
        "from palimpsest.ops.telemetry.setup import set_up; set_up(Settings());"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"
