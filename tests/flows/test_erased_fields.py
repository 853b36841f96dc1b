"""Nothing that a person can fill in is in any file once it is erased: every field of every message,
with a word of its own, made from the schemas."""

from __future__ import annotations

import json
import re
import shutil
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.maintenance.erasing import execute_in
from palimpsest.schemas.commands import Command, EraseScopeCommand, ForgetCommand
from palimpsest.schemas.identity import erase_token, turn_memory_id
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.portable import Line
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS
from palimpsest.streams.models.base import Prompt
from tests.erased_bytes import where
from tests.harness import FULL, Pipeline, differing, pipeline_settings
from tests.marked_fields import Marks, marked
from tests.messages import BEGIN, turn
from tests.privacy_by_hand import level
from tests.spoken_model import ScriptedModel

ERASED_IDS = "SELECT id FROM erased_graph ORDER BY id"
"""Of names and relations that no import may bring back."""
UUID = "0123abcd-0123-4123-8123-0123456789ab"
LINES = typing.get_args(typing.get_args(Line)[0])
COMMANDS = {
    kind.model_fields["command"].default: kind
    for kind in typing.get_args(typing.get_args(Command)[0])
}
OWN_TESTS = {
    "promote", "rollback-promotion", "record-shadow-proposals", "repair",
    "erase-scope", "import", "document-text", "change-embedding", "link-causes", "consolidate",
    "classify-facts", "weigh-aspects",
}  # fmt: skip
"""Of replays, of the worker alone, of a whole partition, or made below."""


def sent(number: int, schema: str, body: dict[str, Any], **given: Any) -> bytes:
    message = {
        "id": f"00000000-0000-4000-8000-{number:012}",
        "schema": schema,
        "scope": "ana",
        "occurred_at": BEGIN.isoformat(),
        "correlation_id": f"00000000-0000-4000-8000-{number:012}",
        "body": body,
        **given,
    }
    return json.dumps(message).encode()


def extraction(marks: Marks) -> Callable[[Prompt], str]:
    """What a model says of a turn, with words of its own in every field."""

    def answer(prompt: Prompt) -> str:
        if prompt.purpose != "extract":
            return json.dumps(
                {"action": "ADD", "confidence": 0.9, "reason": marks.new("decision.reason")}
            )
        given = ("content", "categories")
        entity = ("source", "source_type", "relationship", "target", "target_type")
        fact = {name: marks.new(f"model.{name}") for name in given} | {"confidence": 0.9}
        fact |= {"categories": [fact["categories"]], "type": "fact"}
        said = {name: marks.new(f"model.{name}") for name in entity} | {"confidence": 0.9}
        return json.dumps({"facts": [fact], "entities": [said]})

    return answer


def opened(folder: Path, marks: Marks) -> Pipeline:
    return Pipeline(folder, pipeline_settings(FULL), language=ScriptedModel(extraction(marks)))


def tell_turns(running: Pipeline, marks: Marks) -> list[str]:
    """Turns that become memories; the memories' ids."""
    for number, turn_id in enumerate(("t1", "t2")):
        body = marked(marks, ConversationTurn, turn_id=turn_id, session_id="s1")
        body[f"more_{turn_id}"] = marks.new("ConversationTurn.extension")
        running.raw(CONVERSATION_TURNS, sent(number, "conversation-turn/1", body))
        running.run()
    return [turn_memory_id("ana", turn_id) for turn_id in ("t1", "t2")]


def tell_broken(running: Pipeline, marks: Marks) -> None:
    """What cannot be processed."""
    for number, broken in enumerate(({"role": "nobody"}, {"turn_id": ""}, {"content": 7}), 10):
        body = marked(marks, ConversationTurn, turn_id=f"d{number}", session_id="s1") | broken
        running.raw(CONVERSATION_TURNS, sent(number, "conversation-turn/1", body))
    again = marked(marks, ConversationTurn, turn_id="t1", session_id="s1")
    running.raw(CONVERSATION_TURNS, sent(20, "conversation-turn/1", again))
    broken = b'{"scope": "ana", "broken": "' + marks.new("broken bytes").encode()
    running.raw(CONVERSATION_TURNS, broken)
    running.run()
    assert len(running.dead_letters()) == 5


