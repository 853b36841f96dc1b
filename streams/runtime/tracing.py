"""What publishers, the runner and the model port need of tracing. Nothing is traced until a program
installs a tracer; `ops.telemetry.traces` has one on OpenTelemetry.

The context travels in the record header `traceparent` (W3C Trace Context), so a trace goes on in
other processes and on either log."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from palimpsest.schemas.topics import Topic
    from palimpsest.streams.logs.base import Record
    from palimpsest.streams.stage import Message

HEADER: Final = "traceparent"
_FORM: Final = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Span(Protocol):
    """One recorded operation, from its creation to `end`."""

    @property
    def traceparent(self) -> bytes:
        """The header for records that follow from the operation."""
        ...

    def call(self, provider: str, model: str, others: Sequence[Span]) -> Span:
        """Begins a call to a model within this operation, made for the `others`, too."""
        ...

    def note(self, name: str, value: int) -> None: ...

    def end(self, error: str | None = None) -> None:
        """Ends the operation; `error` is the type of what it failed with, never a text."""
        ...


class Tracer(Protocol):
    """Decides what is traced and begins its spans. Thread-safe."""

    def published(self, topic: Topic, message: Message) -> bytes:
        """Records that a message without a cause is being published; returns its header."""
        ...

    def now(self) -> int:
        """Returns the time, to begin a span with it later."""
        ...

    def processing(
        self, stage: str, record: Record, message: Message | None, began: int
    ) -> Span | None:
        """Begins a stage's work on a record; None if its message is not traced."""
        ...


class TracedWork(Protocol):
    """A record that a stage is working on."""

    record: Record
    message: Message | None
    span: Span | None


_tracers: list[Tracer] = []
current: ContextVar[Sequence[TracedWork]] = ContextVar("current", default=())
"""The records that the running code works for."""
caller: ContextVar[bytes | None] = ContextVar("caller", default=None)
"""The valid `traceparent` of the request that the running code answers."""


def install(tracer: Tracer | None) -> None:
    """Sets the tracer of this process; None ends tracing."""
    _tracers[:] = [] if tracer is None else [tracer]


def installed() -> Tracer | None:
    return _tracers[0] if _tracers else None


@contextmanager
def working_on(works: Sequence[TracedWork]) -> Iterator[None]:
    """Attributes calls to models, and lines of the program's log, to these records."""
    token = current.set(works)
    try:
        yield
    finally:
        current.reset(token)


@contextmanager
def model_call(provider: str, model: str) -> Iterator[Span | None]:
    """Records the enclosed call as a part of the work that it is made for, if that is traced."""
    spans = [work.span for work in current.get() if work.span is not None]
    if not spans:
        yield None
        return
    span = spans[0].call(provider, model, spans[1:])
    try:
        yield span
    except BaseException as error:
        span.end(type(error).__name__)
        raise
    span.end()


# --- the header -----------------------------------------------------------------------------------


def valid(header: bytes | None) -> bytes | None:
    """Returns the header if it is a traceparent; producers may send anything."""
    return header if header is not None and _FORM.fullmatch(header) else None


def trace_id(header: bytes) -> str:
    return header[3:35].decode()


def untraced(correlation_id: str, sampled: bool = True) -> bytes:
    """Returns a traceparent without a span, the same for all that follows from one turn or
    command. `sampled=False`: a tracer decided to leave it out."""
    digest = hashlib.sha256(correlation_id.encode()).hexdigest()
    return f"00-{digest[:32]}-{digest[32:48]}-{'01' if sampled else '00'}".encode()
