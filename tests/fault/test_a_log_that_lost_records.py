"""A store that is ahead of its log, as after an older copy of the log was restored or its WAL was
cut: all say the same, and what they say leads to a store that works."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from palimpsest.ops.cli.doctor import Finding, examine
from palimpsest.ops.errors import RequestError
from palimpsest.ops.opening import open_log
from palimpsest.ops.replay.repartition import check_processed
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.service.queries import queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.worker.bootstrap import application
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.logs.base import LogError
from tests.rebuilding import opened, rebuilt, settings_of

AHEAD = r"memory-writes\[0\] up to offset \d+, but the log ends at \d+"
WAY = "palimpsest replay rebuild --swap"
TEXTS = "SELECT content FROM memories WHERE type = 'episodic' ORDER BY content"


def says(folder: Path, *said: str, first: int = 0) -> None:
    with opened(folder) as pipeline:
        pipeline.say(*said, scope="ana", first=first)
        pipeline.run()


@pytest.fixture(params=["restored", "cut"])
def behind(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """A folder whose store has processed a turn that its log lost."""
    folder = tmp_path / "data"
    says(folder, "Ana lives in Oslo")
    older = tmp_path / "older"
    shutil.copytree(folder / "log", older)
    if request.param == "restored":
        says(folder, "Ana likes Bergen", first=100)
        shutil.rmtree(folder / "log")
        shutil.copytree(older, folder / "log")
        return settings_of(folder)
    with opened(folder) as pipeline:
        pipeline.say("Ana likes Bergen", scope="ana", first=100)
        pipeline.run()
        crashed = tmp_path / "crashed"
        shutil.copytree(folder, crashed, symlinks=True)
    (crashed / "shard").unlink()
    (crashed / "shard").symlink_to(crashed / "shards" / "0", target_is_directory=True)
    for wal in (crashed / "log").glob("*-wal"):
        os.truncate(wal, 0)
    for shared in (crashed / "log").glob("*-shm"):
        shared.unlink()
    return settings_of(crashed)


def stores_finding(settings: Settings) -> Finding:
    [found] = [each for each in asyncio.run(examine(settings)) if each.check == "stores"]
    return found


def run_once(settings: Settings) -> None:
    async def running() -> None:
        async with application(settings) as app:
            await app.run(until_drained=True)

    asyncio.run(running())


def texts(settings: Settings) -> list[str]:
    async def asking() -> list[str]:
        async with queries(settings) as found:
            return (await found.table(SqlRequest(TEXTS)))["content"].to_pylist()  # type: ignore[no-any-return]

    return asyncio.run(asking())


def test_a_store_ahead_of_its_log_is_made_again_as_all_say(behind: Settings) -> None:
    with pytest.raises(LogError, match=AHEAD) as refused:
        run_once(behind)
    assert WAY in str(refused.value)
    finding = stores_finding(behind)
    assert not finding.ok
    assert f"{finding.found}. {finding.advice}" == str(refused.value)
    with open_log(behind, "read") as log, pytest.raises(RequestError, match=AHEAD) as refused_too:
        check_processed(behind, log)
    assert str(refused_too.value) == str(refused.value)

    looked = rebuilt(behind)
    assert "the log lacks" in str(looked.partitions[0].not_compared)
    assert looked.kept is None
    done = rebuilt(behind, swap=True)
    assert done.kept is not None

    assert stores_finding(behind).ok
    run_once(behind)
    assert texts(behind) == ["Ana lives in Oslo"]
    says(behind.data_dir, "Ana works at Node.js", first=200)
    assert texts(behind) == ["Ana lives in Oslo", "Ana works at Node.js"]
    with open_log(behind, "read") as log:
        assert log.end_offset(MEMORY_WRITES.name, 0) > 0


@pytest.mark.parametrize("loss", ["truncated", "removed"])
def test_a_log_that_is_gone_while_its_stores_are_there_is_told_by_all(
    loss: str, tmp_path: Path
) -> None:
    says(tmp_path, "Ana lives in Oslo")
    settings = settings_of(tmp_path)
    whole = tmp_path / "copy"
    shutil.copytree(tmp_path / "log", whole)
    if loss == "truncated":
        os.truncate(tmp_path / "log" / "log.sqlite", 0)
    else:
        shutil.rmtree(tmp_path / "log")
    lost = "is empty" if loss == "truncated" else "is missing"
    told = f"log.sqlite {lost}, but .*stores.*: restore it from a copy"
    found = {each.check: each for each in asyncio.run(examine(settings))}
    assert not found["log"].ok
    with pytest.raises(LogError, match=told) as refused:
        run_once(settings)
    assert f"{found['log'].found}: {found['log'].advice}" == str(refused.value)
    for mode in ("publish", "read"):
        with pytest.raises(LogError, match=told):
            open_log(settings, mode)
    with pytest.raises((LogError, RequestError), match=told):
        texts(settings)
    if loss == "removed":
        assert not (tmp_path / "log" / "log.sqlite").exists()
    shutil.copytree(whole, tmp_path / "log", dirs_exist_ok=True)
    run_once(settings)
    assert texts(settings) == ["Ana lives in Oslo"]


def test_an_empty_log_without_stores_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "log.sqlite").touch()
    says(tmp_path, "Ana lives in Oslo")
    assert texts(settings_of(tmp_path)) == ["Ana lives in Oslo"]
    (tmp_path / "new" / "log").mkdir(parents=True)
    (tmp_path / "new" / "log" / "log.sqlite").touch()
    with open_log(settings_of(tmp_path / "new"), "publish") as log:
        assert log.partitions(MEMORY_WRITES.name) == 1
