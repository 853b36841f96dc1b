"""Sets of 64-bit hashes, and which keys of the store's tables may be stored.

Looking up a missing key costs DuckDB one to four milliseconds, and without an index on its columns
more, in proportion to the table's size. Most keys that stages look up or write are new. So the
hashes of the stored keys are cached, at eight bytes each, and only a key whose hash is known is
looked up in its table."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from palimpsest.schemas.rows.columns import Row, columns_of
from palimpsest.stores.database.cursors import Reading

MERGE_AT = 10_000
"""Number of new hashes that are cached as a set, at 70 bytes each, before they join the sorted
array."""

Keys: TypeAlias = tuple[str, ...]
"""A table, and the columns whose values are known by the hash of `joined`."""
DEDUP_KEYS: Final = ("memory_rows", "dedup_key")
SOURCE_IDS: Final = ("memory_rows", "source_id")
EMBEDDING_KEYS: Final = ("embeddings", "embedding_key")
SEEN: Final = ("seen_messages", "stage", "message_id")
_SEPARATOR: Final = "\x1f"
_keys: Final[dict[type[Row], Keys | None]] = {}


def keys_of(row_type: type[Row]) -> Keys | None:
    """The keys of a table; None if one of their columns has no text that Python and DuckDB agree
    on."""
    if row_type not in _keys:
        columns = columns_of(row_type)
        is_plain = all(columns[name].type in (str, int) for name in row_type.KEY)
        _keys[row_type] = (row_type.TABLE, *row_type.KEY) if is_plain else None
    return _keys[row_type]


def joined(key: Sequence[object]) -> str:
    """A key of one or several columns as one text."""
    return _SEPARATOR.join(map(str, key))


@lru_cache(4_096)
def hash_of(key: str) -> int:
    """What DuckDB calls md5_number_lower. A key is looked up and soon after added."""
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

    They are read from the table at the first request. The caller must `add` what it has committed.
    A removed key stays known, and is looked up in vain."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._sets: dict[Keys, HashSet] = {}
        self._lock = threading.Lock()

    def among(self, of: Keys, keys: Sequence[str]) -> set[str]:
        """Returns those of the keys that may be stored."""
        if not keys:
            return set()
        with self._lock:
            known = self._sets.get(of)
            if known is None:
                table, *columns = of
                listed = ", ".join(columns)
                with self._reading() as reader:
                    found = reader.execute(
                        f"SELECT md5_number_lower(concat_ws('{_SEPARATOR}', {listed})) AS hash"
                        f" FROM {table} WHERE {columns[0]} IS NOT NULL"
                    ).fetchnumpy()
                known = self._sets[of] = HashSet(np.asarray(found["hash"], dtype=np.uint64))
            return known.among(keys)

    def add(self, of: Keys, keys: Collection[str]) -> None:
        """Adds keys after they were committed."""
        with self._lock:
            known = self._sets.get(of)
            if known is not None:
                known.add(keys)

    def add_rows(self, row_type: type[Row], keys: Collection[Sequence[object]]) -> None:
        """Adds the keys of rows of one type after they were committed."""
        of = keys_of(row_type)
        if of is not None:
            self.add(of, list(map(joined, keys)))

    def forget(self) -> None:
        """After keys were changed in their tables: all are read again."""
        with self._lock:
            self._sets.clear()
