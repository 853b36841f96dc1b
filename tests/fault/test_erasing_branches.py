"""What is erased live leaves every branch of the data folder, and what replays told, without being
asked to; also where it is stopped on the way."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.errors import RequestError
from palimpsest.ops.replay import erased_branches
from palimpsest.ops.replay.branches import WORKING, branch_folder, branch_statuses, readable_branch
from palimpsest.ops.replay.rebuild import rebuild
from palimpsest.ops.replay.requests import Rebuild
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.worker.bootstrap import application
from palimpsest.schemas.commands import EraseScopeCommand, ForgetCommand, RememberCommand
from palimpsest.schemas.identity import erase_token
from palimpsest.stores.lock import FolderLock
from palimpsest.stores.shard import Shard
from tests.erased_bytes import where
from tests.fault.driver import run_and_kill, tell
from tests.fault.test_reextraction_kills import modify
from tests.flows.test_reextraction import NEW, OLD, TURNS
from tests.replayed import Live, facts, live_settings, provider, rows

TURN = "My doctor says I have gout"
GONE = (TURN, "Ana has gout", "Ana suffers from gout", "gout")
SAID = {
    "old": {TURN: ["Ana has gout"], **OLD},
    "new": {TURN: ["Ana suffers from gout", "Ana likes it when gout is spoken of"], **NEW},
}


async def lived(folder: Path, url: str) -> Live:
    """Live facts, and a branch of each kind that has them; then all is erased in the tables of the
    live memory, and in no file."""
    live = Live(live_settings(folder, url))
    live.say(TURN, *TURNS[:4])
    live.say(*TURNS[:3], scope="ben", first=40)
    await live.run()
    await live.branch()
    await live.branch("dropped")
    await rebuild(live.settings, Rebuild(name="then", until=3))
    await rebuild(live.settings, Rebuild(name="again", swap=True))
    await rebuild(live.settings, Rebuild())
    half = branch_folder(live.settings, "half")
    shutil.copytree(branch_folder(live.settings, "rebuild"), half)
    told = json.loads((half / "branch.json").read_text())
    (half / "branch.json").write_text(json.dumps(told | {"name": "half", "whole": False}))
    shutil.copytree(half / "shards", half / "live")
    dropped = branch_folder(live.settings, "dropped")
    dropped.rename(dropped.with_name(".dropped.removed"))
    replayed(folder, "diff")
    return live


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("past")

    async def live() -> None:
        async with provider(SAID) as server:
            await lived(folder, server.url)

    asyncio.run(live())
    return folder


def replayed(folder: Path, kind: str) -> None:
    """A replay that has ended, and told of the facts."""
    job = folder / "replays" / f"{kind}-1"
    job.mkdir(parents=True)
    (job / "order.json").write_text(
        json.dumps({"order": {"kind": kind, "branch": "new"}, "started_at": "2026-03-01T10:00:00Z"})
    )
    end = {"state": "done", "result": {"facts": [*GONE]}, "ended_at": "2026-03-01T10:00:01Z"}
    (job / "end.json").write_text(json.dumps(end))


def erase(live: Live) -> None:
    [turn] = live.rows("SELECT memory_id FROM memory_rows WHERE content = ?", TURN)
    live.command(
        ForgetCommand(memory_ids=(turn[0],), reason="private", hard=True, cascade=True, force=True)
    )


async def work(settings: Settings) -> None:
    async with application(settings) as app:
        await app.run(until_drained=True)


async def test_an_erasure_reaches_all_that_lies_beside_the_live_memory(
    past: Path, tmp_path: Path
) -> None:
    shutil.copytree(past, tmp_path, dirs_exist_ok=True)
    async with provider(SAID) as server:
        live = Live(live_settings(tmp_path, server.url), commands=9)
        names = {path.name for path in (tmp_path / "branches").iterdir()}
        assert {"new", "then", "rebuild", "half", ".dropped.removed"} < names
        assert any(name.startswith("replaced-") for name in names)
        for name in names:
            assert where(tmp_path / "branches" / name, *GONE), name
        before = facts(live.of_branch())
        erase(live)
        asked = len(server.posts)
        await work(live.settings)
        assert where(tmp_path, *GONE) == []
        assert len(server.posts) == asked
        assert set(facts(live.of_branch())) == {f for f in before if "gout" not in f}
        assert [each["erasures"] for each in branch_statuses(live.settings)] == [0] * len(
            names - {".dropped.removed"}
        )
        for name in ("then", "new"):
            readable_branch(live.settings, name)
        [(text,)] = rows(
            live.of_branch("then"), "SELECT content FROM memory_rows WHERE content = ?", TURNS[0]
        )
        assert text == TURNS[0]
        with pytest.raises(RequestError, match="not finished"):
            readable_branch(live.settings, "half")
        # The branch is fed on as if nothing had been, and what people did stays accounted for.
        live.say(TURNS[5], first=60)
        await work(live.settings)
        done = await live.branch()
        assert (done.ended, done.waiting, done.branch.whole) == ("done", 0, True)
        assert rows(live.of_branch(), "SELECT holds FROM pipeline_total") == [(True,)]
        assert where(tmp_path, *GONE) == []
    # Stores that lost texts after they were made are made again, not gone on with.
    done_again = await rebuild(live.settings, Rebuild())
    assert done_again.is_equal
    assert done_again.partitions[0].not_compared is None
    assert (await rebuild(live.settings, Rebuild(swap=True))).kept is not None


async def test_a_scope_that_is_erased_leaves_nothing_in_a_branch(tmp_path: Path) -> None:
    async with provider(SAID) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(TURN, *TURNS[:3])
        live.command(RememberCommand(content="Ana sees Dr Gout on Mondays"))
        live.say(*TURNS[:2], scope="ben", first=40)
        await live.run()
        own = live.facts()
        live.command(modify(own["Ana has gout"], content="Ana had gout once"))
        await live.run()
        await live.branch()
        known = facts(live.of_branch(), "ben")
        [(count,)] = live.rows("SELECT count(*) FROM memory_rows WHERE scope = 'ana'")
        live.command(EraseScopeCommand(reason="she left", confirm_token=erase_token("ana", count)))
        await work(live.settings)
        texts = {text for turn in (TURN, *TURNS[:3]) for text in (turn, *SAID["new"][turn])}
        kept = {text for turn in TURNS[:2] for text in (turn, *SAID["new"][turn])}
        assert where(tmp_path, *(texts - kept), "Dr Gout", "gout once") == []
        of_ana = "SELECT count(*) FROM memory_rows WHERE scope = 'ana' AND content <> ''"
        assert rows(live.of_branch(), of_ana) == [(0,)]
        names = "SELECT count(*) FROM name_rows WHERE scope = 'ana'"
        assert rows(live.of_branch(), names) == [(0,)]
        assert facts(live.of_branch(), "ben") == known
        await live.branch()
        assert where(branch_folder(live.settings, "new"), *(texts - kept), "gout") == []


async def test_a_fact_that_was_erased_alone_leaves_its_counterparts_nowhere(tmp_path: Path) -> None:
    """Also those that were only forgotten in the branch, and could have been recovered there."""
    async with provider(SAID) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(TURNS[0], TURN)
        await live.run()
        fact = live.facts()["Ana has gout"]
        live.command(ForgetCommand(memory_ids=(fact,), reason="not so"))
        await live.run()
        await live.branch()
        folder = branch_folder(live.settings, "new")
        assert where(folder, "suffers from gout")
        live.command(ForgetCommand(memory_ids=(fact,), reason="private", hard=True))
        await work(live.settings)
        left = "SELECT content FROM memory_rows WHERE type <> 'episodic' AND content LIKE '%gout%'"
        assert rows(live.of_branch(), left) == []
        assert list(facts(live.of_branch())) == NEW[TURNS[0]]


async def test_a_branch_in_use_is_told_and_reached_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with provider(SAID) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(TURN, TURNS[0])
        await live.run()
        await live.branch()
        await rebuild(live.settings, Rebuild())
    lock = FolderLock(branch_folder(live.settings, "new"), WORKING)
    erase(live)
    await work(live.settings)
    assert "still in the branch new" in caplog.text
    assert where(branch_folder(live.settings, "new"), *GONE)
    assert where(branch_folder(live.settings, "rebuild"), *GONE) == []
    assert [each["erasures"] for each in branch_statuses(live.settings)] == [1, 0]
    lock.release()
    await work(live.settings)
    assert where(tmp_path, *GONE) == []


async def test_a_store_that_cannot_be_read_any_more_is_removed(tmp_path: Path) -> None:
    live = Live(live_settings(tmp_path))
    live.say("I am allergic to gout pills", "I live in Ghent.")
    await live.run()
    await rebuild(live.settings, Rebuild())
    file = branch_folder(live.settings, "rebuild") / "shards" / "0" / "memory.duckdb"
    os.truncate(file, file.stat().st_size // 3)
    [turn] = live.rows("SELECT memory_id FROM memory_rows WHERE content LIKE 'I am allergic%'")
    live.command(ForgetCommand(memory_ids=(turn[0],), reason="x", hard=True, cascade=True))
    await work(live.settings)
    assert not file.exists()
    assert where(tmp_path, "allergic") == []
    with pytest.raises(RequestError, match="not finished"):
        readable_branch(live.settings, "rebuild")
    assert (await rebuild(live.settings, Rebuild())).is_equal


STEPS: tuple[tuple[Any, str], ...] = (
    (erased_branches, "keep_branch"),
    (erased_branches, "_forget_in_graph"),
    (erased_branches, "_erase"),
    (erased_branches, "execute_in"),
    (Shard, "rewrite"),
    (erased_branches, "write_whole"),
)


def reaching(settings: Settings, told: Connection) -> None:
    """Carry the erasure out, telling of every step among the branches before and after it."""

    def telling(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            tell(told, "before")
            result = call(*given, **named)
            tell(told, "after")
            return result

        return run

    for owner, name in STEPS:
        setattr(owner, name, telling(getattr(owner, name)))
    asyncio.run(work(settings))
    tell(told, "")


@pytest.mark.parametrize(
    "moments",
    [(1, 8, 99), pytest.param((5, 10, 12), marks=pytest.mark.soak)],
    ids=["few", "others"],
)
def test_killed_on_the_way_the_next_worker_ends_it(
    past: Path, tmp_path: Path, moments: tuple[int, ...]
) -> None:
    begun = tmp_path / "begun"
    shutil.copytree(past, begun)
    for path in (begun / "branches").iterdir():
        if path.name not in ("new", "half"):
            shutil.rmtree(path)
    live = Live(live_settings(begun), commands=9)
    erase(live)
    asyncio.run(live.run())
    for after in moments:
        folder = tmp_path / str(after)
        shutil.copytree(begun, folder)
        settings = live.settings.model_copy(update={"data_dir": folder})
        assert (run_and_kill(reaching, settings, after=after) is not None) == (after < 99)
        asyncio.run(work(settings))
        assert where(folder, *GONE) == [], after
        own = replace(live, settings=settings).of_branch()
        assert rows(own, "SELECT holds FROM pipeline_total") == [(True,)]
