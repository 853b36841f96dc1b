"""The packed token vectors of memories, from wherever they are at hand.

A text's tokens never change, so they are cached by text; which text a memory has now is asked each
time, of the resident index or the store. So a copy may be missing, in the cache or in LanceDB, and
is never taken for that of a text that the memory no longer has, whatever is committed meanwhile.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from palimpsest.stores.database.cursors import Reading
from palimpsest.stores.index.segment import digest

CACHE_BYTES = 32 * 1024 * 1024
"""Some 14,000 memories of the length of a chat's turns."""
ENTRY_BYTES = 300
"""Bytes of a cached text besides its tokens: its key, and the objects of Python."""

_KEYS = (
    "SELECT memory_id, embedding_key FROM memory_rows"
    " WHERE memory_id IN (SELECT unnest($ids)) AND NOT is_deleted"
)
_TOKENS = (
    "SELECT m.memory_id, m.embedding_key, e.tokens FROM memory_rows m JOIN embeddings e"
    " ON e.embedding_key = m.embedding_key AND e.model = $model"
    " WHERE m.memory_id IN (SELECT unnest($ids)) AND NOT m.is_deleted AND e.tokens IS NOT NULL"
)


@dataclass(frozen=True, slots=True)
class HeldTokens:
    """The packed token vectors of the text that a memory had at the last sync; `embedding_key`
    tells which text that was."""

    embedding_key: str
    packed: bytes


Copy = Callable[[Sequence[str]], Mapping[str, HeldTokens]]
"""What a copy of the store has of memories by id, perhaps of an earlier text, perhaps nothing."""
Texts = Callable[[Sequence[str]], dict[str, int | None]]
"""As `stores.index.cache.IndexCache.texts_of`."""


class TokenReader:
    """Reads the tokens of one shard and model, the newest from memory. Any thread may read."""

    def __init__(
        self, reading: Reading, model: str, texts: Texts, copy: Copy, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self._reading = reading
        self._model = model
        self._texts = texts
        self._copy = copy
        self._room = cache_bytes
        self._cached: OrderedDict[int, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, tokens: Mapping[str, bytes]) -> None:
        """Cache tokens by `embedding_key`; those used longest ago leave for them."""
        with self._lock:
            for key, packed in tokens.items():
                text = digest(key)
                if text not in self._cached:
                    self._cached[text] = packed
                    self._room -= len(packed) + ENTRY_BYTES
            while self._room < 0:
                _, packed = self._cached.popitem(last=False)
                self._room += len(packed) + ENTRY_BYTES

    def of(self, memory_ids: Sequence[str]) -> dict[str, bytes]:
        """Packed tokens by id, of those memories that are there and have any by the model."""
        # The digests of the texts that the memories have now, of those that may have tokens.
        present = self._texts(memory_ids)
        others = [memory_id for memory_id in memory_ids if memory_id not in present]
        if others:
            with self._reading() as reader:
                rows = reader.execute(_KEYS, {"ids": others}).fetchall()
            present.update((memory_id, digest(key)) for memory_id, key in rows)
        texts = {memory_id: text for memory_id, text in present.items() if text is not None}
        with self._lock:
            found = {i: self._cached[text] for i, text in texts.items() if text in self._cached}
            for memory_id in found:
                self._cached.move_to_end(texts[memory_id])
        missing = [memory_id for memory_id in texts if memory_id not in found]
        if missing:
            copied = self._copy(missing)
            current = {i: c for i, c in copied.items() if digest(c.embedding_key) == texts[i]}
            self.note({each.embedding_key: each.packed for each in current.values()})
            found |= {memory_id: each.packed for memory_id, each in current.items()}
            missing = [memory_id for memory_id in missing if memory_id not in current]
        if missing:  # of the texts that they have when this is read
            with self._reading() as reader:
                values = {"model": self._model, "ids": missing}
                rows = reader.execute(_TOKENS, values).fetchall()
            self.note({key: packed for _, key, packed in rows})
            found |= {memory_id: packed for memory_id, _, packed in rows}
        return found
