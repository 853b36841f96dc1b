"""Bounds on processor time that a busy machine does not break."""

from __future__ import annotations

import time
from collections.abc import Callable

TRIES = 5


def takes_at_most(seconds: float, call: Callable[[], object]) -> bool:
    """Whether the call needs at most so much of this thread's processor time, at one of several
    tries: whatever else runs on the machine only ever makes a time longer."""
    return any(_seconds(call) <= seconds for _ in range(TRIES))


def _seconds(call: Callable[[], object]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began
