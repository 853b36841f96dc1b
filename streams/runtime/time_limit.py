"""A limit on the time that a stage spends on one record, so that no input keeps it from the next
record.

Code that runs too long is interrupted between two steps of the interpreter. A call into a library
that never returns is not interrupted: other modules ensure that no expression takes more than
linear time."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

LOOK_SECONDS: Final = 0.1


class RecordTooSlow(Exception):
    """A record exceeded the time limit of a stage."""


class _Interrupt(BaseException):
    """Raised in the thread that takes too long; no stage catches it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Bound:
    thread: int
    deadline: float


class _Watch:
    """A thread that watches the bounded blocks while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bounds: set[_Bound] = set()
        self._busy = threading.Event()
        self._watching = False

    def enter(self, seconds: float) -> _Bound:
        bound = _Bound(threading.get_ident(), time.monotonic() + seconds)
        with self._lock:
            self._bounds.add(bound)
            if not self._watching:
                threading.Thread(target=self._watch, name="record-limit", daemon=True).start()
                self._watching = True
        self._busy.set()
        return bound

    def leave(self, bound: _Bound) -> None:
        with self._lock:
            if bound in self._bounds:
                self._bounds.remove(bound)
                return
        _raise_in(bound.thread, None)  # it ended just when it was interrupted

    def _watch(self) -> None:
        while self._busy.wait():
            time.sleep(LOOK_SECONDS)
            now = time.monotonic()
            with self._lock:
                if not self._bounds:
                    self._busy.clear()
                for late in [each for each in self._bounds if each.deadline <= now]:
                    self._bounds.remove(late)
                    _raise_in(late.thread, _Interrupt)


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    given = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)


_WATCH: Final = _Watch()


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raises RecordTooSlow out of a block, without awaits, that takes longer."""
    try:
        bound = _WATCH.enter(seconds)
        try:
            yield
        finally:
            _WATCH.leave(bound)
    except _Interrupt:
        raise RecordTooSlow(f"the record took longer than {seconds:g} s") from None
