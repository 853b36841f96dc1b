"""A lock on a file: who only looks takes it from nobody."""

from __future__ import annotations

import fcntl
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palimpsest.stores.lock import FolderInUse, FolderLock
from palimpsest.streams.logs import file_lock
from palimpsest.streams.logs.base import LogInUse
from palimpsest.streams.logs.file_lock import acquired, is_held
from palimpsest.streams.logs.logfile import LogLock


@pytest.fixture
def looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file at which another process looks, until who wants to lock it has tried once."""
    path = tmp_path / "own.lock"
    looking = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr(file_lock.time, "sleep", lambda _: fcntl.flock(looking, fcntl.LOCK_UN))
    return path


def test_one_that_somebody_looks_at_can_be_taken(looked_at: Path) -> None:
    descriptor = os.open(looked_at, os.O_RDWR)
    assert acquired(descriptor)
    assert is_held(looked_at)
    os.close(descriptor)
    assert not is_held(looked_at)


def test_so_can_that_of_a_folder(looked_at: Path) -> None:
    FolderLock(looked_at.parent, "own").release()


def test_so_can_that_of_the_log(looked_at: Path) -> None:
    LogLock.acquire(looked_at, datetime.now(UTC)).release()


def test_one_that_is_taken_is_refused_and_names_its_owner(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path, "own")
    assert is_held(tmp_path / "own.lock")
    with pytest.raises(FolderInUse, match=f"in use by process {os.getpid()}"):
        FolderLock(tmp_path, "own")
    lock.release()
    log = LogLock.acquire(tmp_path / "log.lock", datetime.now(UTC))
    with pytest.raises(LogInUse, match=f"by process {os.getpid()}"):
        LogLock.acquire(tmp_path / "log.lock", datetime.now(UTC))
    log.release()


def test_looking_writes_nothing_and_needs_no_file(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "none.lock")
    path = tmp_path / "own.lock"
    path.write_text("4711\n")
    path.chmod(0o400)
    assert not is_held(path)
    assert path.read_text() == "4711\n"


def test_of_many_that_want_it_while_others_look_each_gets_it_once_at_a_time(
    tmp_path: Path,
) -> None:
    done, inside, most = threading.Event(), [0], [0]
    path = tmp_path / "own.lock"
    path.touch()

    def look() -> None:
        while not done.is_set():
            is_held(path)

    def take() -> None:
        taken = 0
        while taken < 20:
            descriptor = os.open(path, os.O_RDWR)
            if acquired(descriptor):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                taken += 1
                inside[0] -= 1
            os.close(descriptor)

    looking = [threading.Thread(target=look) for _ in range(4)]
    taking = [threading.Thread(target=take) for _ in range(3)]
    for thread in looking + taking:
        thread.start()
    for thread in taking:
        thread.join()
    done.set()
    for thread in looking:
        thread.join()
    assert most == [1]
