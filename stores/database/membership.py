"""Sets of 64-bit hashes, and which keys of the store's tables may be stored.

Looking up a missing key costs DuckDB one to four milliseconds, and without an index on its column
more, in proportion to the table's size. Most keys that stages look up are new. So the hashes of the
stored keys are cached, at eight bytes each, and only a key whose hash is known is looked up in its
table."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from palimpsest.stores.database.cursors import Reading

MERGE_AT = 10_000
"""Number of new hashes that are cached as a set, at 70 bytes each, before they join the sorted
array."""

Column = Literal["memory_id", "dedup_key", "source_id", "item_id", "embedding_key"]
"""A column whose values are known by their hashes."""

_TABLES: Final[dict[Column, str]] = {
    "memory_id": "memory_rows",
    "dedup_key": "memory_rows",
    "source_id": "memory_rows",
    "item_id": "outcomes",
    "embedding_key": "embeddings",
}


def hash_of(key: str) -> int:
    """What DuckDB calls md5_number_lower."""
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[8:], "little")


class HashSet:
    """A set of 64-bit numbers that only grows. One thread at a time."""

    def __init__(self, hashes: NDArray[np.uint64]) -> None:
        self._sorted = np.sort(hashes)
        self._new: set[int] = set()

    def among(self, keys: Sequence[str]) -> set[str]:
        """Those of the keys whose hash is in the set."""
        hashes = [hash_of(key) for key in keys]
        found = {key for key, known in zip(keys, hashes, strict=True) if known in self._new}
        if len(self._sorted):
            wanted = np.asarray(hashes, dtype=np.uint64)
            places = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
            found |= {keys[n] for n in np.flatnonzero(self._sorted[places] == wanted).tolist()}
        return found

    def add(self, keys: Collection[str]) -> None:
        self._new.update(map(hash_of, keys))
        if len(self._new) >= MERGE_AT:
            joined = np.fromiter(self._new, dtype=np.uint64, count=len(self._new))
            self._sorted = np.sort(np.concatenate((self._sorted, joined)))
            self._new = set()


class KnownKeys:
    """Which keys may be stored: all that are, and perhaps others. Usable from any thread.

    A column is read at the first request. The caller must `add` what it has committed. A removed
    key stays known, and is looked up in vain."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._columns: dict[Column, HashSet] = {}
        self._lock = threading.Lock()

    def among(self, column: Column, keys: Sequence[str]) -> set[str]:
        """Returns those of the keys that may be stored."""
        if not keys:
            return set()
        with self._lock:
            known = self._columns.get(column)
            if known is None:
                known = self._columns[column] = self._read(column)
            return known.among(keys)

    def add(self, column: Column, keys: Collection[str]) -> None:
        """Adds keys after they were committed."""
        with self._lock:
            known = self._columns.get(column)
            if known is not None:
                known.add(keys)

    def _read(self, column: Column) -> HashSet:
        with self._reading() as reader:
            found = reader.execute(
                f"SELECT md5_number_lower({column}) AS hash FROM {_TABLES[column]}"
                f" WHERE {column} IS NOT NULL"
            ).fetchnumpy()
        return HashSet(np.asarray(found["hash"], dtype=np.uint64))
