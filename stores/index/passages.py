"""The passages of long texts.

The vector of a text is the mean of its tokens', in which one sentence of ten thousand words leaves
no trace. A text of more than `PASSAGE_TOKENS` tokens has the mean of each of its windows, too: by
the nearest of them it becomes one of the candidates, which are then compared by their tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palimpsest.stores.database.cursors import Reading
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.segment import digest
from palimpsest.stores.index.token_vectors import PASSAGE_TOKENS, token_codec
from palimpsest.streams.store_port import KeepVector

_PASSAGES = (
    "SELECT m.embedding_key, e.passages FROM memory_rows m JOIN embeddings e"
    " ON e.embedding_key = m.embedding_key AND e.model = $model"
    " WHERE m.memory_id IN (SELECT unnest($ids)) AND e.passages IS NOT NULL"
)


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
    return codec.window_means(tokens).astype("<f2").tobytes()


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
        found = reader.execute(_PASSAGES, values).fetchall()
    vectors = {
        digest(key): np.frombuffer(packed, dtype="<f2").reshape(-1, dimensions)
        for key, packed in found
    }
    with index.lock:
        for segment, place in unread:
            passages = vectors.get(int(segment.meta[place]["text"]))
            if place in segment.unread:  # else it was removed meanwhile
                segment.unread.discard(place)
                if passages is not None:
                    segment.passages[place] = passages
