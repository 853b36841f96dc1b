"""Replays that run by themselves, ordered by programs."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from palimpsest import Client, Memory, NotFoundError, RequestError
from palimpsest.ops.errors import UnavailableError
from palimpsest.ops.replay import jobs
from palimpsest.ops.settings.sections import Settings
from palimpsest.streams.logs.file_lock import is_held
from tests.flows.http_server import server
from tests.flows.program import until

SAID = ("I moved to Lisbon in March.", "I like green tea.")


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    with Memory(tmp_path, scope="ana", settings={"embedding.provider": "hashing"}) as opened:
        for text in SAID:
            opened.add(text, speaker="Ana")
        opened.wait_until_processed()
        yield opened


def test_a_branch_by_the_library(memory: Memory) -> None:
    told = memory.start_replay("reextract", branch="b", provider="rules", dry_run=True, wait=True)
    assert (told.state, told.error) == ("done", None)
    assert isinstance(told.result, dict)
    assert told.result["turns"] == len(SAID)
    assert memory.branches().branches == ()
    made = memory.start_replay("reextract", branch="b", provider="rules", wait=True)
    assert (made.state, made.error) == ("done", None)
    assert [(each.name, each.whole) for each in memory.branches().branches] == [("b", True)]
    found = memory.start_replay("diff", branch="b", wait=True)
    assert isinstance(found.result, dict)
    assert found.result["totals"] == {"same": 2, "changed": 0, "gained": 0, "lost": 0}
    assert (found.result["scopes"], found.result["lines"]) == (1, 1)
    page = memory.replay_differences(found.id)
    assert [each["what"] for each in page.differences] == ["scope"]
    assert page.next_cursor is None
    with pytest.raises(NotFoundError, match="no differences"):
        memory.replay_differences(made.id)
    promoted = memory.start_replay("promote", branch="b", wait=True)
    assert isinstance(promoted.result, dict)
    assert [each["status"] for each in promoted.result["scopes"]] == ["nothing"]
    assert [each.id for each in memory.replays().replays] == [
        each.id for each in (promoted, found, made, told)
    ]
    memory.drop_branch("b")
    assert memory.branches().branches == ()


def test_what_cannot_be_ordered(memory: Memory) -> None:
    with pytest.raises(RequestError, match="kind: Input should be 'rebuild', 'reextract'"):
        memory.start_replay("nothing")
    with pytest.raises(RequestError, match="cannot name a branch"):
        memory.start_replay("promote", branch="../b")
    with pytest.raises(RequestError, match="a reextract takes a time, not an offset"):
        memory.start_replay("reextract", branch="b", until=5)
    with pytest.raises(RequestError, match="a diff has no sample"):
        memory.start_replay("diff", branch="b", sample=2)
    with pytest.raises(RequestError, match="promotion: is missing"):
        memory.start_replay("rollback")
    with pytest.raises(RequestError, match="base_url: there is no such argument"):
        memory.start_replay("reextract", branch="b", base_url="http://evil.example")
    assert memory.replays().replays == ()
    failed = memory.start_replay("diff", branch="none", wait=True)
    assert failed.state == "failed"
    assert "there is no branch none" in (failed.error or "")
    assert memory.stop_replay(failed.id) == failed
    for of_none in (memory.get_replay, memory.stop_replay):
        with pytest.raises(NotFoundError, match="there is no replay"):
            of_none("none")
    with pytest.raises(NotFoundError, match="there is no branch"):
        memory.drop_branch("none")


def test_over_http(tmp_path: Path) -> None:
    with (
        server(tmp_path, "embedding.provider=hashing") as running,
        Client(running.address, scope="ana") as memory,
    ):
        memory.add(SAID[0], speaker="Ana")
        memory.wait_until_processed()
        rebuilt = memory.start_replay("rebuild", name="again", wait=True)
        assert (rebuilt.state, rebuilt.error) == ("done", None)
        assert isinstance(rebuilt.result, dict)
        assert rebuilt.result["equal"]
        assert [each.name for each in memory.branches().branches] == ["again"]


def started(settings: Settings, **order: Any) -> str:
    return str(jobs.start(settings, order)["id"])


def state(settings: Settings, replay_id: str) -> str:
    return str(jobs.show(settings, replay_id)["state"])


def owner(settings: Settings, replay_id: str) -> int:
    lock = settings.data_dir / "replays" / replay_id / f"{jobs.LOCK}.lock"
    return int(lock.read_text())


def test_one_that_is_stopped_or_killed_goes_on(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn takes a hundred seconds at the slowest rate there is: both are under way when they
    end."""
    settings = Settings.model_validate({"data_dir": tmp_path, "embedding": {"provider": "hashing"}})
    slow = {"kind": "reextract", "branch": "slow", "provider": "rules", "rate": 0.01}
    first = started(settings, **slow)
    until((settings.data_dir / "branches" / "slow" / "branch.json").exists)
    second = started(settings, kind="diff", branch="none")
    until(lambda: state(settings, second) == "failed")
    jobs.stop(settings, first)
    until(lambda: state(settings, first) != "running")
    assert state(settings, first) == "stopped"
    third = started(settings, **slow)
    os.kill(owner(settings, third), signal.SIGKILL)
    until(lambda: state(settings, third) != "running")
    killed = jobs.show(settings, third)
    # Somebody else looks at it at this moment: nobody takes whoever looks for the replay.
    with (settings.data_dir / "replays" / third / f"{jobs.LOCK}.lock").open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        with monkeypatch.context() as patch:
            patch.setattr(os, "kill", lambda *signalled: pytest.fail(f"signalled {signalled}"))
            assert jobs.stop(settings, third) == killed
    assert owner(settings, third) != os.getpid()
    assert (killed["state"], killed["result"]) == ("failed", None)
    assert "goes on from where it was" in str(killed["error"])
    last = memory.start_replay("reextract", branch="slow", provider="rules", wait=True)
    assert (last.state, last.error) == ("done", None)
    assert [each.whole for each in memory.branches().branches] == [True]


def test_not_too_many_at_once(memory: Memory, tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path, "embedding": {"provider": "hashing"}})
    running = [
        started(settings, kind="reextract", branch=name, provider="rules", rate=0.01)
        for name in ("a", "b")
    ]
    with pytest.raises(UnavailableError, match=running[0]):
        started(settings, kind="diff", branch="a")
    for each in running:
        jobs.stop(settings, each)
    until(lambda: {state(settings, each) for each in running} == {"stopped"})


def test_old_ones_are_forgotten(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MOST_KEPT", 1)
    settings = Settings.model_validate({"data_dir": tmp_path})
    first = started(settings, kind="diff", branch="none")
    until(lambda: state(settings, first) == "failed")
    # Its process tells how it ended, and ends then.
    until(lambda: not is_held(jobs._lock(tmp_path / "replays" / first)))
    second = started(settings, kind="diff", branch="none")
    assert [path.name for path in (tmp_path / "replays").iterdir()] == [second]
    until(lambda: state(settings, second) == "failed")
