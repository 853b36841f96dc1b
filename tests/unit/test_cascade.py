"""What goes with forgotten memories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.streams.apply.forget import drawn_from_nothing_else

IDS = st.sampled_from("abcdefgh")
SETS = st.frozensets(IDS)
GRAPHS = st.dictionaries(IDS, SETS)


def test_in_turn() -> None:
    sources = {"fact": {"turn"}, "both": {"turn", "other"}, "of fact": {"fact"}}
    active = {*sources, "turn", "other"}
    assert drawn_from_nothing_else({"turn"}, sources, active) == ("fact", "of fact")
    # A source that was forgotten before keeps nothing.
    assert "both" in drawn_from_nothing_else({"turn"}, sources, active - {"other"})
    # What is forgotten already does not go again, nor what was drawn from that alone.
    assert drawn_from_nothing_else({"turn"}, sources, active - {"fact"}) == ()


def test_an_answer_says_nothing_without_its_question() -> None:
    answers = {("fact", "yes"): "question"}
    for more, stays in ((set(), False), ({"again"}, True)):
        sources = {"fact": {"yes", "question", *more}}
        active = {"fact", "yes", "question", *more}
        for gone in ("question", "yes"):
            going = drawn_from_nothing_else({gone}, sources, active, answers)
            assert going == (() if stays else ("fact",)), gone
    # What was drawn from several turns, and answers none, stays with either.
    both = {"fact": {"yes", "question"}}
    assert drawn_from_nothing_else({"yes"}, both, {"fact", "yes", "question"}) == ()


@given(SETS, GRAPHS, SETS)
def test_each_that_goes_has_no_source_left_and_each_that_stays_has(
    gone: frozenset[str], sources: dict[str, frozenset[str]], active: frozenset[str]
) -> None:
    going = drawn_from_nothing_else(gone, sources, active)
    assert list(going) == sorted(set(going) - gone)
    left = active - gone - set(going)
    for memory_id in going:
        assert memory_id in active
        assert not sources[memory_id] & left
    for memory_id in left & sources.keys():
        touched = sources[memory_id] & (gone | set(going))
        assert not touched or sources[memory_id] & left


@given(SETS, SETS, GRAPHS, SETS)
def test_more_forgotten_takes_no_less_along(
    gone: frozenset[str],
    more: frozenset[str],
    sources: dict[str, frozenset[str]],
    active: frozenset[str],
) -> None:
    few = {*gone, *drawn_from_nothing_else(gone, sources, active)}
    assert few <= {*gone, *more, *drawn_from_nothing_else(gone | more, sources, active)}
