"""A limit on the time that a stage spends on one record, so that no input keeps it from the next
record.

Code that runs too long is interrupted between two steps of the interpreter. A call into a library
that never returns is not interrupted: other modules ensure that no expression takes more than
linear time."""

from __future__ import annotations

import ctypes
import threading
import time
from contextlib import suppress
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
        # Without the lock, as every step of every record comes here: a set's methods are atomic.
        bound = _Bound(threading.get_ident(), time.monotonic() + seconds)
        self._bounds.add(bound)
        if not self._busy.is_set():
            with self._lock:
                if not self._watching:
                    threading.Thread(target=self._watch, name="record-limit", daemon=True).start()
                    self._watching = True
            self._busy.set()
        return bound

    def leave(self, bound: _Bound) -> None:
        try:
            self._bounds.remove(bound)
        except KeyError:
            with self._lock:  # it is being interrupted
                _raise_in(bound.thread, None)

    def _watch(self) -> None:
        while self._busy.wait():
            time.sleep(LOOK_SECONDS)
            self._busy.clear()
            if self._bounds:  # after `clear`: who enters now finds it cleared
                self._busy.set()
            now = time.monotonic()
            with self._lock:
                for late in [each for each in self._bounds.copy() if each.deadline <= now]:
                    with suppress(KeyError):  # it has just left
                        self._bounds.remove(late)
                        _raise_in(late.thread, _Interrupt)


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    given = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)


_WATCH: Final = _Watch()


class bounded:  # noqa: N801 (used as a function)
    """A context that raises RecordTooSlow out of a block, without awaits, that takes longer."""

    __slots__ = ("_bound", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        try:
            self._bound = _WATCH.enter(self._seconds)
        except _Interrupt:
            raise self._too_slow() from None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            _WATCH.leave(self._bound)
        except _Interrupt:
            kind = _Interrupt
        if kind is _Interrupt:
            raise self._too_slow() from None

    def _too_slow(self) -> RecordTooSlow:
        return RecordTooSlow(f"the record took longer than {self._seconds:g} s")
