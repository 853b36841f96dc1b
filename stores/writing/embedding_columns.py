"""Embeddings as columns of their table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palimpsest.streams.store_port import KeepVector


def embedding_columns(model: str, kept: Sequence[KeepVector]) -> dict[str, list[Any]]:
    """The columns of `embeddings` for texts embedded by `model`, no text twice."""
    return {
        "embedding_key": [each.embedding_key for each in kept],
        "model": [model] * len(kept),
        "vector": [each.vector for each in kept],
        "tokens": [each.tokens for each in kept],
    }
