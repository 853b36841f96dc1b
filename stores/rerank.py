"""A second look at the first results: by the cosine of their whole contents, or for variety.

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
Within = Callable[[Awaitable[list[Vector]], float], Awaitable[list[Vector]]]
"""Awaits a value for so many seconds, else raises TimeoutError."""


@dataclass(frozen=True, slots=True)
class RerankSettings:
    """`top_n` results are looked at again, within `timeout_ms` milliseconds. `cosine_weight` is
    the cosine's share beside the score. MMR (`mmr`, with the share of relevance in
    `mmr_relevance`) is off: measured elsewhere to halve recall."""

    method: Literal["off", "cosine"] = "off"
    top_n: int = 20
    timeout_ms: float = 2_000.0
    cosine_weight: float = 0.3
    mmr: bool = False
    mmr_relevance: float = 0.7


class TextEmbedding(Protocol):
    """The part of an embedding model that is needed: unit vectors of stored texts."""

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]: ...


@dataclass(frozen=True, slots=True)
class Reranked:
    """`order` are places in the list given, the new order of all of it. `scores` are the new ones
    of the first `top_n`, by place; empty where the order stayed, with the `reason`."""

    order: tuple[int, ...]
    applied: bool
    reason: str
    scores: tuple[float, ...] = ()


async def rerank(
    vector: Vector | None,
    scores: Sequence[float],
    texts: Sequence[str],
    model: TextEmbedding | None,
    settings: RerankSettings,
    within: Within = asyncio.wait_for,
) -> Reranked:
    """The first `top_n` of a list (best first) in a new order; what comes after stays.

    (1 - w) x score + w x cosine, w 0.3, of whole contents to the query, whose unit vector is
    `vector`. Ties keep their order. Raises nothing but the cancellation of the caller.
    """
    unchanged = tuple(range(len(scores)))
    if settings.method == "off":
        return Reranked(unchanged, False, "off")
    if not scores:
        return Reranked(unchanged, False, "no results")
    if model is None or vector is None:
        return Reranked(unchanged, False, "no model" if model is None else "no vector of the query")
    count = min(settings.top_n, len(scores))
    try:
        passages = await within(model.embed_passages(texts[:count]), settings.timeout_ms / 1000.0)
        cosines = [min(max(float(passage @ vector), 0.0), 1.0) for passage in passages]
    except TimeoutError:
        return Reranked(unchanged, False, f"longer than {settings.timeout_ms:g} ms")
    except Exception as error:  # a second look is a favour: the first stands, and it is told why
        return Reranked(unchanged, False, f"{type(error).__name__}: {error}")
    if len(cosines) != count or not all(map(math.isfinite, cosines)):
        return Reranked(unchanged, False, f"{len(cosines)} usable vectors for {count} texts")
    weight = settings.cosine_weight
    given = [
        (1.0 - weight) * score + weight * cosine
        for score, cosine in zip(scores[:count], cosines, strict=True)
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
