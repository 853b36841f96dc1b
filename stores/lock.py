"""One owner of a folder at a time, by a lock that the kernel drops with the process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class FolderInUse(Exception):
    """Another process owns the folder; the text names it and says what to do."""


class FolderLock:
    """An exclusive lock on `<folder>/<name>.lock`, which holds the owner's process id."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"{name}.lock"
        self._descriptor = -1
        while not self._lies_at(path):
            self.release()
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                owner = os.pread(self._descriptor, 64, 0).decode(errors="replace").strip()
                self.release()
                raise FolderInUse(
                    f"{folder} is in use by process {owner or 'unknown'}: only one process may own"
                    f" a {name}; stop that one, or give this one another folder (--data-dir)"
                ) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _lies_at(self, path: Path) -> bool:
        """Whether what is locked is the folder's file still: the folder may have been exchanged
        for another one since it was opened."""
        if self._descriptor < 0:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Give the folder free; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
