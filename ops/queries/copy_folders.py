"""The folders of copies that SQL reads. The process that uses one holds its lock, so that what a
killed process left is known by a lock that nobody holds."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

PREFIX: Final = "sql-"
"""In a data folder."""
TEMPORARY_PREFIX: Final = "palimpsest-sql-"
"""Where the system has its temporary files, with those of others."""


class CopyFolder:
    """A new folder in the data folder, or with None where the system has its temporary files, until
    `cleanup`. Raises OSError."""

    def __init__(self, data_dir: Path | None) -> None:
        while True:
            prefix = TEMPORARY_PREFIX if data_dir is None else PREFIX
            self._folder = tempfile.TemporaryDirectory(prefix=prefix, dir=data_dir)
            self.path = Path(self._folder.name)
            with contextlib.suppress(FileNotFoundError):
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                _lock(self._lock)
                if self.path.exists():
                    return
                os.close(self._lock)  # removed as abandoned before it was locked

    def cleanup(self) -> None:
        self._folder.cleanup()
        os.close(self._lock)


def remove_abandoned(data_dir: Path) -> None:
    """Remove the folders of processes that are no longer there."""
    temporary = Path(tempfile.gettempdir()).glob(f"{TEMPORARY_PREFIX}*")
    for folder in (*data_dir.glob(f"{PREFIX}*"), *temporary):
        with contextlib.suppress(OSError):
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(held).st_uid == os.getuid() and _lock(held):
                    shutil.rmtree(folder)
            finally:
                os.close(held)


def _lock(descriptor: int) -> bool:
    """Whether the lock was free. A file system without locks has none that are."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
