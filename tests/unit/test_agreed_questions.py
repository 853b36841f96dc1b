"""What somebody agrees to rests on the question, too: without it the answer says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.schemas.commands import ForgetCommand
from palimpsest.schemas.identity import turn_memory_id
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.messages import turn

QUESTION, ANSWER = (turn_memory_id("ana", name) for name in ("tq", "ta"))


def asked(folder: Path, answer: str, *more: str) -> Pipeline:
    pipeline = Pipeline(folder, pipeline_settings(FULL, near=0.3))
    pipeline.ingest(turn("So you live in Oslo?", "q", speaker="", role="assistant"))
    pipeline.run()
    pipeline.ingest(turn(answer, "a"))
    pipeline.run()
    pipeline.say(*more)
    return pipeline.run()


def forget(pipeline: Pipeline, memory_id: str, hard: bool) -> None:
    command = ForgetCommand(memory_ids=(memory_id,), cascade=True, hard=hard, reason="wrong")
    pipeline.command(command)
    pipeline.run()


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("gone", [QUESTION, ANSWER])
def test_the_fact_goes_with_either(tmp_path: Path, gone: str, hard: bool) -> None:
    with asked(tmp_path, "Yes, I do.") as pipeline:
        assert pipeline.memories() == ["Ana lives in Oslo."]
        sources = pipeline.values(
            "SELECT target_id FROM memory_edges WHERE relation_type = 'derived_from'"
        )
        assert sorted(sources) == sorted((QUESTION, ANSWER))
        forget(pipeline, gone, hard)
        assert pipeline.memories() == []
        assert pipeline.balance().holds


@pytest.mark.parametrize(
    ("answer", "more"),
    [("Yes, I live in Oslo.", ()), ("Yes, I do.", ("I live in Oslo.",))],
    ids=["said in the answer", "said later"],
)
def test_what_is_said_without_the_question_stays(
    tmp_path: Path, answer: str, more: tuple[str, ...]
) -> None:
    with asked(tmp_path, answer, *more) as pipeline:
        forget(pipeline, QUESTION, hard=True)
        assert pipeline.memories() == ["Ana lives in Oslo."]


def test_who_agrees_for_somebody_else_says_nothing_of_themselves(tmp_path: Path) -> None:
    with asked(tmp_path, "Yes, he does, but I do not.") as pipeline:
        assert pipeline.memories() == []
