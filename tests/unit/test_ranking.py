from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from palimpsest.stores import ranking
from palimpsest.stores.ranking import PROFILES, Floats, ProfileWeights

scores_0_to_1 = st.lists(st.floats(0, 1), min_size=1, max_size=30).map(
    lambda values: np.array(values, dtype=np.float64)
)


def floats(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def places(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


class TestKeyword:
    def test_idf_is_the_published_formula_and_never_negative(self) -> None:
        assert ranking.idf(1, 10) == pytest.approx(math.log(1 + 9.5 / 1.5))
        assert float(ranking.idf(10, 10)) > 0

    def test_impact_is_the_idf_at_average_length_and_one_occurrence(self) -> None:
        norms = ranking.length_norms(floats(7), 7)
        weight = (ranking.DEFAULTS.k1 + 1) * 2.5
        assert ranking.bm25_impact(floats(1), norms, weight) == pytest.approx(2.5)

    @given(st.integers(1, 50), st.integers(1, 200), st.floats(0.1, 5), st.floats(0, 1))
    def test_impact_grows_with_occurrences_and_falls_with_length(
        self, count: int, length: int, k1: float, b: float
    ) -> None:
        counts, lengths = floats(count, count + 1, count), floats(length, length, length + 10)
        norms = ranking.length_norms(lengths, 20, k1, b)
        once, again, longer = ranking.bm25_impact(counts, norms, k1 + 1)
        assert again > once
        assert longer <= once

    @given(scores_0_to_1, st.floats(0.1, 50))
    def test_coverage_rises_with_the_match(self, bm25: Floats, query_idf: float) -> None:
        covered = ranking.keyword_coverage(np.sort(bm25), query_idf)
        assert (np.diff(covered) >= 0).all()
        assert ((covered >= 0) & (covered <= 1)).all()

    def test_a_query_of_unknown_words_covers_nothing(self) -> None:
        assert ranking.keyword_coverage(floats(0, 0), 0.0).tolist() == [0, 0]


class TestVector:
    def test_centring_takes_off_what_all_have_in_common(self) -> None:
        vectors = np.array([[1, 0.1], [1, -0.1]], dtype=np.float32)
        mean = vectors.mean(axis=0)
        unit = ranking.centred(vectors, mean, 1.0)
        assert unit == pytest.approx(np.array([[0, 1], [0, -1]]), abs=1e-6)
        assert ranking.centred(mean, mean, 1.0).tolist() == [0, 0]

    def test_a_scope_of_one_memory_keeps_its_direction(self) -> None:
        vector = np.array([0.6, 0.8], dtype=np.float32)
        share = ranking.centring_share(1)
        assert ranking.centred(vector, vector, share) == pytest.approx(vector, abs=1e-6)
        assert ranking.centring_share(10_000) == pytest.approx(1, abs=0.01)


class TestReciprocalRankFusion:
    def test_first_in_every_leg_has_one_and_a_miss_nothing(self) -> None:
        fused = ranking.reciprocal_rank_fusion([floats(9, 1, 0), floats(5, 2, 0)], ["a", "b", "c"])
        assert fused == pytest.approx(floats(1, 61 / 62, 0))

    def test_constant(self) -> None:
        legs = [floats(2, 1), floats(2, 0)]
        fused = ranking.reciprocal_rank_fusion(legs, ["a", "b"], k=0)
        assert fused == pytest.approx(floats(1, 0.5 / 2))

    def test_ties_rank_by_id_whatever_the_row_order(self) -> None:
        one = ranking.reciprocal_rank_fusion([floats(1, 1)], ["a", "b"])
        other = ranking.reciprocal_rank_fusion([floats(1, 1)], ["b", "a"])
        assert one.tolist() == other[::-1].tolist()


NOBODY = np.zeros(5, dtype=np.bool_)


class TestNeighbours:
    def test_those_with_more_raise_by_their_share(self) -> None:
        raised = ranking.propagate_to_neighbours(
            floats(1, 0, 0.2), places(1, 1, 1), places(0, 1, 2), NOBODY, ((-1, 0.5), (1, 0.25))
        )
        assert raised == pytest.approx(floats(1, 1 / 3 + 0.2 * 0.2, 0.2))

    def test_an_answer_is_raised_by_its_question_most(self) -> None:
        asks = np.array([True, True])
        raised = ranking.propagate_to_neighbours(
            floats(0.5, 0.1), places(1, 1), places(0, 1), asks, ((-1, 0.25), (1, 0.4)), 1.5
        )
        assert raised == pytest.approx(floats(0.5, 0.1 + 0.6 * 0.4))

    def test_no_score_passes_one(self) -> None:
        weights = ((-2, 9.0), (-1, 9.0), (1, 9.0), (2, 9.0))
        raised = ranking.propagate_to_neighbours(
            floats(1, 1, 0.5, 1, 1), places(1, 1, 1, 1, 1), places(0, 1, 2, 3, 4), NOBODY, weights
        )
        assert raised.tolist() == [1, 1, 1, 1, 1]

    def test_nothing_crosses_sessions_or_gaps_and_rows_come_in_any_order(self) -> None:
        sessions, positions = places(2, 1, -1, 1, 2), places(0, 9, 8, 4, 1)
        raised = ranking.propagate_to_neighbours(
            floats(1, 1, 0.5, 0, 0), sessions, positions, NOBODY, ((-1, 0.5), (1, 0.5))
        )
        assert raised == pytest.approx(floats(1, 1, 0.5, 0, 1 / 3))

    def test_without_sessions_or_weights_scores_stay(self) -> None:
        alone, beside = places(-1, -1), places(0, 1)
        scores = floats(0.2, 0.4)
        raised = ranking.propagate_to_neighbours(scores, alone, beside, NOBODY)
        assert raised.tolist() == [0.2, 0.4]
        raised = ranking.propagate_to_neighbours(scores, places(1, 1), beside, NOBODY, ())
        assert raised.tolist() == [0.2, 0.4]
        assert len(ranking.propagate_to_neighbours(floats(), places(), places(), NOBODY)) == 0

    @given(st.data(), scores_0_to_1)
    def test_agrees_with_the_definition(self, data: st.DataObject, scores: Floats) -> None:
        slots = st.tuples(st.integers(-1, 3), st.integers(0, 15))
        rows = data.draw(st.lists(slots, min_size=len(scores), max_size=len(scores), unique=True))
        asks = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
        weights = dict(ranking.DEFAULTS.neighbour_weights)
        expected = []
        for row, (session, position) in enumerate(rows):
            total = float(scores[row])
            for other, (its_session, its_position) in enumerate(rows):
                offset = its_position - position
                if session == its_session >= 0 and offset in weights:
                    asked_before = offset == -1 and asks[other]
                    weight = ranking.DEFAULTS.asking_weight if asked_before else weights[offset]
                    more = max(0.0, float(scores[other] - scores[row]))
                    total += weight / (1 + weight) * more
            expected.append(min(total, 1.0))
        sessions = places(*(session for session, _ in rows))
        positions = places(*(position for _, position in rows))
        raised = ranking.propagate_to_neighbours(scores, sessions, positions, np.array(asks))
        assert raised == pytest.approx(np.array(expected))


class TestFactsAndTurns:
    def test_each_is_propagated_to_the_other(self) -> None:
        links = np.array([[0, 0], [0, 1], [1, 1]], dtype=np.int64)
        turns, facts = ranking.propagate_between(
            floats(0.2, 0.8), floats(0.8, 0.5), links, 0.5, 1.0
        )
        assert turns == pytest.approx(floats((0.2 + 0.4) / 1.5, 0.8))
        assert facts == pytest.approx(floats((0.8 + 0.2) / 2, (0.5 + 0.8) / 2))

    def test_those_without_partner_keep_their_own(self) -> None:
        for links in (np.empty((0, 2), dtype=np.int64), np.array([[0, 0]], dtype=np.int64)):
            turns, facts = ranking.propagate_between(floats(0.5, 0.1), floats(0.5, 0.9), links)
            assert turns.tolist() == pytest.approx([0.5, 0.1])
            assert facts.tolist() == pytest.approx([0.5, 0.9])


class TestFinalOrder:
    def test_the_preferred_are_boosted_within_bounds(self) -> None:
        mine = np.array([True, False])
        kept, lowered = ranking.preferring(floats(0.7, 0.7), mine, 0.75)
        assert (kept, lowered) == (0.7, pytest.approx(0.4))

    def test_past_end_is_lowered_not_dropped(self) -> None:
        assert ranking.past_end(floats(0.8, 0.8), np.array([True, False])).tolist() == [0.4, 0.8]

    def test_recency_halves_with_the_half_life(self) -> None:
        assert ranking.recency(floats(-3, 0, 30, 60), 30).tolist() == [1, 1, 0.5, 0.25]

    def test_frequency_saturates(self) -> None:
        few, some, full, many = ranking.frequency(places(0, 5, 50, 9_999), 50)
        assert 0 == few < some < full == many == 1

    def test_profiles(self) -> None:
        def ordered(weights: ProfileWeights) -> Floats:
            return ranking.profile(floats(0.8), floats(0.4), floats(0.6), floats(0.2), weights)

        assert ordered(PROFILES["relevance"]).tolist() == [0.8]
        balanced = ordered(PROFILES["balanced"])
        assert balanced == pytest.approx([0.55 * 0.8 + 0.2 * 0.4 + 0.15 * 0.6 + 0.1 * 0.2])
        for wrong in (ProfileWeights(0, 0, 0, 0), ProfileWeights(1, -0.5)):
            with pytest.raises(ValueError, match="profile weights"):
                ordered(wrong)


class TestTop:
    def test_best_first_ties_by_id(self) -> None:
        ids = ["d", "c", "b", "a"]
        assert ranking.top(floats(0.5, 0.9, 0.5, 0.5 + 1e-9), ids, 3).tolist() == [1, 3, 2]

    def test_a_nan_is_refused(self) -> None:
        with pytest.raises(ValueError, match="NaN"):
            ranking.top(floats(0.1, np.nan), ["a", "b"], 1)

    @given(
        arrays(np.float64, st.integers(0, 60), elements=st.sampled_from([0.0, 0.1, 0.5, 0.9])),
        st.integers(0, 70),
    )
    def test_top_k_is_a_prefix_of_the_whole_in_any_row_order(self, scores: Floats, k: int) -> None:
        ids = [f"m{number:03}" for number in range(len(scores))]
        whole = [ids[place] for place in ranking.top(scores, ids, len(ids))]
        mixed = np.random.default_rng(k).permutation(len(ids))
        mixed_ids = [ids[place] for place in mixed]
        found = [mixed_ids[place] for place in ranking.top(scores[mixed], mixed_ids, k)]
        assert found == whole[:k]
        assert whole == sorted(ids, key=lambda one: (-scores[ids.index(one)], one))
