"""A second look at the first results: by full-content cosine, by a cross-encoder, or for variety.

Off by default. Whatever goes wrong or takes too long, the order stays and the reason is told.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Within = Callable[[Awaitable[Sequence[float]], float], Awaitable[Sequence[float]]]
"""Awaits a value for so many seconds, else raises TimeoutError."""


@dataclass(frozen=True, slots=True)
class RerankSettings:
    """`top_n` results are looked at again, within `timeout_ms` milliseconds. `cosine_weight` is
    the cosine's share beside the score. MMR (`mmr`, with the share of relevance in
    `mmr_relevance`) is off: measured elsewhere to halve recall."""

    method: Literal["off", "cosine", "cross-encoder"] = "off"
    top_n: int = 20
    timeout_ms: float = 2_000.0
    cosine_weight: float = 0.3
    mmr: bool = False
    mmr_relevance: float = 0.7


class CrossEncoder(Protocol):
    """A model that reads question and text together."""

    async def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """How well each text answers the query, in the order of the texts, higher is better."""
        ...


class TextEmbedding(Protocol):
    """The part of an embedding model that the cosine needs: unit vectors."""

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]: ...

    async def embed_query(self, text: str) -> Vector: ...


class ContentCosine:
    """Cosines of whole contents to the query, as a CrossEncoder."""

    def __init__(self, embedding: TextEmbedding) -> None:
        self._embedding = embedding

    async def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        vector = await self._embedding.embed_query(query)
        passages = await self._embedding.embed_passages(texts)
        return [float(passage @ vector) for passage in passages]


@dataclass(frozen=True, slots=True)
class Reranked:
    """`order` are places in the list given, the new order of all of it. `scores` are the new ones
    of the first `top_n`, by place; empty where the order stayed, with the `reason`."""

    order: tuple[int, ...]
    applied: bool
    reason: str
    scores: tuple[float, ...] = ()


async def rerank(
    query: str,
    scores: Sequence[float],
    texts: Sequence[str],
    model: CrossEncoder | None,
    settings: RerankSettings,
    within: Within = asyncio.wait_for,
) -> Reranked:
    """The first `top_n` of a list (best first) in a new order; what comes after stays.

    cosine: (1 - w) x score + w x cosine, w 0.3. cross-encoder: by its score alone. Ties keep their
    order. Raises nothing but the cancellation of the caller.
    """
    unchanged = tuple(range(len(scores)))
    if settings.method == "off" or model is None or not scores:
        off = settings.method == "off"
        return Reranked(unchanged, False, "off" if off else "no model" if scores else "no results")
    count = min(settings.top_n, len(scores))
    seconds = settings.timeout_ms / 1000.0
    try:
        given = list(await within(model.scores(query, texts[:count]), seconds))
    except TimeoutError:
        return Reranked(unchanged, False, f"longer than {settings.timeout_ms:g} ms")
    except Exception as error:  # a second look is a favour: the first stands, and it is told why
        return Reranked(unchanged, False, f"{type(error).__name__}: {error}")
    if len(given) != count or not all(map(math.isfinite, given)):
        return Reranked(unchanged, False, f"{len(given)} usable scores for {count} texts")
    if settings.method == "cosine":
        weight = settings.cosine_weight
        given = [
            (1.0 - weight) * score + weight * cosine
            for score, cosine in zip(scores[:count], given, strict=True)
        ]
    first = sorted(range(count), key=lambda place: (-given[place], place))
    return Reranked((*first, *unchanged[count:]), True, settings.method, tuple(given))


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
