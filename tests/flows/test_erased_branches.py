"""Nothing that a person can fill in is in any file of a branch, or of stores that were made anew,
once it is erased: every field of every message, with a word of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from palimpsest.ops.bootstrap import publisher
from palimpsest.ops.embedded import Application, application
from palimpsest.ops.replay.rebuild import RebuildRequest, rebuild
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import Command, EraseScopeCommand, ForgetCommand
from palimpsest.schemas.identity import erase_token
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.streams.runtime.output import outgoing
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
from tests.messages import commanded
from tests.replayed import live_settings
from tests.spoken_model import ScriptedModel


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


@pytest.fixture
def turns_alone(tmp_path: Path, marks: Marks) -> tuple[Settings, tuple[str, ...]]:
    """A data folder with two turns and what was drawn from them, and the turns' ids."""
    with opened(tmp_path / "made", marks) as running:
        ids = tell_turns(running, marks)
    return moved(tmp_path), tuple(ids)


async def work(
    settings: Settings, marks: Marks, read: Callable[[Application], Command] | None = None
) -> Command | None:
    """Let a worker process all there is; what `read` makes of the stores then."""
    made = ScriptedModel(extraction(marks))
    async with application(settings, make_language=lambda _: made) as app:
        await app.run(until_drained=True)
        return None if read is None else read(app)


async def erase(
    settings: Settings, marks: Marks, command_of: Callable[[Application], Command]
) -> None:
    command = await work(settings, marks, command_of)
    assert command is not None
    with publisher(settings) as publish:
        publish([outgoing(MEMORY_COMMANDS, commanded(command, 900))])
    await work(settings, marks)
    await work(settings, marks)  # what the graph forgets is in the files until then


def values(app: Application, query: str) -> list[str]:
    with app.shards[0].reading() as reader:
        return [row[0] for row in reader.execute(query).fetchall()]


def all_of_it(app: Application) -> Command:
    [count] = values(app, "SELECT count(*) FROM memory_rows WHERE content_hash <> ''")
    return EraseScopeCommand(reason="asked", confirm_token=erase_token("ana", int(count)))


async def test_of_a_scope_nothing_is_left_in_a_branch(settings: Settings, marks: Marks) -> None:
    await work(settings, marks)
    await rebuild(settings, RebuildRequest("then", until=5))
    await rebuild(settings, RebuildRequest("again", swap=True, anyway=True))
    await work(settings, marks)
    await rebuild(settings, RebuildRequest("branch"))
    assert left_in(settings.data_dir / "branches", marks)
    await erase(settings, marks, all_of_it)
    assert left_in(settings.data_dir, marks) == []
    await rebuild(settings, RebuildRequest("after", swap=True, anyway=True))
    await work(settings, marks)
    assert left_in(settings.data_dir, marks) == []


async def test_of_memories_nothing_is_left_in_a_branch(
    turns_alone: tuple[Settings, tuple[str, ...]], marks: Marks
) -> None:
    settings, ids = turns_alone
    await work(settings, marks)
    await rebuild(settings, RebuildRequest("then", until=2))
    await rebuild(settings, RebuildRequest("again", swap=True, anyway=True))
    await work(settings, marks)
    await rebuild(settings, RebuildRequest("branch"))
    assert left_in(settings.data_dir / "branches", marks)
    forget = ForgetCommand(memory_ids=ids, reason="asked", hard=True, cascade=True)
    await erase(settings, marks, lambda app: forget)
    assert left_in(settings.data_dir, marks) == []
