"""The passages of long texts.

The vector of a text is the mean of its tokens', in which one sentence of ten thousand words leaves
no trace. A text of more than `PASSAGE_TOKENS` tokens has the mean of each of its windows, too: by
the nearest of them it becomes one of the candidates, which are then compared by their tokens.

A long turn of an assistant, a tool or the system has a vector of its outline. All that it says is
embedded apart (`turn_passages`), in smaller windows, and counts apart: see
`stores.recall.ranking_steps`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from palimpsest.schemas.memory_texts import EMBEDDED_WHOLE, OUTLINE_CHARACTERS
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.database.cursors import Reading
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.segment import Segment, digest
from palimpsest.stores.index.token_vectors import (
    PASSAGE_TOKENS,
    TURN_WINDOW_TOKENS,
    WINDOW_TOKENS,
    token_codec,
)
from palimpsest.streams.store_port import KeepVector

IS_CURRENT: Final = "p.embedding_key = m.embedding_key AND p.content_hash = m.content_hash"
"""Whether a row `p` of `turn_passages` is of the text that the memory `m` has now."""
HAS_PASSAGES: Final = (
    f"m.type = 'episodic' AND m.role NOT IN {EMBEDDED_WHOLE} AND NOT m.is_deleted"
    f" AND length(m.content) > {OUTLINE_CHARACTERS}"
)
"""Whether a memory `m` gets passages of its own."""


def has_passages(row: MemoryRow) -> bool:
    """`HAS_PASSAGES` of a row."""
    is_outlined = row.type == "episodic" and row.role not in EMBEDDED_WHOLE and not row.is_deleted
    return is_outlined and len(row.content) > OUTLINE_CHARACTERS


DROP_STALE_PASSAGES: Final = (
    "DELETE FROM turn_passages p USING memory_rows m"
    f" WHERE m.memory_id = p.memory_id AND m.scope = ? AND NOT ({IS_CURRENT})"
)
_PASSAGES: Final = (
    "SELECT m.memory_id, m.embedding_key, m.content_hash, coalesce(p.passages, e.passages) AS found"
    " FROM memory_rows m"
    " LEFT JOIN embeddings e ON e.embedding_key = m.embedding_key AND e.model = $model"
    " LEFT JOIN turn_passages p ON p.memory_id = m.memory_id AND p.model = $model"
    f" AND {IS_CURRENT}"
    " WHERE m.memory_id IN (SELECT unnest($ids)) AND found IS NOT NULL"
)
_TOKENS: Final = (
    "SELECT p.memory_id, p.embedding_key, p.content_hash, p.tokens FROM turn_passages p"
    " WHERE p.memory_id IN (SELECT unnest($ids)) AND p.model = $model"
)
CACHE_BYTES: Final = 16 * 1024 * 1024
"""Some 500 answers of 300 words."""


class TurnText(NamedTuple):
    """Which text of which memory: digests of its `embedding_key` and `content_hash`."""

    memory_id: str
    embedded: int
    content: int


def turn_text(segment: Segment, place: int) -> TurnText:
    meta = segment.meta[place]
    return TurnText(segment.ids[place], int(meta["text"]), int(meta["digest"]))


def embedding_columns(model: str, kept: Sequence[KeepVector]) -> dict[str, list[Any]]:
    """The columns of `embeddings` for texts embedded by `model`, no text twice."""
    return {
        "embedding_key": [each.embedding_key for each in kept],
        "model": [model] * len(kept),
        "vector": [each.vector for each in kept],
        "tokens": [each.tokens for each in kept],
        "passages": [_passages(model, each.tokens) for each in kept],
    }


def _passages(model: str, tokens: bytes | None) -> bytes | None:
    """The vectors of a text's windows in half precision, one after another."""
    codec = token_codec(model)
    if codec is None or tokens is None or len(tokens) <= PASSAGE_TOKENS * codec.token_bytes:
        return None
    return codec.window_means(tokens, WINDOW_TOKENS).astype("<f2").tobytes()


def turn_passages(model: str, tokens: bytes) -> bytes:
    """The same of a turn, whatever its length."""
    codec = token_codec(model)
    assert codec is not None, model
    return codec.window_means(tokens, TURN_WINDOW_TOKENS).astype("<f2").tobytes()


def read_passages(reading: Reading, model: str, index: ScopeIndex) -> None:
    """Gives an index the passages of those of its texts that were not looked up since they have a
    vector."""
    with index.lock:
        unread = [
            (segment, place)
            for segment in index.segments
            for place in sorted(segment.unread)
            if segment.has_vector[place]
        ]
    if not unread:
        return
    dimensions = index.turns.vectors.shape[1]
    with reading() as reader:
        values = {"model": model, "ids": [segment.ids[place] for segment, place in unread]}
        rows = reader.execute(_PASSAGES, values).fetchall()
    found = {
        TurnText(memory_id, digest(key), digest(content)): packed
        for memory_id, key, content, packed in rows
    }
    with index.lock:
        for segment, place in unread:
            packed = found.get(turn_text(segment, place))
            if place in segment.unread:  # else it was removed meanwhile
                segment.unread.discard(place)
                if packed is not None:
                    vectors = np.frombuffer(packed, dtype="<f2").reshape(-1, dimensions)
                    segment.passages.put(place, vectors)


class TurnTokens:
    """Reads the packed token vectors of all that turns say, of one shard and model. Any thread may
    read. A text's tokens never change, so those read last are cached."""

    def __init__(self, reading: Reading, model: str, cache_bytes: int = CACHE_BYTES) -> None:
        self._reading = reading
        self._model = model
        self._room = cache_bytes
        self._cached: OrderedDict[TurnText, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, texts: Sequence[TurnText]) -> dict[TurnText, bytes]:
        """Packed tokens of those texts that have any."""
        with self._lock:
            found = {text: self._cached[text] for text in texts if text in self._cached}
            for text in found:
                self._cached.move_to_end(text)
        missing = {text for text in texts if text not in found}
        if not missing:
            return found
        with self._reading() as reader:
            values = {"model": self._model, "ids": [text.memory_id for text in missing]}
            rows = reader.execute(_TOKENS, values).fetchall()
        for memory_id, key, content, packed in rows:
            text = TurnText(memory_id, digest(key), digest(content))
            if text in missing:
                found[text] = packed
                with self._lock:
                    if text not in self._cached:
                        self._cached[text] = packed
                        self._room -= len(packed)
                    while self._room < 0:
                        _, oldest = self._cached.popitem(last=False)
                        self._room += len(oldest)
        return found
