"""Vectors by feature hashing: words, pairs of words and pieces of three characters. No weights.

Texts that share words or spellings get near vectors; meaning is not seen. The same text gives the
same bits on every machine: weights are small binary fractions, so sums are exact in any order.
Source: Weinberger et al., "Feature Hashing for Large Scale Multitask Learning" (2009).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from palimpsest.streams.models.base import Vector

DEFAULT_DIMENSIONS: Final = 256
MAX_CHARACTERS: Final = 20_000
"""Of a text; what lies beyond does not count."""

WORD_WEIGHT: Final = 1.0
COMMON_WORD_WEIGHT: Final = 0.25
PAIR_WEIGHT: Final = 0.5
PIECE_WEIGHT: Final = 0.25

_COMMON_WORDS: Final = (
    "a an and are as at be been but by for from had has have he her his i in is it its my of on or"
    " our she so that the their them they this to was we were will with you your"
)
_COMMON: Final = frozenset(word.encode() for word in _COMMON_WORDS.split())
_WORD: Final = re.compile(r"[^\W_]+")
_MIX: Final = np.uint32(0x9E3779B1)
_PLACES: Final = (np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35), np.uint32(0x27D4EB2F))


class HashingEmbeddingModel:
    """`dimensions` numbers a vector; passages and queries are treated alike."""

    def __init__(self, dimensions: int = DEFAULT_DIMENSIONS) -> None:
        if not 8 <= dimensions <= 65_536:
            raise ValueError(f"dimensions must be from 8 to 65536, not {dimensions}")
        self.dimensions = dimensions
        self.model = f"hashing-1-{dimensions}"

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        return [hashed(text, self.dimensions) for text in texts]

    async def embed_query(self, text: str) -> Vector:
        return hashed(text, self.dimensions)

    async def check(self) -> str | None:
        return None

    async def close(self) -> None:
        return None


def hashed(text: str, dimensions: int = DEFAULT_DIMENSIONS) -> Vector:
    """The unit vector of `text`; for a text without letters or digits a fixed one."""
    folded = text[:MAX_CHARACTERS]
    if not folded.isascii():
        folded = unicodedata.normalize("NFKC", folded)
    words = [word.encode("utf-8", "replace") for word in _WORD.findall(folded.lower())]
    hashes, weights = _features(words)
    places = hashes % np.uint32(dimensions)
    # The sign comes from bits that the place does not use, so that collisions cancel out.
    signed = np.where(hashes & np.uint32(1 << 31), weights, -weights)
    sums = np.bincount(places, weights=signed, minlength=dimensions)
    length = float(np.sqrt(np.dot(sums, sums)))
    if length == 0.0:
        sums[0] = length = 1.0
    unit: Vector = (sums / length).astype(np.float32)
    return unit


def _features(words: Sequence[bytes]) -> tuple[NDArray[np.uint32], NDArray[np.float64]]:
    """Hash and weight of every feature of the text."""
    if not words:
        return np.empty(0, np.uint32), np.empty(0, np.float64)
    singles = np.array([crc32(word) for word in words], dtype=np.uint32)
    pairs = singles[:-1] * _PLACES[0] + singles[1:]
    padded = np.frombuffer(b" " + b" ".join(words) + b" ", dtype=np.uint8).astype(np.uint32)
    pieces = padded[:-2] * _PLACES[0] + padded[1:-1] * _PLACES[1] + padded[2:] * _PLACES[2]
    weights = np.full(len(singles) + len(pairs) + len(pieces), PIECE_WEIGHT)
    weights[: len(singles)] = [
        COMMON_WORD_WEIGHT if word in _COMMON else WORD_WEIGHT for word in words
    ]
    weights[len(singles) : len(singles) + len(pairs)] = PAIR_WEIGHT
    hashes = np.concatenate((singles, pairs, pieces))
    hashes ^= hashes >> np.uint32(16)
    hashes *= _MIX
    hashes ^= hashes >> np.uint32(13)
    return hashes, weights
