"""Waking tasks of any event loop from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator


class Notifier:
    """Sets every listener's event, each in its own event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    @contextlib.contextmanager
    def listen(self) -> Iterator[asyncio.Event]:
        """An event that `notify` sets, for as long as the context lasts."""
        listener = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._listeners.add(listener)
        try:
            yield listener[1]
        finally:
            with self._lock:
                self._listeners.discard(listener)

    def notify(self) -> None:
        """Set the events of all that listen. Callable from any thread."""
        with self._lock:
            listeners = tuple(self._listeners)
        for loop, event in listeners:
            # The loop may have been closed since; nobody listens there any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)
