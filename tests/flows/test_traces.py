"""Traces of the real program on the embedded log, as a collector keeps them."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.flows.program import PATIENCE_S, Program, until
from tests.otlp import STAGES, Collector, Span, check_turn, collector

pytest.importorskip("opentelemetry.sdk")
TEXT = "I live in Lisbon with my sister Nora."
CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
WHOLE = ("publish conversation-turns", *(f"process {stage}" for stage in STAGES), "chat ")


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Collector]:
    with collector(tmp_path) as running:
        yield running


def in_trace(spans: list[Span], trace: str) -> list[Span]:
    return [span for span in spans if span.trace == trace]


def test_one_turn_over_http_through_all_stages(tmp_path: Path, kept: Collector) -> None:
    program = Program(tmp_path, afresh=True, **kept.environment)
    said = tmp_path / "serve.err"
    with said.open("wb") as out:
        running = program.start("serve", "--port", "0", output=out)
        try:
            until(lambda: b"serving at" in said.read_bytes() or running.poll() is not None)
            found = re.search(r"serving at (http://\S+);", said.read_text())
            assert found is not None, said.read_text()
            turn = {"turn_id": "t1", "speaker": "Ana", "content": TEXT, "scope": "private-name"}
            with httpx.Client(base_url=found[1], trust_env=False, timeout=PATIENCE_S) as client:
                headers = {"traceparent": CALLER}
                answer = client.post("/api/turns?wait=60", json=turn, headers=headers)
                assert answer.json()["turns"][0]["status"] == "stored", answer.text
            spans = kept.until(*WHOLE)
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(PATIENCE_S)
    traced = in_trace(spans, CALLER.split("-")[1])
    check_turn(traced, CALLER)
    [call] = [span for span in traced if span.name.startswith("chat ")]
    assert call.attributes["gen_ai.provider.name"] == "rules"
    for private in ("Lisbon", "Nora", "private-name"):
        assert private not in kept.text()


def test_from_the_command_line_and_no_more_at_a_rebuild(tmp_path: Path, kept: Collector) -> None:
    program = Program(tmp_path, afresh=True, **kept.environment)
    program.ok("ingest", program.turns(TEXT))
    program.ok("run", "--once")
    spans = kept.until(*WHOLE)
    check_turn(in_trace(spans, spans[0].trace))
    program.ok("replay", "rebuild")
    program.ok("replay", "reextract", "--branch", "again", "--provider", "rules")
    # A process has sent everything when it has ended.
    assert len(kept.spans()) == len(spans)


def test_a_producer_that_does_not_trace(tmp_path: Path, kept: Collector) -> None:
    silent = Program(tmp_path)
    silent.ok("ingest", silent.turns(TEXT))
    Program(tmp_path, afresh=True, **kept.environment).ok("run", "--once")
    spans = kept.until(*WHOLE[1:])
    assert spans[0].name == "process normalize"
    assert {span.trace for span in spans} == {spans[0].trace}
    assert "publish conversation-turns" not in {span.name for span in spans}


@pytest.mark.soak
def test_a_collector_that_is_away_stops_nothing(tmp_path: Path) -> None:
    away = Collector("http://127.0.0.1:9", tmp_path / "nothing")
    program = Program(tmp_path, afresh=True, **away.environment, OTEL_EXPORTER_OTLP_TIMEOUT="1")
    program.ok("ingest", program.turns(TEXT))
    program.ok("run", "--once")
    assert program.json("status")["balance"]["turns"]["stored"] == 1
