"""Locks on files: one process at a time has one, and the kernel releases it with the process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import time
from collections.abc import Callable
from pathlib import Path


def opened(path: Path) -> int:
    """The descriptor of a lock file, made where there is none. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def locked(path: Path, opened: Callable[[Path], int] = opened) -> int | None:
    """Locks the file that lies there, also if its folder is replaced by another one meanwhile.
    Returns its descriptor; None if another process has it locked. Raises what `opened` raises."""
    while True:
        descriptor = opened(path)
        if not acquired(descriptor):
            os.close(descriptor)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)


def is_held(lock: Path) -> bool:
    """Whether a process has this file locked. Writes nothing, and keeps nobody from the lock
    (`acquired`)."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def acquired(descriptor: int) -> bool:
    """Locks the open file unless another process has it locked. Who only looks (`is_held`) shares
    it for a moment, which is over soon."""
    while True:
        for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                break
        else:
            return False
        if kind == fcntl.LOCK_EX:
            return True
        # Two that want it may share it, too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(random.uniform(0, 0.001))