def tell_commands(running: Pipeline, marks: Marks, memory_id: str, but: str = "") -> None:
    given = {"memory_id": memory_id, "memory_ids": [memory_id], "item_ids": [UUID]}
    given |= {"session_id": "s1", "document_id": UUID, "turns": [memory_id], "if_version": None}
    given |= {"lineage": None, "kind": "text", "digest": None, "chunks": None, "level": "none"}
    given |= {"drawn_from": None}  # the worker's alone
    given |= {"hard": None, "confirm_token": None, "chunk_characters": 500, "content_type": None}
    for number, (name, kind) in enumerate(COMMANDS.items(), 100):
        if name in (*OWN_TESTS, but):
            continue
        mine = dict(given)
        if name == "update-short-term-memory":
            mine |= {"turns": None}
        body = {"command": marked(marks, kind, **mine), "actor": {"id": "ana", "type": "human"}}
        running.raw(MEMORY_COMMANDS, sent(number, "memory-command/1", body))
        running.run()
    level = {
        "command": "set-privacy",
        "person": marks.new("set-privacy.person"),
        "level": "partial",
    }
    level["reason"] = marks.new("set-privacy.reason")
    alias = {"command": "alias", "name": marks.new("alias.name"), "alias": marks.new("alias.alias")}
    for number, command in enumerate((level, alias), 200):
        running.raw(MEMORY_COMMANDS, sent(number, "memory-command/1", {"command": command}))
    running.run()


def tell_import(running: Pipeline, marks: Marks) -> bytes:
    """All kinds of lines, of which one names another; the record that imports them."""
    name, other, aspect = (marks.new(f"import.{each}") for each in ("name", "other", "aspect"))
    lines = []
    for kind in LINES:
        given: dict[str, Any] = {
            "id": UUID, "memory_id": UUID, "turn_memory_id": UUID, "last_turn": UUID,
            "target_id": UUID, "extracted_turns": [UUID], "first_occurred_at": None,
            "entity": name, "aspect": aspect, "source": name, "target": other, "main": name,
            "candidates": [], "level": "partial", "session_id": "s1", "is_deleted": False,
        }  # fmt: skip
        if kind.__name__ == "PortableMemory":
            given |= {"content": f"{name.capitalize()} knows {other.capitalize()}."}
        if kind.__name__ == "PortableEdge":
            given |= {"source_id": UUID}
        if kind.__name__ == "PortableName":
            given |= {"canonical_name": name, "name": name}
        if kind.__name__ == "PortableAspect":
            given |= {"canonical_name": aspect}
        if kind.__name__ == "PortableMention":
            given |= {"name": name}
        lines.append(marked(marks, kind, **given))
        if kind.__name__ == "PortableName":
            lines.append(marked(marks, kind, **given | {"canonical_name": other, "main": other}))
    numbered = [{"number": number, "line": line} for number, line in enumerate(lines, 1)]
    command = {"command": "import", "from_scope": "src", "lines": numbered}
    record = sent(300, "memory-command/1", {"command": command})
    running.raw(MEMORY_COMMANDS, record)
    running.run()
    [result] = running.values(
        "SELECT result FROM command_results WHERE command = 'import' AND error IS NULL"
    )
    assert json.loads(result)["refused"] == []
    return record


def erase_scope(running: Pipeline, number: int) -> None:
    [count] = running.values(
        "SELECT count(*) FROM memory_rows WHERE scope = 'ana' AND content_hash <> ''"
    )
    command = EraseScopeCommand(reason="asked", confirm_token=erase_token("ana", count))
    running.command(command, first=number)
    running.run()
    assert running.result(number)[0] is None
    execute(running)


def left_in(folder: Path, marks: Marks) -> list[str]:
    return marks.left(where(folder, *marks.fields))


def test_of_a_scope_nothing_is_left(tmp_path: Path) -> None:
    marks = Marks()
    with opened(tmp_path, marks) as running:
        first, _ = tell_turns(running, marks)
        tell_broken(running, marks)
        tell_commands(running, marks, first)
        tell_import(running, marks)
        erase_scope(running, 500)
        assert left_in(tmp_path, marks) == []
        assert running.balance().holds
    assert left_in(tmp_path, marks) == []


