from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import numpy as np
import pytest

from palimpsest.stores.ranking import DEFAULTS
from palimpsest.stores.recall.rerank import (
    Rerank,
    mmr,
    rerank_by_cosines,
    rerank_by_pairs,
    reranked,
)
from palimpsest.stores.recall.token_leg import Vector
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


def look(model: Fixed | None, vector: Vector | None = ASKED, **settings: object) -> Rerank:
    chosen = RecallSettings.model_validate({"rerank": "cosine", **settings})
    return asyncio.run(rerank_by_cosines(vector, TEXTS, model, chosen))


def test_cosine_is_seven_to_three() -> None:
    found = look(Fixed([0.0, 1.0, 0.5, 0.9]))
    assert found.reason == "cosine"
    order, scores = reranked(SCORES, found.scores, DEFAULTS.cosine_weight)
    assert scores == pytest.approx((0.63, 0.86, 0.64, 0.69))
    assert order == [1, 3, 2, 0]


def test_ties_keep_their_order_and_opposite_is_no_worse_than_unrelated() -> None:
    found = look(Fixed([-1.0, 0.0, 0.0, 0.7]))
    assert reranked([0.5, 0.5, 0.5, 0.2], found.scores, 0.3)[0] == [0, 1, 2, 3]


def test_only_the_first_are_looked_at() -> None:
    model = Fixed([0.0, 1.0])
    assert reranked(SCORES, look(model, rerank_top_n=2).scores, 0.3)[0] == [1, 0, 2, 3]
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
    assert look(Fixed(answer)) == Rerank(reason)
    assert reranked(SCORES, (), 0.3) == ([0, 1, 2, 3], [])


def test_past_the_time_the_order_stays() -> None:
    settings = RecallSettings(rerank="cosine")
    model = Fixed([0, 0, 0, 1])
    found = asyncio.run(rerank_by_cosines(ASKED, TEXTS, model, settings, never_in_time))
    assert found == Rerank("longer than 2000 ms")


def test_a_real_clock_ends_it_too() -> None:
    class Slow:
        async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
            await asyncio.Event().wait()
            return []

    settings = RecallSettings(rerank="cosine", rerank_timeout_ms=1.0)
    assert not asyncio.run(rerank_by_cosines(ASKED, TEXTS, Slow(), settings)).scores


def test_cancellation_is_not_swallowed() -> None:
    class Cancelled:
        async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
            raise asyncio.CancelledError

    settings = RecallSettings(rerank="cosine")
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(rerank_by_cosines(ASKED, TEXTS, Cancelled(), settings))


def test_without_a_model_a_vector_or_results_there_is_none() -> None:
    model = Fixed([])
    assert look(None).reason == "no model"
    assert look(model, None).reason == "no vector of the query"
    empty = rerank_by_cosines(ASKED, [], model, RecallSettings(rerank="cosine"))
    assert asyncio.run(empty) == Rerank("no results")
    assert model.asked == []


READINGS = [("a",), ("b", "ab"), ("c", "bc"), ("d",)]


class Reader:
    """Gives these scores, and stands still after them."""

    def __init__(self, answer: Sequence[float | None] | Exception) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def scores(
        self, question: str, passages: Sequence[str], seconds: float
    ) -> list[float | None]:
        assert (question, seconds) == ("q", 2.0)
        self.asked += passages
        if isinstance(self.answer, Exception):
            raise self.answer
        return list(self.answer)


def read(model: Reader | None, **settings: object) -> Rerank:
    chosen = RecallSettings.model_validate({"rerank": "cross-encoder", **settings})
    return asyncio.run(rerank_by_pairs("q", READINGS, model, chosen))


def test_a_result_has_the_mean_of_its_readings() -> None:
    model = Reader([0.1, 0.2, 0.4, 1.0, 0.0, 0.7])
    found = read(model)
    assert found.scores == pytest.approx((0.1, 0.3, 0.5, 0.7))
    assert (found.reason, found.by) == ("cross-encoder", "cross-encoder")
    assert model.asked == ["a", "b", "ab", "c", "bc", "d"]
    assert read(Reader([0.1, 0.2, 0.4]), rerank_top_n=2).scores == pytest.approx((0.1, 0.3))


def test_what_was_not_read_in_time_keeps_its_place() -> None:
    found = read(Reader([0.1, 0.9, 0.9, 0.5, None, None]))
    assert found.scores == pytest.approx((0.1, 0.9))
    assert found.reason == "cross-encoder, 2 of 4 in time"
    assert reranked(SCORES, found.scores, DEFAULTS.cross_encoder_weight)[0] == [1, 0, 2, 3]
    assert read(Reader([None] * 6)) == Rerank("longer than 2000 ms")


def test_a_reader_that_fails_or_is_not_there_changes_nothing() -> None:
    assert read(Reader(OSError("gone"))) == Rerank("OSError: gone")
    assert read(None) == Rerank("no model")
    settings = RecallSettings(rerank="cross-encoder")
    nothing = rerank_by_pairs("q", [], Reader([]), settings)
    assert asyncio.run(nothing) == Rerank("no results")


def test_a_reader_that_hangs_is_left() -> None:
    class Hanging:
        async def scores(
            self, question: str, passages: Sequence[str], seconds: float
        ) -> list[float | None]:
            await asyncio.Event().wait()
            return []

    settings = RecallSettings(rerank="cross-encoder", rerank_timeout_ms=1.0)
    found = asyncio.run(rerank_by_pairs("q", READINGS, Hanging(), settings))
    assert found == Rerank("longer than 1 ms")


def unit(*rows: tuple[float, ...]) -> Vector:
    vectors: Vector = np.array(rows, dtype=np.float32)
    lengths: Vector = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, dtype=np.float32)


def test_mmr_puts_what_is_different_before_what_is_alike() -> None:
    vectors = unit((1, 0), (1, 0.01), (0, 1))
    assert mmr([0.9, 0.85, 0.5], vectors, relevance=0.5) == (0, 2, 1)
    assert mmr([0.9, 0.85, 0.5], vectors, relevance=1.0) == (0, 1, 2)
    assert mmr([], unit((1, 0)), 0.5) == ()
