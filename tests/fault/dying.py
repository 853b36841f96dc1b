"""For a process that is to be killed at a certain write to the disk."""

from __future__ import annotations

import os
import signal


def die_at_write(number: int) -> None:
    """From now on: this process is killed where it would sync for the time after so many."""
    left = [number]
    real = os.fsync

    def synced(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        real(descriptor)

    os.fsync = synced  # type: ignore[assignment]
