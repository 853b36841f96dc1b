"""Reranks the first results: by the cosine of their whole contents, by a model that reads question
and text together, or for variety.

Off by default. On any error or time-out the order stays and the reason is reported."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from palimpsest.stores.index.vector_column import Vector
from palimpsest.stores.settings import RecallSettings

T = TypeVar("T")
PAIR_SECONDS: Final = 0.2
"""What the pair that is read at the deadline may take longer."""
Within = Callable[[Awaitable[list[Vector]], float], Awaitable[list[Vector]]]
"""Awaits a value for a number of seconds, else raises TimeoutError."""


class TextEmbedding(Protocol):
    """The part of an embedding model that is needed: unit vectors of stored texts."""

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]: ...


class PairScoring(Protocol):
    """A model that reads a question and a text together."""

    async def scores(
        self, question: str, passages: Sequence[str], seconds: float
    ) -> list[float | None]:
        """0..1 for each passage, in order; None from the first on that there was no time for."""
        ...


@dataclass(frozen=True, slots=True)
class Rerank:
    """The scores (0..1) that the first texts got `by` a method; none if the order is to stay.
    `reason` says what was done, or why not."""

    reason: str
    scores: tuple[float, ...] = ()
    by: str = ""


async def rerank_by_cosines(
    vector: Vector | None,
    texts: Sequence[str],
    model: TextEmbedding | None,
    settings: RecallSettings,
    within: Within = asyncio.wait_for,
) -> Rerank:
    """The cosines of the first `rerank_top_n` whole texts (best first) to the query, whose unit
    vector is `vector`. Raises nothing but the cancellation of the caller."""
    if not texts or model is None or vector is None:
        missing = "model" if model is None else "vector of the query"
        return Rerank(f"no {missing if texts else 'results'}")
    first = texts[: settings.rerank_top_n]

    async def compared() -> tuple[float, ...]:
        passages = await within(model.embed_passages(first), settings.rerank_timeout_ms / 1000.0)
        return tuple(min(max(float(passage @ vector), 0.0), 1.0) for passage in passages)

    cosines = await _in_time(compared(), settings)
    if isinstance(cosines, Rerank):
        return cosines
    if len(cosines) != len(first) or not all(map(math.isfinite, cosines)):
        return Rerank(f"{len(cosines)} usable vectors for {len(first)} texts")
    return Rerank("cosine", cosines, "cosine")


async def rerank_by_pairs(
    question: str,
    readings: Sequence[tuple[str, ...]],
    model: PairScoring | None,
    settings: RecallSettings,
) -> Rerank:
    """How well each of the first `rerank_top_n` results (best first) answers the question, the mean
    of its `readings`, as far as there is time. Raises nothing but the cancellation of the caller.
    """
    if not readings or model is None:
        return Rerank("no model" if readings else "no results")
    first = readings[: settings.rerank_top_n]
    seconds = settings.rerank_timeout_ms / 1000.0
    texts = [text for result in first for text in result]
    scores = asyncio.wait_for(model.scores(question, texts, seconds), seconds + PAIR_SECONDS)
    given = await _in_time(scores, settings)
    if isinstance(given, Rerank):
        return given
    each = iter(given)
    means: list[float] = []
    for result in first:
        found = [score for _, score in zip(result, each, strict=False) if score is not None]
        if len(found) < len(result):
            break
        means.append(sum(found) / len(found))
    if not means:
        return _late(settings)
    cut = "" if len(means) == len(first) else f", {len(means)} of {len(first)} in time"
    return Rerank(f"cross-encoder{cut}", tuple(means), "cross-encoder")


async def _in_time(given: Awaitable[T], settings: RecallSettings) -> T | Rerank:
    """What is given; or why it is not: recall continues without reranking, and reports that."""
    try:
        return await given
    except TimeoutError:
        return _late(settings)
    except Exception as error:
        return Rerank(f"{type(error).__name__}: {error}")


def _late(settings: RecallSettings) -> Rerank:
    return Rerank(f"longer than {settings.rerank_timeout_ms:g} ms")


def reranked(
    scores: Sequence[float], second: Sequence[float], weight: float
) -> tuple[list[int], list[float]]:
    """The places of all scores (best first) in their new order, and the new scores of the first,
    those that have a second: (1 - weight) x score + weight x second. Ties keep their order."""
    given = [
        (1.0 - weight) * score + weight * other
        for score, other in zip(scores, second, strict=False)
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
