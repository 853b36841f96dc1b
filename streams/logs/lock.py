"""One process at a time: OS locks on files in the log's folder.

The kernel releases a lock when its holder ends, however it ends, so a lock never has to be removed
by hand; the files stay and only name the holder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from palimpsest.streams.logs.base import LogError, LogInUse

LOCK_NAME: Final = "log.lock"
APPEND_TIMEOUT_SECONDS: Final = 30.0
"""How long an append waits for the appends of other processes."""
_APPEND_POLL_SECONDS: Final = 0.001


class FolderLock:
    """The right to process the log of a folder; held from `acquire` to `release`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, path: Path, since: datetime) -> FolderLock:
        """Takes the lock at once, never waiting.

        Raises LogError naming the holder's process id if another process (or another open log of
        this one) has it, and if the file cannot be written."""
        descriptor = _open(path)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                raise LogInUse(
                    f"the log in {path.parent} is being processed by {holder(path)};"
                    " stop that process first, or only publish to the log or read it"
                ) from error
            if _lies_at(descriptor, path):
                break
            os.close(descriptor)  # the folder was replaced by another one meanwhile
            descriptor = _open(path)
        lock = cls(path, descriptor)
        try:
            lock._sign(since)
        except OSError as error:
            lock.release()
            raise LogError(f"cannot write the lock file {path}: {error.strerror}") from error
        return lock

    def _sign(self, since: datetime) -> None:
        if self._descriptor is None:
            return
        tag = json.dumps({"pid": os.getpid(), "since": since.isoformat(timespec="seconds")})
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, tag.encode(), 0)

    def release(self) -> None:
        """Releases the lock; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def holder(path: Path) -> str:
    """Returns who signed the lock file, as text for a person: process id and start time."""
    try:
        tag = json.loads(path.read_text())
        return f"process {int(tag['pid'])}, since {tag['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        # The holder has the lock but has not signed yet.
        return "another process"


class AppendLock:
    """Lets the appending processes begin one after another.

    Without it a process that appends without a pause starves the others: SQLite's busy wait sleeps
    up to 100 ms between attempts, while the file is free for parts of a millisecond."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = _open(path)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Held while the context lasts. Raises LogError when another process keeps it too long."""
        deadline = time.monotonic() + APPEND_TIMEOUT_SECONDS
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LogError(
                        f"another process kept {self.path} locked for"
                        f" {APPEND_TIMEOUT_SECONDS:.0f} s; look for a process that hangs"
                    ) from None
                time.sleep(_APPEND_POLL_SECONDS)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _lies_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LogError(
            f"cannot write the lock file {path}: {error.strerror};"
            " make the folder writable or open the log for reading only"
        ) from error
