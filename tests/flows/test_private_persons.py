"""What privacy levels refuse and leave out, and what the log keeps of what was withheld."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palimpsest.schemas.commands import (
    AddDocumentCommand,
    ImportCommand,
    MemoryPatch,
    ModifyCommand,
    RememberCommand,
    SetFlagsCommand,
    UpdateShortTermCommand,
)
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.messages import MemoryWrite, RawTurnIntent
from palimpsest.schemas.portable import NumberedLine, PortableMemory, PortablePrivacy
from palimpsest.streams.apply.apply_writes import apply_writes_stage
from palimpsest.streams.logs.base import LogError, Position
from palimpsest.streams.normalize import normalized
from palimpsest.streams.stage import Stage
from tests.erased_bytes import where
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.messages import BEGIN, redriven, turn
from tests.privacy_by_hand import AGENT, REJECTED, SECRET, level, tidy, turns, words
from tests.spoken_model import ScriptedModel, spoken
from tests.unit.by_hand import context, write_message


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as running:
        yield running


def test_an_agent_may_not_change_a_fact_that_a_private_person_said(pipeline: Pipeline) -> None:
    pipeline.say("I live in Oslo.")
    pipeline.run()
    pipeline.command(level("Ana", "partial"), SetFlagsCommand(self_teaching_enabled=True))
    pipeline.run()
    [fact] = pipeline.values("SELECT memory_id FROM memory_rows WHERE type <> 'episodic'")
    patch = MemoryPatch(memory_id=fact, content="Ana lives in Bergen.")
    taught = ModifyCommand(patches=(patch,), reason="heard", self_taught=True)
    pipeline.command(taught, first=3, actor=AGENT)
    pipeline.run()
    error, _ = pipeline.result(3)
    assert error is not None
    assert error.startswith("private: agents may not write memories about them")
    assert "tell the user" in error
    # A person may: it is theirs to put right what is known.
    pipeline.command(ModifyCommand(patches=(patch,), reason="she moved"), first=4)
    pipeline.run()
    assert words(pipeline) == ["Ana lives in Bergen."]


def test_partial_keeps_what_the_person_says(pipeline: Pipeline) -> None:
    pipeline.command(level("Ana", "partial"))
    pipeline.run()
    pipeline.say("I live in Oslo.")
    pipeline.run()
    assert words(pipeline) == ["Ana lives in Oslo."]


def test_turns_of_before_are_no_context_of_others(tmp_path: Path) -> None:
    model = ScriptedModel(spoken)
    with Pipeline(tmp_path, language=model) as pipeline:
        pipeline.say("Ana lives in Oslo")
        pipeline.run()
        pipeline.command(level("Ana", "full"))
        pipeline.run()
        model.prompts.clear()
        pipeline.say("Ben sails often", first=2, speaker="Ben")
        pipeline.run()
        assert "Oslo" not in repr([prompt.subject for prompt in model.prompts])


def test_a_text_that_is_known_not_to_be_kept_is_not_embedded() -> None:
    asked: list[str] = []
    stage = apply_writes_stage(pipeline_settings(), lambda scope, who: (scope, who) == ("ana", "Z"))
    for who in ("Z", "Ana"):
        intent = RawTurnIntent(turn=normalized("ana", turn(SECRET, 1, speaker=who)))
        message = write_message(MemoryWrite(write=intent))
        first = next(stage.process(message, context()))
        asked.append(type(first).__name__)
    assert asked == ["Load", "Embed"]


def test_a_private_scope_takes_no_document_and_no_summary(pipeline: Pipeline) -> None:
    pipeline.command(level(None, "full"))
    pipeline.command(
        AddDocumentCommand(kind="text", text=SECRET, title="keys"),
        UpdateShortTermCommand(session_id="s1", summary=SECRET),
        RememberCommand(content=SECRET),
        first=2,
    )
    pipeline.run()
    errors = [pipeline.result(number)[0] for number in (2, 3, 4)]
    assert [str(each).partition(":")[0] for each in errors] == ["private"] * 3
    assert pipeline.values("SELECT count(*) FROM memory_rows") == [0]


def test_a_turn_that_is_sent_again_from_the_dead_letters_is_not_kept(tmp_path: Path) -> None:
    def spoiled(stage: Stage) -> Stage:
        def broken(message: Any, context: Any) -> Any:
            raise ZeroDivisionError

        return replace(stage, process=broken) if stage.name == "normalize" else stage

    with Pipeline(tmp_path / "live", pipeline_settings(FULL), spoiled=spoiled) as pipeline:
        pipeline.say(SECRET)
        pipeline.run()
        [dead] = pipeline.dead_letters()
        pipeline.spoiled = lambda stage: stage
        pipeline.command(level("Ana", "full"))
        pipeline.run()
        topic, again = redriven(dead)
        pipeline.publish(again, topic=topic)
        pipeline.run()
        assert turns(pipeline) == {REJECTED: 1}
        assert pipeline.values("SELECT count(*) FROM memory_rows") == [0]
        assert pipeline.balance().holds


def test_an_import_leaves_out_whom_nothing_is_kept_of(pipeline: Pipeline) -> None:
    pipeline.command(level("Ana", "full"))
    pipeline.run()
    at = BEGIN
    lines = tuple(
        NumberedLine(
            number=number,
            line=PortableMemory.model_validate(
                {
                    "kind": "memory",
                    "id": derived_id("imported", who),
                    "type": "fact",
                    "content": f"{who} likes tea",
                    "who": who,
                    "occurred_at": at,
                    "created_at": at,
                    "updated_at": at,
                    "updated_by": "local",
                    "importance": 0.5,
                    "confidence": 0.5,
                }
            ),
        )
        for number, who in enumerate(("ANA", "Ben"), start=1)
    )
    pipeline.command(ImportCommand(from_scope="other", lines=lines), first=2)
    pipeline.run()
    error, result = pipeline.result(2)
    assert error is None
    assert words(pipeline) == ["Ben likes tea"]
    [refused] = result["refused"]
    assert refused["why"].startswith("private: ")


def test_a_crash_before_it_is_noted_repeats_the_withholding(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.command(level("Ana", "full"))
    pipeline.run()
    pipeline.say(SECRET)
    pipeline.run()

    def crash(position: Position) -> None:
        raise LogError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(pipeline.log, "seek", crash)
        with pytest.raises(LogError):
            tidy(pipeline)
    assert tidy(pipeline) == 2
    assert tidy(pipeline) == 0
    assert where(pipeline.folder, "flowerpot") == []


def test_nothing_is_withheld_that_is_not_settled(pipeline: Pipeline) -> None:
    pipeline.say(SECRET, privacy="full")
    pipeline.run("normalize", "audit")
    assert tidy(pipeline) == 0  # apply-writes has yet to say what becomes of it
    pipeline.run()
    assert tidy(pipeline) == 1
    assert where(pipeline.folder, "flowerpot") == []


@pytest.mark.parametrize(
    ("here", "told", "after"),
    [(None, "full", "full"), ("partial", "full", "full"), ("full", "partial", "full")],
)
def test_levels_of_an_imported_scope_hold_unless_stricter_ones_do(
    here: Any, told: Any, after: str, pipeline: Pipeline
) -> None:
    if here is not None:
        pipeline.command(level("Ana", here))
        pipeline.run()
    line = PortablePrivacy(person="ANA", level=told, recorded_at=BEGIN)
    lines = (NumberedLine(number=1, line=line),)
    pipeline.command(ImportCommand(from_scope="other", lines=lines), first=2)
    pipeline.run()
    assert pipeline.values("SELECT level FROM privacy_levels") == [after]