def test_a_rebuild_of_what_is_left_is_the_same(tmp_path: Path) -> None:
    marks = Marks()
    with opened(tmp_path / "live", marks) as running:
        first, _ = tell_turns(running, marks)
        tell_broken(running, marks)
        tell_commands(running, marks, first, but="add-document")
        tell_import(running, marks)
        erase_scope(running, 500)
        before, gone = running.state_by_table(), running.values(ERASED_IDS)
    shutil.copytree(tmp_path / "live" / "log", tmp_path / "anew" / "log")
    with opened(tmp_path / "anew", marks) as again:
        again.run("decide").run("apply-writes").run()
        assert set(differing(again.state_by_table(), before)) <= {"proposals"}
        assert again.values(ERASED_IDS) == gone
        assert again.balance().holds


def execute(running: Pipeline) -> None:
    """Twice: what the graph forgets is in the files until then."""
    for _ in range(2):
        running.run()
        execute_in(running.log, 0, running.shard)


OF_NO_MEMORY = re.compile(
    r"(Alias|Unalias|AddToGraph|RemoveFromGraph|EditEntity|ApplyProposals|DismissProposals|DeleteDocument|SessionEnd)Command\."
    r"|(SetFlags|SetPrivacy|SetRetention)Command\.|RecordAccess.*\.(asked_by|recall_id):"
    r"|alias\.|set-privacy\.|PortablePrivacy\."
    r"|Portable\w+\..*\b(changed_by|updated_by|correlation_id|model|prompt_version):"
)
"""What the scope itself was told, and who or what made a memory: it goes with the whole scope."""


def of_memories(left: list[str]) -> list[str]:
    return [each for each in left if not OF_NO_MEMORY.match(each)]


def erase_all_memories(running: Pipeline) -> None:
    ids = running.values("SELECT memory_id FROM memory_rows WHERE content_hash <> ''")
    command = ForgetCommand(memory_ids=tuple(ids), reason="asked", hard=True, cascade=True)
    running.command(command, first=500)
    execute(running)


@pytest.mark.parametrize("what", ["turns", "commands", "import"])
def test_of_single_memories_nothing_is_left(what: str, tmp_path: Path) -> None:
    marks = Marks()
    with opened(tmp_path / "live", marks) as running:
        if what == "import":
            tell_import(running, marks)
        else:
            first, _ = tell_turns(running, marks)
        if what == "commands":
            tell_commands(running, marks, first, but="add-document")
        erase_all_memories(running)
        assert of_memories(left_in(tmp_path, marks)) == []
        before, gone = running.state_by_table(), running.values(ERASED_IDS)
    shutil.copytree(tmp_path / "live" / "log", tmp_path / "anew" / "log")
    with opened(tmp_path / "anew", marks) as again:
        again.run("decide").run("apply-writes").run()
        assert set(differing(again.state_by_table(), before)) <= {"proposals"}
        assert again.values(ERASED_IDS) == gone
        assert again.balance().holds
    assert of_memories(left_in(tmp_path, marks)) == []


def test_an_imported_graph_goes_and_does_not_come_back(tmp_path: Path) -> None:
    marks = Marks()
    with opened(tmp_path, marks) as running:
        imported = tell_import(running, marks)
        [memory] = running.values("SELECT memory_id FROM memory_rows")
        command = ForgetCommand(memory_ids=(memory,), reason="asked", hard=True)
        running.command(command, first=500)
        execute(running)
        told = {word for word, field in marks.fields.items() if field.startswith("import.")}
        assert where(tmp_path, *told) == []
        running.raw(MEMORY_COMMANDS, imported.replace(b"000000000300", b"000000000301"))
        running.run()
        assert running.values("SELECT name FROM name_rows") == []
        assert running.values("SELECT relation_type FROM relation_rows") == []


def test_a_level_of_privacy_goes_on_to_hold(tmp_path: Path) -> None:
    with Pipeline(tmp_path, pipeline_settings(FULL)) as running:
        running.command(level("Zqanamarked", "full"))
        running.run()
        erase_scope(running, 500)
        assert where(tmp_path, "Zqanamarked") == []
        running.ingest(turn("I live in Oslo.", speaker="zqanamarked"))
        running.run()
        assert running.values("SELECT content FROM memory_rows WHERE content <> ''") == []
        running.command(level("ZqAnaMarked", "none"), first=501)
        running.run()
        running.ingest(turn("I live in Bergen.", 2, speaker="Zqanamarked"))
        running.run()
        assert running.values("SELECT content FROM memory_rows WHERE type = 'episodic'") != []
