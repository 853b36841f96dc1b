"""The history of a memory has a command's event as soon as the command is answered, whether or not
audit has read it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from palimpsest import Memory
from palimpsest.ops.operations.memories import List
from palimpsest.ops.operations.operation import Read
from palimpsest.ops.operations.provenance import Explain, History
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import MemoryPatch, ModifyCommand, RememberCommand
from tests.harness import Crash, Pipeline

SETTINGS = {"embedding.provider": "hashing"}
UNREAD = ("normalize", "apply-writes")


def ask(pipeline: Pipeline, operation: Read[Any]) -> Any:
    sources = Sources(
        Settings(), pipeline.log, {0: pipeline.shard}, 1, pipeline.embedding, lambda _: None
    )
    return asyncio.run(DirectQueries(sources).answer(operation))


def told(pipeline: Pipeline, memory_id: str) -> list[Any]:
    events = ask(pipeline, History(memory_id))["events"]
    assert ask(pipeline, Explain(memory_id))["history"] == events
    return [(each["event"], each["new_content"]) for each in events]


def test_history_tells_what_audit_has_not_read(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.command(RememberCommand(content="Tea at four"))
        pipeline.run(*UNREAD)
        [memory] = ask(pipeline, List(scope="ana"))["memories"]
        assert told(pipeline, memory["id"]) == [("created", "Tea at four")]
        pipeline.run("audit")
        patch = MemoryPatch(memory_id=memory["id"], content="Tea at five")
        pipeline.command(ModifyCommand(patches=[patch], reason="late"), first=2)
        pipeline.run(*UNREAD)
        both = [("created", "Tea at four"), ("updated", "Tea at five")]
        assert told(pipeline, memory["id"]) == both
        before = ask(pipeline, History(memory["id"]))
        pipeline.run("audit")
        assert ask(pipeline, History(memory["id"])) == before


def test_what_is_not_sent_yet_comes_after_what_audit_has_not_read(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.command(RememberCommand(content="Tea at four"))
        pipeline.run(*UNREAD)
        [memory] = ask(pipeline, List(scope="ana"))["memories"]
        patch = MemoryPatch(memory_id=memory["id"], content="Tea at five")
        pipeline.command(ModifyCommand(patches=[patch], reason="late"), first=2)
        pipeline.crash_at("apply-writes", "commit")
        with pytest.raises(Crash):
            pipeline.run(*UNREAD)
        assert told(pipeline, memory["id"]) == [
            ("created", "Tea at four"),
            ("updated", "Tea at five"),
        ]


TIMES = 2


def test_in_process_it_tells_every_command_at_once(tmp_path: Path) -> None:
    with Memory(tmp_path, scope="ana", settings=SETTINGS, wait_seconds=60.0) as memory:
        for number in range(TIMES):
            made = memory.remember(f"Tea number {number} is green.")
            assert [each.event for each in memory.history(made.id).events] == ["created"]
            memory.correct(made.id, f"Tea number {number} is black.")
            assert [each.event for each in memory.history(made.id).events] == ["created", "updated"]
