"""The resident scopes: loaded from DuckDB on first use, the least recently used evicted first.

An index is read in whole columns by Arrow, with no object per posting."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from palimpsest.stores.database.cursors import Reading
from palimpsest.stores.index.loading import TABLES, CopiedVectors, load_index
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.search_plan import SearchPlan
from palimpsest.stores.index.segment import Integers, Segment
from palimpsest.stores.index.stored_scopes import StoredScope, StoredScopes
from palimpsest.stores.settings import ShardOptions

LOAD_LOCKS = 64
"""A scope is loaded by one thread at a time; all scopes share these locks."""

MANY_PLACES = 20_000
"""Loading this many leaves several times their size unused in the allocators."""

BYTES_BESIDES_CODES = 1_100
"""Bytes of a resident memory in addition to its codes: 100,000 of 384 dimensions take 137 MiB."""

MOST_STORED = 100_000
"""Maximum number of scopes that are remembered not to be new."""

_NOT_NEW = " UNION ".join(
    f"SELECT scope FROM {table} WHERE scope IN (SELECT unnest($scopes))" for table in TABLES
)

Change = Callable[[ScopeIndex], None]


def most_resident(options: ShardOptions) -> int:
    """The maximum number of memories of a resident scope."""
    return options.store.index_bytes // (BYTES_BESIDES_CODES + options.dimensions)


class IndexCache:
    """Scope indexes by scope, bounded in bytes; a larger scope is searched where it is stored.

    Usable from any thread; a scope that two threads request is loaded once. Changes committed while
    a scope is being loaded are applied afterwards: applying a change twice is the same as once."""

    def __init__(
        self,
        reading: Reading,
        options: ShardOptions,
        folder: Path,
        copied: CopiedVectors,
        stored: StoredScopes,
    ) -> None:
        self._reading = reading
        self._copied = copied
        self._folder = folder
        self._options = options
        self._most = most_resident(options)
        self._stored = stored
        self._resident: OrderedDict[str, ScopeIndex] = OrderedDict()
        self._bytes: dict[str, int] = {}
        self._bytes_of_all = 0
        self._resized: set[str] = set()
        """Scopes of which `_bytes` is no longer true."""
        self._not_new: set[str] = set()
        self._lock = threading.Lock()
        self._loading: dict[str, list[Change]] = {}
        self._load_locks = [threading.Lock() for _ in range(LOAD_LOCKS)]

    def get(self, scope: str) -> ScopeIndex:
        """Returns the index of a scope; loads it unless it is resident."""
        index = self.resident(scope)
        if index is not None:
            return index
        with self._load_locks[hash(scope) % LOAD_LOCKS]:
            index = self.resident(scope)
            return self._load(scope) if index is None else index

    def scope(self, scope: str) -> ScopeIndex | StoredScope:
        """Returns a scope to search: its index, unless it is too large to be resident."""
        index = self.warm(scope)
        return self._stored.scope(scope) if index is None else index

    def search(self, plan: SearchPlan) -> ScopeIndex:
        """Returns an index with what a search needs of a scope."""
        return self.scope(plan.scope).search(plan)

    def naming(
        self, scope: str, names: Mapping[str, Sequence[Sequence[str]]]
    ) -> dict[str, set[str]]:
        """Returns ids of the scope's active memories that have a term of each of the words of a
        name, by name. Loads no index: that takes longer than to look into the postings."""
        index = self.resident(scope)
        if index is None:
            return self._stored.naming(scope, names)
        with index.lock:
            return {
                name: {
                    segment.ids[place]
                    for segment in index.segments
                    for place in _with_all_words(segment, words)
                }
                for name, words in names.items()
            }

    def warm(self, scope: str) -> ScopeIndex | None:
        """Returns the index of a scope that will be searched; None if it is too large to be
        resident."""
        index = self.resident(scope)
        if index is not None:
            return index
        with self._reading() as reader:
            found = reader.execute("SELECT count(*) FROM fts_docs WHERE scope = ?", [scope])
            count = int(found.fetchall()[0][0])
        return None if count > self._most else self.get(scope)

    def begin(self, scopes: Collection[str]) -> None:
        """Makes the indexes of new scopes resident, of which nothing is stored: their memories are
        added as they are committed, and nothing needs to be read. One query for all of them."""
        with self._lock:
            begun: dict[str, list[Change]] = {
                scope: []
                for scope in scopes
                if not (scope in self._resident or scope in self._loading or scope in self._not_new)
            }
            self._loading |= begun
        if not begun:
            return
        stored = {*begun}  # where the store cannot say
        try:
            with self._reading() as reader:
                found = reader.execute(_NOT_NEW, {"scopes": [*begun]}).fetchall()
            stored = {scope for (scope,) in found}
        finally:
            with self._lock:
                if len(self._not_new) + len(stored) > MOST_STORED:
                    self._not_new.clear()
                self._not_new |= stored
                for scope, changes in begun.items():
                    # Another thread may have begun to load it, or it was to be read anew.
                    if self._loading.get(scope) is changes:
                        del self._loading[scope]
                        if scope not in stored:
                            index = ScopeIndex(self._options.dimensions, self._folder)
                            self._keep(scope, index, changes)

    def resident(self, scope: str) -> ScopeIndex | None:
        """Returns the index if it is resident."""
        with self._lock:
            index = self._resident.get(scope)
            if index is None:
                return None
            if sum(segment.places for segment in index.segments) > self._most:
                self._drop(scope)  # it has grown too large
                return None
            self._resident.move_to_end(scope)
            return index

    def texts_of(self, memory_ids: Sequence[str]) -> dict[str, int | None]:
        """The digests of the texts that memories of resident scopes have now, by id; None where
        the text has no vector."""
        with self._lock:
            indexes = [*reversed(self._resident.values())]
        texts: dict[str, int | None] = {}
        for index in indexes:
            if len(texts) == len(memory_ids):
                break
            with index.lock:
                for memory_id in memory_ids:
                    found = None if memory_id in texts else index.find(memory_id)
                    if found is not None:
                        segment, place = found
                        has_vector = segment.has_vector[place]
                        texts[memory_id] = int(segment.meta[place]["text"]) if has_vector else None
        return texts

    def change(self, scope: str, change: Change) -> None:
        """Applies a committed change to the index, now or when its loading ends; scopes that are
        not resident are ignored."""
        with self._lock:
            waiting = self._loading.get(scope)
            if waiting is not None:
                waiting.append(change)
            index = self._resident.get(scope)
            if index is not None:
                self._resized.add(scope)
        if index is not None:
            change(index)

    def wanted(self, scope: str) -> bool:
        """Returns whether `change` would have an effect."""
        with self._lock:
            return scope in self._resident or scope in self._loading

    def forget(self, scope: str) -> None:
        """Lets the scope be read anew; an index that is being loaded is not kept."""
        with self._lock:
            self._drop(scope)
            self._loading.pop(scope, None)

    def clear(self) -> None:
        with self._lock:
            for scope in [*self._resident]:
                self._drop(scope)

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
                    self._copied,
                )
        except BaseException:
            self.forget(scope)
            raise
        with self._lock:
            changes = self._loading.pop(scope, None)
            if changes is not None:
                self._keep(scope, index, changes)
        if changes is None:
            return self._load(scope)
        if sum(segment.places for segment in index.segments) >= MANY_PLACES:
            give_back()
        return index

    def _keep(self, scope: str, index: ScopeIndex, changes: Sequence[Change]) -> None:
        """Makes an index resident that lacks these changes, and evicts others for it. Under
        `_lock`."""
        for change in changes:
            change(index)
        self._resident[scope] = index
        self._resized.add(scope)
        # Only of what changed: to ask every index would make the load of n scopes take n * n.
        for each in self._resized:
            resized = self._resident.get(each)
            if resized is not None:
                self._bytes_of_all -= self._bytes.get(each, 0)
                self._bytes[each] = resized.bytes_used()
                self._bytes_of_all += self._bytes[each]
        self._resized.clear()
        while len(self._resident) > 1 and self._bytes_of_all > self._options.store.index_bytes:
            self._drop(next(iter(self._resident)))

    def _drop(self, scope: str) -> None:
        self._resident.pop(scope, None)
        self._bytes_of_all -= self._bytes.pop(scope, 0)


def _with_all_words(segment: Segment, words: Sequence[Sequence[str]]) -> list[int]:
    having: Integers | None = None
    for forms in words:
        pairs = [segment.postings.get(form) for form in dict.fromkeys(forms)]
        found_at = [pair[0].astype(np.int64) for pair in pairs if pair is not None]
        here = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *found_at]))
        having = here if having is None else np.intersect1d(having, here)
    return [] if having is None else [*having[segment.alive[having]].tolist()]


def give_back() -> None:
    """Returns to the system what was needed and is free now."""
    pa.default_memory_pool().release_unused()
    # Only the GNU C library has this function, and only there is it needed.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
