"""Locks: one process at a time owns a folder, by a lock that the kernel releases with the process;
one of its stages at a time uses a store."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from palimpsest.streams.logs.file_lock import locked


class FolderInUse(Exception):
    """Another process owns the folder; the text names it and the remedy."""


class FolderLock:
    """An exclusive lock on `<folder>/<name>.lock`, which holds the owner's process id."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"{name}.lock"
        descriptor = locked(path)
        if descriptor is None:
            owner = ""
            with suppress(OSError):
                owner = path.read_text(errors="replace").strip()
            raise FolderInUse(
                f"{folder} is in use by process {owner or 'unknown'}: only one process may own"
                f" a {name}; stop that one, or give this one another folder (--data-dir)"
            )
        self._descriptor = descriptor
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Releases the folder; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class StoreLock:
    """A `PriorityLock` of `streams/store_port.py`."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    async def __aenter__(self) -> None:
        await self._acquire(1)

    async def __aexit__(self, *_: object) -> None:
        self._release()

    @asynccontextmanager
    async def ahead(self) -> AsyncIterator[None]:
        await self._acquire(0)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, rank: int) -> None:
        if not self._is_held:
            self._is_held = True
            return
        place = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, next(self._numbers), place))
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self._release()  # it was handed over just before
            raise

    def _release(self) -> None:
        while self._waiting:
            *_, place = heapq.heappop(self._waiting)
            if not place.done():
                place.set_result(None)
                return
        self._is_held = False
