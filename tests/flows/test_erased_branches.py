"""Nothing that a person can fill in is in any file of a branch, or of stores that were made anew,
once it is erased: every field of every message, with a word of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from palimpsest.ops.replay import jobs
from palimpsest.ops.replay.rebuild import rebuild
from palimpsest.ops.replay.requests import Rebuild
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.worker.bootstrap import application
from palimpsest.schemas.commands import EraseScopeCommand, ForgetCommand
from palimpsest.schemas.identity import erase_token
from palimpsest.streams.models.base import Prompt
from tests.erased_bytes import where
from tests.flows.program import until
from tests.flows.test_erased_fields import (
    extraction,
    left_in,
    opened,
    tell_broken,
    tell_commands,
    tell_import,
    tell_turns,
)
from tests.harness import DIMENSIONS, FULL
from tests.marked_fields import Marks
from tests.replayed import Live, live_settings, said_of
from tests.servers import Call, Raw, ScriptedProvider

pytestmark = pytest.mark.soak


@pytest.fixture
def marks() -> Marks:
    return Marks()


def moved(folder: Path) -> Settings:
    """What a pipeline in `made` has come to, as a data folder."""
    made, data = folder / "made", folder / "data"
    shutil.copytree(made / "log", data / "log")
    shutil.move(made / "shard", data / "shards" / "0")
    shutil.rmtree(made)
    embedding = {"provider": "hashing", "dimensions": DIMENSIONS}
    return live_settings(data, pipeline=dict(FULL), embedding=embedding)


@pytest.fixture
def settings(tmp_path: Path, marks: Marks) -> Settings:
    """A data folder whose log has all that can be said."""
    with opened(tmp_path / "made", marks) as running:
        first, _ = tell_turns(running, marks)
        tell_broken(running, marks)
        tell_commands(running, marks, first, but="add-document")
        tell_import(running, marks)
    return moved(tmp_path)


def drawing(marks: Marks) -> Callable[[Call], Raw | None]:
    """What a provider answers to an extraction: other words each time, whichever model is asked."""
    answer = extraction(marks)

    def drawn(call: Call) -> Raw | None:
        if said_of(call) is None:
            return None
        message = {"role": "assistant", "content": answer(Prompt("extract", "", "", {}, 1, {}))}
        choices = [{"index": 0, "message": message}]
        return Raw(200, json.dumps({"choices": choices}).encode())

    return drawn


async def test_of_single_memories_no_more_is_left_in_a_branch_than_live(
    settings: Settings, marks: Marks
) -> None:
    """Of all but one of them, and of the last one alone."""
    async with ScriptedProvider(models=["old", "new"], refusing=drawing(marks)) as server:
        llm = {"provider": "openai", "base_url": f"{server.url}/v1", "model": "old"}
        live = Live(Settings.model_validate(settings.model_dump() | {"llm": llm}), commands=900)
        await live.run()
        assert (await live.branch()).ended == "done"
        await rebuild(live.settings, Rebuild(name="then", until=5))
        await rebuild(live.settings, Rebuild(name="again", swap=True, anyway=True))
        await rebuild(live.settings, Rebuild(name="branch"))
        compared = str(jobs.start(live.settings, {"kind": "diff", "branch": "new"})["id"])
        until(lambda: jobs.show(live.settings, compared)["state"] == "done")
        query = "SELECT memory_id FROM memory_rows WHERE content_hash <> '' ORDER BY 1"
        while ids := [memory_id for (memory_id,) in live.rows(query)]:
            asked = tuple(ids[:-1] or ids)
            gone = ForgetCommand(
                memory_ids=asked, reason="asked", hard=True, cascade=True, force=True
            )
            live.command(gone)
            async with application(live.settings) as app:
                await app.run(until_drained=True)
        async with application(live.settings) as app:
            await app.run(until_drained=True)
    copies = (settings.data_dir / "branches", settings.data_dir / "replays")
    assert all(each.exists() for each in copies)
    left = [line for folder in copies for line in where(folder, *marks.fields)]
    for folder in copies:
        shutil.rmtree(folder)
    # Words of commands that concern no memory, and of what could not be processed.
    kept = {line.split("'")[1] for line in where(settings.data_dir, *marks.fields)}
    assert marks.left([line for line in left if line.split("'")[1] not in kept]) == []


async def test_of_a_scope_nothing_is_left_in_a_branch(settings: Settings, marks: Marks) -> None:
    """Neither in what a second model drew, nor in stores that were made anew before and after."""
    async with ScriptedProvider(models=["old", "new"], refusing=drawing(marks)) as server:
        llm = {"provider": "openai", "base_url": f"{server.url}/v1", "model": "old"}
        live = Live(Settings.model_validate(settings.model_dump() | {"llm": llm}), commands=900)
        await live.run()
        assert (await live.branch()).ended == "done"
        await rebuild(live.settings, Rebuild(name="then", until=5))
        await rebuild(live.settings, Rebuild(name="again", swap=True, anyway=True))
        await live.run()
        await rebuild(live.settings, Rebuild(name="branch"))
        assert left_in(settings.data_dir / "branches", marks)
        [(count,)] = live.rows("SELECT count(*) FROM memory_rows WHERE content_hash <> ''")
        live.command(EraseScopeCommand(reason="asked", confirm_token=erase_token("ana", count)))
        for _ in range(2):  # what the graph forgets is in the files until the second
            async with application(live.settings) as app:
                await app.run(until_drained=True)
        assert left_in(settings.data_dir, marks) == []
        await rebuild(live.settings, Rebuild(name="after", swap=True, anyway=True))
        await live.run()
    assert left_in(settings.data_dir, marks) == []
