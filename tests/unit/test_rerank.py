from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import numpy as np
import pytest

from palimpsest.stores.recall.ranking import DEFAULTS
from palimpsest.stores.recall.rerank import (
    SecondLook,
    Vector,
    mmr,
    reranked,
    second_look,
)
from palimpsest.stores.settings import RecallSettings

SCORES = [0.9, 0.8, 0.7, 0.6]
TEXTS = ["a", "b", "c", "d"]
ASKED = np.array([1.0, 0.0], dtype=np.float32)


class Fixed:
    """Texts with these cosines to what is asked, or an error."""

    def __init__(self, answer: Sequence[float] | Exception) -> None:
        self.answer = answer
        self.asked: list[tuple[str, ...]] = []

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        self.asked.append(tuple(texts))
        if isinstance(self.answer, Exception):
            raise self.answer
        return [np.array([cosine, 0.0], dtype=np.float32) for cosine in self.answer]


async def never_in_time(made: Awaitable[list[Vector]], seconds: float) -> list[Vector]:
    assert seconds == 2.0
    await made
    raise TimeoutError


def look(model: Fixed | None, vector: Vector | None = ASKED, **settings: object) -> SecondLook:
    chosen = RecallSettings.model_validate({"rerank": "cosine", **settings})
    return asyncio.run(second_look(vector, TEXTS, model, chosen))


def test_cosine_is_seven_to_three() -> None:
    found = look(Fixed([0.0, 1.0, 0.5, 0.9]))
    assert found.reason == "cosine"
    order, scores = reranked(SCORES, found.cosines, DEFAULTS.cosine_weight)
    assert scores == pytest.approx((0.63, 0.86, 0.64, 0.69))
    assert order == [1, 3, 2, 0]


def test_ties_keep_their_order_and_opposite_is_no_worse_than_unrelated() -> None:
    found = look(Fixed([-1.0, 0.0, 0.0, 0.7]))
    assert reranked([0.5, 0.5, 0.5, 0.2], found.cosines, 0.3)[0] == [0, 1, 2, 3]


def test_only_the_first_are_looked_at() -> None:
    model = Fixed([0.0, 1.0])
    assert reranked(SCORES, look(model, rerank_top_n=2).cosines, 0.3)[0] == [1, 0, 2, 3]
    assert model.asked == [("a", "b")]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (OSError("gone"), "OSError: gone"),
        ([0.1, 0.2], "2 usable vectors for 4 texts"),
        ([0.1, 0.2, float("nan"), 0.3], "4 usable vectors for 4 texts"),
    ],
)
def test_on_an_error_the_order_stays(answer: Sequence[float] | Exception, reason: str) -> None:
    assert look(Fixed(answer)) == SecondLook(reason)
    assert reranked(SCORES, (), 0.3) == ([0, 1, 2, 3], [])


def test_past_the_time_the_order_stays() -> None:
    settings = RecallSettings(rerank="cosine")
    model = Fixed([0, 0, 0, 1])
    found = asyncio.run(second_look(ASKED, TEXTS, model, settings, never_in_time))
    assert found == SecondLook("longer than 2000 ms")


def test_a_real_clock_ends_it_too() -> None:
    class Slow:
        async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
            await asyncio.Event().wait()
            return []

    settings = RecallSettings(rerank="cosine", rerank_timeout_ms=1.0)
    assert not asyncio.run(second_look(ASKED, TEXTS, Slow(), settings)).cosines


def test_cancellation_is_not_swallowed() -> None:
    class Cancelled:
        async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
            raise asyncio.CancelledError

    settings = RecallSettings(rerank="cosine")
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(second_look(ASKED, TEXTS, Cancelled(), settings))


def test_off_without_a_model_a_vector_and_without_results() -> None:
    model = Fixed([])
    assert look(model, rerank="off").reason == "off"
    assert look(None).reason == "no model"
    assert look(model, None).reason == "no vector of the query"
    empty = second_look(ASKED, [], model, RecallSettings(rerank="cosine"))
    assert asyncio.run(empty) == SecondLook("no results")
    assert model.asked == []


def unit(*rows: tuple[float, ...]) -> Vector:
    vectors: Vector = np.array(rows, dtype=np.float32)
    lengths: Vector = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, dtype=np.float32)


def test_mmr_puts_what_is_different_before_what_is_alike() -> None:
    vectors = unit((1, 0), (1, 0.01), (0, 1))
    assert mmr([0.9, 0.85, 0.5], vectors, relevance=0.5) == (0, 2, 1)
    assert mmr([0.9, 0.85, 0.5], vectors, relevance=1.0) == (0, 1, 2)
    assert mmr([], unit((1, 0)), 0.5) == ()
