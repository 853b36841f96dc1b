"""A second look at the first results: by the cosine of their whole contents, or for variety.

Off by default. Whatever goes wrong or takes too long, the order stays and the reason is told.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from palimpsest.stores.settings import RecallSettings

Vector = NDArray[np.float32]
Within = Callable[[Awaitable[list[Vector]], float], Awaitable[list[Vector]]]
"""Awaits a value for so many seconds, else raises TimeoutError."""


class TextEmbedding(Protocol):
    """The part of an embedding model that is needed: unit vectors of stored texts."""

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]: ...


@dataclass(frozen=True, slots=True)
class SecondLook:
    """The cosines (0..1) of the first texts to the query; none where the order is to stay, with
    the `reason`."""

    reason: str
    cosines: tuple[float, ...] = ()


async def second_look(
    vector: Vector | None,
    texts: Sequence[str],
    model: TextEmbedding | None,
    settings: RecallSettings,
    within: Within = asyncio.wait_for,
) -> SecondLook:
    """The cosines of the first `rerank_top_n` whole texts (best first) to the query, whose unit
    vector is `vector`. Raises nothing but the cancellation of the caller."""
    if settings.rerank == "off":
        return SecondLook("off")
    if not texts:
        return SecondLook("no results")
    if model is None or vector is None:
        return SecondLook("no model" if model is None else "no vector of the query")
    count = min(settings.rerank_top_n, len(texts))
    try:
        passages = await within(
            model.embed_passages(texts[:count]), settings.rerank_timeout_ms / 1000.0
        )
        cosines = tuple(min(max(float(passage @ vector), 0.0), 1.0) for passage in passages)
    except TimeoutError:
        return SecondLook(f"longer than {settings.rerank_timeout_ms:g} ms")
    except Exception as error:  # recall does without a second look, and tells why
        return SecondLook(f"{type(error).__name__}: {error}")
    if len(cosines) != count or not all(map(math.isfinite, cosines)):
        return SecondLook(f"{len(cosines)} usable vectors for {count} texts")
    return SecondLook(settings.rerank, cosines)


def reranked(
    scores: Sequence[float], cosines: Sequence[float], weight: float
) -> tuple[list[int], list[float]]:
    """The places of all scores (best first) in their new order, and the new scores of the first,
    those that have a cosine: (1 - weight) x score + weight x cosine. Ties keep their order."""
    given = [
        (1.0 - weight) * score + weight * cosine
        for score, cosine in zip(scores, cosines, strict=False)
    ]
    first = sorted(range(len(given)), key=lambda place: (-given[place], place))
    return [*first, *range(len(given), len(scores))], given


def mmr(scores: Sequence[float], vectors: Vector, relevance: float) -> tuple[int, ...]:
    """Places in the order of maximal marginal relevance: each time the one with the highest
    relevance x score - (1 - relevance) x its largest cosine to those taken.

    `scores` (n,), `vectors` (n, d) unit. Carbonell and Goldstein, "The Use of MMR" (1998).
    """
    likeness = vectors @ vectors.T
    taken: list[int] = []
    left = list(range(len(scores)))
    while left:
        best = max(
            left,
            key=lambda place: (
                relevance * scores[place]
                - (1.0 - relevance) * max((float(likeness[place, t]) for t in taken), default=0.0),
                -place,
            ),
        )
        taken.append(best)
        left.remove(best)
    return tuple(taken)
