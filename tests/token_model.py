"""An embedding model with token vectors that takes no time: each word has a vector of its own."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from palimpsest.stores.index.token_vectors import LEVELS, TokenCodec, token_codec
from palimpsest.streams.models.base import Embedding, TokenVectors, Vector
from palimpsest.streams.models.late_interaction import DIMENSIONS, MODEL


class WordModel:
    """Under the name of the local model, so that a store keeps its tokens. `asked` has the texts
    that were embedded to be stored."""

    model = MODEL
    dimensions = DIMENSIONS

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        return [each.vector for each in await self.embed_with_tokens(texts)]

    async def embed_with_tokens(self, texts: Sequence[str]) -> list[Embedding]:
        self.asked += texts
        made = [tokens_of(text) for text in texts]
        return [Embedding(each.vector, codec().pack(each.tokens)) for each in made]

    async def embed_query_tokens(self, text: str) -> TokenVectors:
        return tokens_of(text)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    async def embed_query(self, text: str) -> Vector:
        return tokens_of(text).vector

    async def check(self) -> str | None:
        return None

    async def close(self) -> None:
        return None


def codec() -> TokenCodec:
    found = token_codec(MODEL)
    assert found is not None
    return found


def word(text: str) -> Vector:
    """A vector that packing keeps as it is."""
    random = np.random.default_rng(zlib.crc32(text.encode()))
    levels = random.integers(0, LEVELS, len(codec().low))
    vector = (codec().basis @ (codec().low + levels * codec().step)).astype(np.float32)
    unit: Vector = vector / np.linalg.norm(vector)
    return unit


def tokens_of(text: str) -> TokenVectors:
    tokens = np.stack([word(each) for each in ("text:", *text.casefold().split())])
    mean = tokens.sum(axis=0)
    return TokenVectors(mean / np.linalg.norm(mean), tokens)
