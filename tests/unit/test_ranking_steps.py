"""The steps of a query's ranking, one by one and in their order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.segment import META, Floats
from palimpsest.stores.ranking import DEFAULTS
from palimpsest.stores.recall.intent import RequestedSpeaker
from palimpsest.stores.recall.query import Fusion
from palimpsest.stores.recall.ranking_steps import (
    RERANK_STEPS,
    STEPS,
    Ranking,
    RankingContext,
    fuse_legs,
    lift_passage,
    lower_echoes,
    lower_questions,
    prefer_told_times,
    propagate_neighbours,
    weigh_speakers,
)
from palimpsest.stores.settings import RecallSettings

DOCS = Path(__file__).parents[2] / "ops" / "docs" / "retrieval.md"


def fused(
    vector: list[float] | None,
    keyword: list[float] | None,
    alpha: float = 0.5,
    fusion: Fusion = "hybrid",
) -> Floats:
    """The scores of turns with these scores by each leg."""
    count = len(vector or keyword or ())
    rows = Ranking(
        ids=[str(number) for number in range(count)],
        turns=count,
        meta=np.zeros(count, dtype=META),
        keyword=None if keyword is None else np.array(keyword),
        vector=None if vector is None else np.array(vector),
        graph=np.zeros(count),
        of_named=None,
        links=np.zeros((0, 2), dtype=np.int64),
        questions=np.zeros(count, dtype=np.bool_),
        nearby={},
    )
    context = RankingContext(ScopeIndex(8), 10, 0, RecallSettings(alpha=alpha, fusion=fusion))
    fuse_legs(rows, context)
    assert sum(rows.parts.values()) == pytest.approx(rows.scores)
    return rows.scores


def test_both_legs_by_alpha() -> None:
    assert fused([1, 0], [0, 1], 0.45) == pytest.approx([0.45, 0.55])


def test_a_leg_that_is_off_leaves_the_other_and_two_leave_nothing() -> None:
    assert fused(None, [0.3]).tolist() == [0.3]
    assert fused([0.4], None).tolist() == [0.4]
    assert fused([0.4], [0.3], fusion="keyword").tolist() == [0.3]
    assert fused([0.4], [0.3], fusion="vector").tolist() == [0.4]
    assert fused([0.4], None, fusion="keyword").tolist() == [0.4]


def test_one_poor_score_never_passes_two_good_ones() -> None:
    poor, good = fused([0.3, 0.5], [np.nan, 0.5])
    assert good > poor


@given(st.lists(st.floats(0, 1), min_size=1), st.floats(0, 1))
def test_a_score_rises_with_either_leg(vector: list[float], alpha: float) -> None:
    keyword = vector[::-1]
    before = fused(vector, keyword, alpha)
    assert (fused([score + 0.1 for score in vector], keyword, alpha) >= before).all()
    assert (fused(vector, [score + 0.1 for score in keyword], alpha) >= before).all()


def test_the_order_of_the_steps_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    places = [text.find(f"`{step.__name__}`") for step in (*STEPS, *RERANK_STEPS[:-1])]
    assert -1 not in places
    assert places == sorted(places)


def test_who_asks_when_prefers_what_tells_a_time() -> None:
    rows = Ranking(
        ids=["fond", "told"],
        turns=2,
        meta=np.zeros(2, dtype=META),
        keyword=np.array([0.5, 0.48]),
        vector=None,
        graph=np.zeros(2),
        of_named=None,
        links=np.zeros((0, 2), dtype=np.int64),
        questions=np.zeros(2, dtype=np.bool_),
        nearby={},
        tells_time=np.array([False, True]),
    )
    context = RankingContext(ScopeIndex(8), 10, 0)
    for step in (fuse_legs, prefer_told_times):
        step(rows, context)
    assert rows.scores.tolist() == pytest.approx([0.5 / 1.2, 0.48])
    assert sum(rows.parts.values()) == pytest.approx(rows.scores)


def by_role(speaker: RequestedSpeaker) -> list[float]:
    """Scores of a person's statement, their question and the assistant's answer, alike before."""
    rows = Ranking(
        ids=["said", "asked", "answered"],
        turns=3,
        meta=np.zeros(3, dtype=META),
        keyword=np.ones(3),
        vector=None,
        graph=np.zeros(3),
        of_named=None,
        links=np.zeros((0, 2), dtype=np.int64),
        questions=np.array([False, True, False]),
        nearby={},
        of_assistant=np.array([False, False, True]),
        only_questions=np.array([False, True, False]),
    )
    context = RankingContext(ScopeIndex(8), 10, 0, speaker=speaker)
    fuse_legs(rows, context)
    weigh_speakers(rows, context)
    lower_questions(rows, context)
    assert sum(rows.parts.values()) == pytest.approx(rows.scores)
    found: list[float] = rows.scores.tolist()
    return found


def test_an_echo_is_lowered_and_one_that_says_nothing_else_more() -> None:
    rows = Ranking(
        ids=["said", "echoes", "only"],
        turns=3,
        meta=np.zeros(3, dtype=META),
        keyword=np.ones(3),
        vector=None,
        graph=np.zeros(3),
        of_named=None,
        links=np.zeros((0, 2), dtype=np.int64),
        questions=np.zeros(3, dtype=np.bool_),
        nearby={},
        echoes=np.array([False, True, True]),
        only_echoes=np.array([False, False, True]),
    )
    context = RankingContext(ScopeIndex(8), 10, 0)
    fuse_legs(rows, context)
    lower_echoes(rows, context)
    assert rows.scores.tolist() == [1.0, 0.25, 0.1]


def test_a_question_raises_its_answer_and_is_none_itself_also_among_people() -> None:
    meta = np.zeros(2, dtype=META)
    meta["position"] = [0, 1]
    rows = Ranking(
        ids=["asked", "answered"],
        turns=2,
        meta=meta,
        keyword=np.array([1.0, 0.8]),
        vector=None,
        graph=np.zeros(2),
        of_named=None,
        links=np.zeros((0, 2), dtype=np.int64),
        questions=np.array([True, False]),
        nearby={},
        only_questions=np.array([True, False]),
    )
    context = RankingContext(ScopeIndex(8), 10, 0)
    for step in (fuse_legs, propagate_neighbours, lower_questions):
        step(rows, context)
    assert rows.parts["neighbours"].tolist() == pytest.approx([0.0, 0.12])
    assert rows.scores.tolist() == pytest.approx([0.9, 0.92])


def test_what_an_assistant_said_ranks_lower_unless_the_question_asks_for_it() -> None:
    said, asked, answered = by_role("people")
    assert said > asked > answered
    said, asked, answered = by_role("assistant")
    assert answered > said
    said, asked, answered = by_role("anyone")
    assert answered == said > asked


@pytest.mark.parametrize(
    ("passage", "rank"),
    [([0.2, 0.1], 3), ([0.55, 0.1], 3), ([0.7, 0.9], 3), ([0.9, 0.7], 3), ([0.9, 0.7], 0)],
)
def test_the_nearest_passage_of_an_assistant_takes_the_third_place_at_most(
    passage: list[float], rank: int
) -> None:
    """Four turns of a person, then two of an assistant."""
    alone = [0.8, 0.6, 0.5, 0.4, 0.3, 0.2]
    rows = Ranking(
        ids=[*"abcdef"],
        turns=6,
        meta=np.zeros(6, dtype=META),
        keyword=None,
        vector=np.array(alone),
        graph=np.zeros(6),
        of_named=None,
        links=np.zeros((0, 2), dtype=np.int64),
        questions=np.zeros(6, dtype=np.bool_),
        nearby={},
        passage=np.array([np.nan] * 4 + passage),
    )
    parameters = replace(DEFAULTS, passage_rank=rank)
    context = RankingContext(ScopeIndex(8), 10, 0, RecallSettings(alpha=1.0), parameters)
    for step in (fuse_legs, lift_passage):
        step(rows, context)
    best = 4 + int(np.argmax(passage))
    lifts = rank > 0 and max(passage) > alone[1]
    expected = [(0.55 if lifts and row == best else score) for row, score in enumerate(alone)]
    assert rows.scores.tolist() == pytest.approx(expected)
    assert sum(rows.parts.values()) == pytest.approx(rows.scores)
