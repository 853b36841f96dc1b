"""The trace of a turn goes on from process to process in the headers of Kafka's records."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.streams.kafka.cluster import ROLES, STATELESS, STORE
from tests.flows.program import Program
from tests.otlp import STAGES, check_turn, collector
from tests.soak.lab import MakeLab

pytest.importorskip("opentelemetry.sdk")


@pytest.mark.soak
def test_one_turn_through_all_stages_in_three_processes(
    make_lab: MakeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector(tmp_path) as kept:
        lab = make_lab(2)
        program = Program(tmp_path, afresh=True, **kept.environment)
        for name, value in kept.environment.items():
            monkeypatch.setenv(name, value)
        lab.start("stateless", *ROLES[STATELESS])
        lab.start("store", *ROLES[STORE])
        lab.until_owned(1)
        flags = [f"--set={flag}" for flag in lab._flags()]
        program.ok("ingest", program.turns("I live in Lisbon with my sister Nora."), *flags)
        lab.until_drained()
        names = ["publish conversation-turns", "chat ", *(f"process {s}" for s in STAGES)]
        spans = kept.until(*names)
        check_turn(spans)
