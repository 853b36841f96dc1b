"""A language model infers which turns led to others; a rebuild repeats it without one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.lifecycle.causes import REASONER, causes
from palimpsest.ops.scheduling.jobs import JobFailed
from palimpsest.schemas.commands import (
    CausalPair,
    ForgetCommand,
    LinkCausesCommand,
    MemoryVersion,
)
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.models.recorded import RecordedReplies
from palimpsest.streams.models.settings import LlmSettings
from palimpsest.streams.runtime.model_port import ModelPort
from tests.flows.test_profiles import SETTINGS, fold_again
from tests.harness import Pipeline
from tests.spoken_model import ScriptedModel
from tests.sweeping import context_of

SAID = ("The boiler broke", "I called the plumber", "He came at once", "Thanks")


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path / "live", SETTINGS) as made:
        made.say(*SAID)
        yield made.run()


def infer(pipeline: Pipeline, reply: object) -> tuple[str, list[Any]]:
    """Runs the job; returns what it did, and the prompts."""
    model = ScriptedModel(lambda prompt: json.dumps({"causal": reply}))
    settings = pipeline.settings.model_copy(update={"llm": LlmSettings(provider="openai")})
    port = ModelPort(model, pipeline.embedding)
    done = asyncio.run(causes(replace(context_of(pipeline), models=port, settings=settings)))
    pipeline.run()
    return done, model.prompts


def edges(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    rows = pipeline.rows(
        "SELECT a.content AS cause, b.content AS effect, e.confidence, e.evidence"
        " FROM internal.memory_edges e JOIN internal.memory_rows a ON a.memory_id = e.source_id"
        " JOIN internal.memory_rows b ON b.memory_id = e.target_id"
        " WHERE e.relation_type = 'causal' ORDER BY 1"
    )
    return [tuple(row.values()) for row in rows]


EDGE = (SAID[0], SAID[1], 0.7, "inferred by scripted-1")


def test_each_pair_is_looked_at_once(pipeline: Pipeline) -> None:
    done, [prompt] = infer(pipeline, [1, 1, 9, True, "2"])
    assert done == "1 causes in 3 pairs"
    assert "1. first: Ana: The boiler broke\n1. second: Ana: I called the plumber" in prompt.user
    assert edges(pipeline) == [EDGE]
    assert infer(pipeline, [1]) == ("0 causes in 0 pairs", [])
    pipeline.say("So it is warm again", first=5)
    pipeline.run()
    done, [prompt] = infer(pipeline, [])
    assert done == "0 causes in 1 pairs"
    assert "1. second: Ana: So it is warm again" in prompt.user
    pipeline.clock.advance(days=8)
    assert infer(pipeline, [1])[1] == []


@pytest.mark.parametrize("is_appended", [False, True])
def test_a_reply_is_paid_for_once(pipeline: Pipeline, tmp_path: Path, is_appended: bool) -> None:
    """The process is killed between the model's reply and its command in the log, or between that
    and the end of the run."""
    model = ScriptedModel(lambda prompt: json.dumps({"causal": [1]}))
    port = ModelPort(model, pipeline.embedding)
    port.replies = RecordedReplies(tmp_path / "replies.sqlite", pipeline.clock, 7, 1 << 20)
    settings = pipeline.settings.model_copy(update={"llm": LlmSettings(provider="openai")})

    def killed(records: Sequence[Outgoing]) -> None:
        if is_appended:
            pipeline.log.append(records)
        raise OSError("killed")

    context = replace(context_of(pipeline), models=port, settings=settings)
    with pytest.raises(OSError, match="killed"):
        asyncio.run(causes(replace(context, append=killed)))
    assert asyncio.run(causes(context)) == "1 causes in 3 pairs"
    pipeline.run()
    assert (len(model.prompts), edges(pipeline)) == (1, [EDGE])
    assert len({message.id for message in pipeline.messages(MEMORY_COMMANDS)}) == 1
    assert infer(pipeline, [1]) == ("0 causes in 0 pairs", [])


@pytest.mark.parametrize(
    ("stage", "step"),
    [("normalize", "send"), ("apply-writes", "commit"), ("apply-writes", "send")],
)
def test_a_crash_of_a_stage_applies_it_once(pipeline: Pipeline, stage: str, step: str) -> None:
    model = ScriptedModel(lambda prompt: json.dumps({"causal": [1]}))
    settings = pipeline.settings.model_copy(update={"llm": LlmSettings(provider="openai")})
    port = ModelPort(model, pipeline.embedding)
    asyncio.run(causes(replace(context_of(pipeline), models=port, settings=settings)))
    pipeline.crash_at(stage, step)
    pipeline.run_through()
    assert edges(pipeline) == [EDGE]
    assert pipeline.values("SELECT result->>'linked' FROM command_results") == ["1"]
    assert infer(pipeline, [1]) == ("0 causes in 0 pairs", [])


def test_a_useless_answer_is_asked_for_again(pipeline: Pipeline) -> None:
    with pytest.raises(JobFailed, match="no JSON object with a list"):
        infer(pipeline, "none")
    assert infer(pipeline, [1])[0] == "1 causes in 3 pairs"


def test_a_reply_that_names_most_pairs_is_told_and_not_used(pipeline: Pipeline) -> None:
    pipeline.say("So it is warm again", first=5)
    pipeline.run()
    done, _ = infer(pipeline, [1, 2, 4])
    assert done == "0 causes in 4 pairs, 1 replies that named most pairs not used"
    assert edges(pipeline) == []
    assert infer(pipeline, [1])[1] == []  # paid for, and not asked again


def test_a_rebuild_needs_no_model(pipeline: Pipeline, tmp_path: Path) -> None:
    infer(pipeline, [1, 2])
    with Pipeline(tmp_path / "rebuilt", SETTINGS) as rebuilt:
        fold_again(pipeline, rebuilt)
        assert len(edges(rebuilt)) == 2
        assert rebuilt.state() == pipeline.state()


def test_what_was_forgotten_meanwhile_is_linked_to_nothing(pipeline: Pipeline) -> None:
    ids = pipeline.values("SELECT memory_id FROM internal.memory_rows ORDER BY write_seq")
    pipeline.command(ForgetCommand(memory_ids=(ids[1],), reason="asked"))
    pipeline.run()
    seen = [MemoryVersion(memory_id=each, version=1) for each in ids]
    pairs = tuple(CausalPair(cause=seen[n], effect=seen[n + 1]) for n in (0, 2))
    command = LinkCausesCommand(model="m", confidence=0.7, examined=2, through=9, pairs=pairs)
    pipeline.command(command, actor=REASONER, first=2)
    pipeline.command(command, first=3)
    pipeline.run()
    assert pipeline.result(2)[1]["linked"] == 1
    assert pipeline.result(3)[0].startswith("forbidden")
    assert [edge[:2] for edge in edges(pipeline)] == [(SAID[2], SAID[3])]
