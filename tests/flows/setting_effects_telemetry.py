"""What the settings of traces and of the program's log change."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from functools import partial

import pytest

from palimpsest.ops.telemetry.setup import set_up, set_up_program
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.runtime import tracing
from palimpsest.streams.runtime.output import published
from tests.messages import BEGIN, turn
from tests.setting_lab import Case, Lab


async def traced(lab: Lab) -> object:
    """How many of twenty turns at once are traced."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from palimpsest.ops.telemetry import traces

    # On a busy machine twenty turns take long enough for one more.
    at_once = partial(traces.RateLimit, monotonic=lambda: 0.0)
    lab.patch.setattr(traces, "RateLimit", at_once)
    lab.patch.setattr("palimpsest.ops.telemetry.traces._own", sdk.TracerProvider)
    lab.patch.delenv("OTEL_TRACES_SAMPLER", raising=False)
    set_up(lab.settings)
    try:
        given = [("t" + str(number), "ana", BEGIN, turn("hello")) for number in range(20)]
        sent = [published(CONVERSATION_TURNS, *each).headers["traceparent"] for each in given]
    finally:
        tracing.install(None)
    without = {tracing.untraced(name) for name, *_ in given}
    return sum(int(header[-2:], 16) & 1 for header in sent if header not in without)


async def line_of_the_log(lab: Lab) -> object:
    root = logging.getLogger()
    before, level = [*root.handlers], logging.getLogger("palimpsest").level
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        set_up_program(lab.settings)
        logging.getLogger("palimpsest").warning("the disk is full")
    root.handlers[:] = before
    logging.getLogger("palimpsest").setLevel(level)
    said = printed.getvalue()
    return json.loads(said)["message"] if said.startswith("{") else said


CASES = {
    "telemetry.traces": Case(
        traced, ("false", "true"), (0, 20), ("telemetry.traces_per_second=50",)
    ),
    "telemetry.traces_per_second": Case(traced, (2, 7), (2, 7), ("telemetry.traces=true",)),
    "telemetry.log_format": Case(
        line_of_the_log, ("text", "json"), ("the disk is full\n", "the disk is full")
    ),
}
