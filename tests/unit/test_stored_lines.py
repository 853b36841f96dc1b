"""A stored text of several lines keeps its form, and is the same text as on one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from palimpsest.ops.terminal.tables import console, print_result
from palimpsest.schemas.commands import ForgetCommand, MemoryPatch, ModifyCommand, RememberCommand
from palimpsest.schemas.identity import turn_memory_id
from tests.erased_bytes import where
from tests.flows.test_erased_fields import execute
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.messages import turn

CODE = 'def tea(cups):\n    for cup in range(cups):\n        pour(cup, "Darjeeling")'
ON_ONE_LINE = " ".join(CODE.split())
TURN = turn_memory_id("ana", "t1")


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path, pipeline_settings(FULL)) as opened:
        yield opened


def texts(pipeline: Pipeline) -> list[str]:
    return pipeline.values("SELECT content FROM memory_rows WHERE NOT is_deleted ORDER BY 1")


def test_what_is_remembered_and_what_it_is_changed_to(pipeline: Pipeline) -> None:
    pipeline.command(RememberCommand(content=f"[code]: {CODE}\n"), first=1)
    pipeline.run()
    assert texts(pipeline) == [CODE]
    pipeline.command(RememberCommand(content=ON_ONE_LINE), first=2)
    pipeline.run()
    assert texts(pipeline) == [CODE]
    error, result = pipeline.result(2)
    assert error is None
    assert result["deduped"]
    patch = MemoryPatch(memory_id=result["id"], content="- tea\n- milk")
    pipeline.command(ModifyCommand(patches=(patch,), reason="a list"), first=3)
    pipeline.run()
    assert texts(pipeline) == ["- tea\n- milk"]


def test_a_turn_that_is_sent_again_on_one_line_is_a_repeat(pipeline: Pipeline) -> None:
    """As it is stored by releases that kept no lines."""
    for said in (CODE, ON_ONE_LINE, CODE):
        pipeline.ingest(turn(said, 1))
        pipeline.run()
    assert texts(pipeline) == [CODE]
    assert pipeline.dead_letters() == []
    assert pipeline.balance().holds


def test_facts_are_drawn_line_by_line(pipeline: Pipeline) -> None:
    pipeline.ingest(turn("About me:\n- I live in Graz\n- I have a dog", 1))
    pipeline.run()
    drawn = [each for each in texts(pipeline) if "\n" not in each]
    assert drawn == ["Ana has a dog.", "Ana lives in Graz."]


def test_nothing_of_an_erased_one_is_left_in_any_form(tmp_path: Path) -> None:
    with Pipeline(tmp_path, pipeline_settings(FULL)) as pipeline:
        pipeline.ingest(turn(CODE, 1), turn("I have a dog.", 2))
        pipeline.run()
        command = ForgetCommand(memory_ids=(TURN,), hard=True, cascade=True, reason="asked")
        pipeline.command(command)
        execute(pipeline)
        assert where(tmp_path, CODE, ON_ONE_LINE, "Darjeeling") == []


def test_no_line_of_a_text_looks_like_the_next_result(capsys: pytest.CaptureFixture[str]) -> None:
    result = {
        "content": "Your list:\n2. tea",
        "type": "episodic",
        "who": "Ana",
        "role": "user",
        "occurred_at": "2026-03-01T10:00:00Z",
        "valid_until": None,
        "unlikely": False,
        "marks": [],
        "score": 1.0,
        "scores": {"keyword": 1.0},
        "id": "1f0c9a52",
    }
    print_result(console(), 1, result)
    assert [line[:4] for line in capsys.readouterr().out.splitlines()][:2] == ["1. Y", "   2"]
