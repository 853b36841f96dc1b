"""What was forgotten is in no export, and does not come back by an import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.operations.graph import GetEntity
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.requests import ExportRequest
from palimpsest.ops.service.exporting import export_scope
from palimpsest.schemas.commands import ForgetCommand, ImportCommand
from tests.harness import Pipeline


def sources_of(pipeline: Pipeline) -> Sources:
    known = (pipeline.settings, pipeline.log, {0: pipeline.shard}, 1, pipeline.embedding)
    return Sources(*known, lambda _: None)


def relations(pipeline: Pipeline, scope: str) -> set[tuple[str, str]]:
    found: Any = GetEntity(name="Lea", scope=scope).read(sources_of(pipeline))
    return {(each["relation"], each["name"]) for each in found["relations"]}


@pytest.mark.parametrize("more", ["", " Please buy milk and flour tomorrow evening."])
def test_a_forgotten_fact_does_not_come_back(more: str, tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.say(f"My sister Lea lives in Nice.{more}", "Lea works at Siemens.")
        pipeline.run()
        [memory_id] = pipeline.values(
            "SELECT memory_id FROM memory_rows WHERE type <> 'episodic' AND content LIKE '%Nice%'"
        )
        pipeline.command(ForgetCommand(memory_ids=(memory_id,), reason="private"))
        pipeline.run()
        shown = relations(pipeline, "ana")
        assert "Nice" not in str(shown)
        path = tmp_path / "ana.ndjson"
        export_scope(sources_of(pipeline), ExportRequest("ana"), path)
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert [line for line in lines if "nice" in json.dumps(line).lower()] == []
        numbered = [{"number": n, "line": line} for n, line in enumerate(lines[1:-1], 2)]
        command = ImportCommand.model_validate({"from_scope": "ana", "lines": numbered})
        pipeline.command(command, scope="ben", first=2)
        pipeline.run()
        error, _ = pipeline.result(2, "ben")
        assert error is None
        assert relations(pipeline, "ben") == shown
