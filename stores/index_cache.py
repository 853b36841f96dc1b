"""Which scopes are resident: loaded from the shard on first use, the least used dropped first."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from stores.index_load import Held, load_index
from stores.readers import Reading
from stores.scope_index import ScopeIndex
from stores.settings import ShardOptions

LOAD_LOCKS = 64
"""A scope is loaded by one thread at a time; these are shared by all scopes."""

MANY_PLACES = 20_000
"""Loading so many leaves several times their size behind in the allocators."""

Change = Callable[[ScopeIndex], None]


class IndexCache:
    """Scope indexes by scope, bounded in bytes. The newest used scope always stays.

    Any thread may ask; a scope that two ask for is loaded once. What is committed while a scope
    is being loaded is kept and applied after: applying a change twice is the same as once.
    """

    def __init__(
        self,
        reading: Reading,
        options: ShardOptions,
        folder: Path,
        held: Held,
    ) -> None:
        self._reading = reading
        self._held = held
        self._folder = folder
        self._options = options
        self._resident: OrderedDict[str, ScopeIndex] = OrderedDict()
        self._lock = threading.Lock()
        self._loading: dict[str, list[Change]] = {}
        self._load_locks = [threading.Lock() for _ in range(LOAD_LOCKS)]

    def get(self, scope: str) -> ScopeIndex:
        """The index of a scope, loaded when it is not resident."""
        index = self.resident(scope)
        if index is not None:
            return index
        with self._load_locks[hash(scope) % LOAD_LOCKS]:
            index = self.resident(scope)
            return self._load(scope) if index is None else index

    def resident(self, scope: str) -> ScopeIndex | None:
        """The index if it is resident."""
        with self._lock:
            index = self._resident.get(scope)
            if index is not None:
                self._resident.move_to_end(scope)
            return index

    def change(self, scope: str, change: Change) -> None:
        """Apply a committed change to the index, now or when its loading ends; what is not
        resident need not be kept current."""
        with self._lock:
            waiting = self._loading.get(scope)
            if waiting is not None:
                waiting.append(change)
            index = self._resident.get(scope)
        if index is not None:
            change(index)

    def wanted(self, scope: str) -> bool:
        """Whether `change` would do anything."""
        with self._lock:
            return scope in self._resident or scope in self._loading

    def forget(self, scope: str) -> None:
        with self._lock:
            self._resident.pop(scope, None)

    def clear(self) -> None:
        with self._lock:
            self._resident.clear()

    def bytes_used(self) -> int:
        with self._lock:
            return sum(index.bytes_used() for index in self._resident.values())

    def _load(self, scope: str) -> ScopeIndex:
        with self._lock:
            self._loading[scope] = []
        try:
            with self._reading() as reader:
                index = load_index(
                    reader,
                    scope,
                    self._options.embedding_model,
                    self._options.dimensions,
                    self._folder,
                    self._held,
                )
        except BaseException:
            with self._lock:
                del self._loading[scope]
            raise
        with self._lock:
            for change in self._loading.pop(scope):
                change(index)
            self._resident[scope] = index
            self._make_room()
        if sum(part.places for part in index.parts) >= MANY_PLACES:
            _give_back()
        return index

    def _make_room(self) -> None:
        used = {scope: index.bytes_used() for scope, index in self._resident.items()}
        while len(self._resident) > 1 and sum(used.values()) > self._options.store.index_bytes:
            scope, _ = self._resident.popitem(last=False)
            del used[scope]


def _give_back() -> None:
    """Return to the system what loading needed and freed."""
    pa.default_memory_pool().release_unused()
    # Only the C library of GNU has it, and only there is it needed.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
