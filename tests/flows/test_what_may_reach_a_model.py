"""Which texts are shown to a language model, end to end: by the scope's flags, by whether the turn
was refused, and not after it was forgotten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palimpsest.schemas.commands import ForgetCommand, MemoryPatch, ModifyCommand, SetFlagsCommand
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.streams.settings import Flags
from tests.harness import Pipeline, pipeline_settings
from tests.messages import published, turn
from tests.spoken_model import ScriptedModel, spoken


def everything_shown(model: ScriptedModel) -> str:
    return json.dumps([[prompt.user, prompt.subject] for prompt in model.prompts])


@pytest.mark.parametrize("batch", [1, 256])
def test_a_scope_that_is_switched_off_is_shown_to_no_model(batch: int, tmp_path: Path) -> None:
    model = ScriptedModel(spoken)
    with Pipeline(tmp_path, language=model, batch=batch) as pipeline:
        pipeline.command(SetFlagsCommand(enabled=False, reason="private"))
        pipeline.run()
        pipeline.say("Ana lives in Oslo")
        pipeline.say("Ben lives in Rome", scope="ben")
        pipeline.run()
        assert "Oslo" not in everything_shown(model)
        assert pipeline.memories() == []
        assert pipeline.memories("ben") == ["Ben lives in Rome"]
        assert pipeline.balance().turns["stored"] == 2
        # Switched on again: what was said meanwhile is no context either.
        pipeline.command(SetFlagsCommand(enabled=True), first=2)
        pipeline.run()
        pipeline.say("Ana sails often", first=2)
        pipeline.run()
        assert "Oslo" not in everything_shown(model)
        assert pipeline.memories() == ["Ana sails often"]


def test_a_scope_that_is_switched_on_while_all_are_off_is_extracted_from(tmp_path: Path) -> None:
    model = ScriptedModel(spoken)
    settings = pipeline_settings(Flags(enabled=False))
    with Pipeline(tmp_path, settings, model) as pipeline:
        pipeline.command(SetFlagsCommand(enabled=True))
        pipeline.run()
        pipeline.say("Ana lives in Oslo")
        pipeline.say("Ben lives in Rome", scope="ben")
        pipeline.run()
        assert pipeline.memories() == ["Ana lives in Oslo"]
        assert "Rome" not in everything_shown(model)


def test_a_forgotten_turn_is_not_shown_with_later_ones(tmp_path: Path) -> None:
    model = ScriptedModel(spoken)
    with Pipeline(tmp_path, language=model) as pipeline:
        pipeline.say("My pin is 4711", "Ana lives in Oslo", "Ana likes tea")
        pipeline.run()
        gone = ForgetCommand(memory_ids=(turn_memory_id("ana", "t2"),), reason="private")
        patch = MemoryPatch(memory_id=turn_memory_id("ana", "t3"), content="Ana likes mint tea")
        pipeline.command(gone, ModifyCommand(patches=(patch,), reason="more exact"))
        pipeline.run().reopen()
        model.prompts.clear()
        pipeline.say("Ana sails often", first=4)
        pipeline.run()
        [prompt] = [p for p in model.prompts if p.purpose == "extract"]
        context = prompt.subject["context"]
        assert isinstance(context, list)
        assert [t["content"] for t in context if isinstance(t, dict)] == ["Ana likes mint tea"]


def test_a_turn_published_again_costs_no_second_call(tmp_path: Path) -> None:
    model = ScriptedModel(spoken)
    with Pipeline(tmp_path, language=model) as pipeline:
        pipeline.publish(published(turn("Ana lives in Oslo"), message_id="a"))
        pipeline.publish(published(turn("Ana lives in Oslo"), message_id="b"))
        pipeline.run()
        assert len(model.prompts) == 1
        balance = pipeline.balance()
        assert (balance.turns["accepted"], balance.turns["stored"]) == (1, 1)


def test_a_message_id_in_two_scopes_is_two_messages(tmp_path: Path) -> None:
    for batch in (1, 256):
        with Pipeline(tmp_path / str(batch), batch=batch) as pipeline:
            for scope in ("ana", "ben"):
                pipeline.publish(published(turn("I love green tea."), scope, message_id="same"))
            pipeline.run()
            assert pipeline.memories() == pipeline.memories("ben") == ["Ana loves green tea."]
            assert pipeline.balance().turns["stored"] == 2


def test_a_command_id_used_again_for_something_else_is_refused(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        values = [
            {"command": "remember", "content": "Ana likes tea"},
            {"command": "remember", "content": "Ana likes coffee"},
            {"command": "remember", "content": "Ana likes tea"},
        ]
        for command in values:
            record = {
                "id": "c1",
                "schema": "memory-command/1",
                "scope": "ana",
                "occurred_at": "2026-03-01T09:30:00Z",
                "correlation_id": "c1",
                "body": {"command": command},
            }
            pipeline.raw(MEMORY_COMMANDS, json.dumps(record).encode())
        pipeline.run()
        assert pipeline.memories() == ["Ana likes tea"]
        [dead_letter] = pipeline.dead_letters()
        assert dead_letter.reason.startswith("command_id_conflict: ")


def test_an_invalid_command_has_a_result(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.raw(MEMORY_COMMANDS, b'{"id": "c1", "scope": "ana", "body": {"command": {}}}')
        pipeline.run()
        [row] = pipeline.rows("SELECT command_id, scope, error FROM command_results")
        assert (row["command_id"], row["scope"]) == ("c1", "ana")
        assert row["error"].startswith("invalid_request: ")
        assert "schema" in row["error"]
        assert pipeline.dead_letters() == []
