"""Which fact of one memory is which of another."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.ops.replay.counterparts import (
    NEAR_COSINE,
    ComparedFact,
    Comparison,
    Pairs,
    denies,
    may_be_pairs,
    near_cosine,
    negates,
    scored,
    shared_words,
)
from palimpsest.schemas.normal_forms import content_hash

WORDS = ("Ana", "Rex", "likes", "tea", "not", "never", "Oslo", "nicht", "dog", "a")
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)


def statement(memory_id: str, content: str, *sources: str) -> ComparedFact:
    return ComparedFact(memory_id, content, content_hash(content), sources)


@st.composite
def memories(draw: st.DrawFn, prefix: str) -> list[ComparedFact]:
    """Facts as a scope has them: no content twice."""
    texts = draw(st.lists(TEXTS, max_size=8, unique_by=content_hash))
    turns = st.lists(st.sampled_from(("t1", "t2", "t3")), min_size=1, max_size=2, unique=True)
    return [statement(f"{prefix}{number}", text, *draw(turns)) for number, text in enumerate(texts)]


def paired(live: list[ComparedFact], branch: list[ComparedFact], gone: list[ComparedFact]) -> Pairs:
    pairs = Pairs(frozenset(each.memory_id for each in gone))
    pairs.take_equal(live, branch)
    rest = [each for each in live if each.memory_id not in pairs.paired]
    other = [each for each in branch if each.memory_id not in pairs.taken]
    pairs.take(scored(Comparison({}, 1.0), may_be_pairs([*rest, *gone], other)))
    return pairs


@given(memories("l"), memories("b"), memories("f"), st.randoms(use_true_random=False))
def test_pairs_hold_whatever_the_order(
    live: list[ComparedFact],
    branch: list[ComparedFact],
    gone: list[ComparedFact],
    chance: random.Random,
) -> None:
    pairs = paired(live, branch, gone)
    by_id = {each.memory_id: each for each in (*live, *branch, *gone)}
    taken = [pair.branch for pair in pairs.paired.values()]
    assert len(taken) == len(set(taken))
    assert pairs.repeated.keys().isdisjoint(taken)
    digests = {each.digest for each in live} & {each.digest for each in branch}
    for pair in (*pairs.paired.values(), *pairs.repeated.values()):
        one, two = by_id[pair.live], by_id[pair.branch]
        if one.digest != two.digest:
            assert not denies(one.content, two.content)
            assert {*one.sources} & {*two.sources}
    assert {by_id[k].digest for k, p in pairs.paired.items() if p.similarity == 1.0} >= digests
    for rows in (live, branch, gone):
        chance.shuffle(rows)
    assert paired(live, branch, gone) == pairs


@given(TEXTS, TEXTS)
def test_denying_and_sharing_words_are_symmetric(a: str, b: str) -> None:
    assert denies(a, b) == denies(b, a)
    assert shared_words(a, b) == shared_words(b, a)
    assert shared_words(a, a) in (0.0, 1.0)


@pytest.mark.parametrize(
    ("yes", "no"),
    [
        ("Ana likes tea", "Ana does not like tea"),
        ("Ana likes tea", "Ana doesn’t like tea"),
        ("Ana eats meat", "Ana never eats meat"),
        ("Ana mag Tee", "Ana mag keinen Tee"),
        ("Ana trinkt Tee", "Ana trinkt nicht mehr Tee"),
        ("Ana aime le thé", "Ana n'aime pas le thé"),
        ("A Ana le gusta el té", "A Ana no le gusta el té"),
        ("Ana beve il tè", "Ana non beve il tè"),
        ("A Ana gosta de chá", "A Ana não gosta de chá"),
        ("Ana drinkt thee", "Ana drinkt geen thee"),
        ("Анна любит чай", "Анна не любит чай"),
        ("アナは緑茶が好きです", "アナは緑茶が好きではない"),
        ("アナは緑茶を飲みます", "アナは緑茶を飲みません。"),
        ("安娜喜欢喝茶", "安娜不喜欢喝茶"),
        ("The alarm is always on", "The alarm is always off"),
    ],
)
def test_what_denies_the_other_is_never_its_pair(yes: str, no: str) -> None:
    assert denies(yes, no)
    live, branch = [statement("l", yes, "t")], [statement("b", no, "t")]
    assert not paired(live, branch, []).paired
    assert not paired([], branch, live).repeated


@pytest.mark.parametrize(
    "text",
    ["Ana knows Nora", "Ana wohnt in Nizza", "アナは少ない", "Knut is here", "Non-Stop-Radio Ana"],
)
def test_words_that_only_look_like_a_negation(text: str) -> None:
    assert negates(text) == text.startswith(("アナ", "Non"))


def test_the_nearest_is_taken_and_each_once() -> None:
    live = [statement("l1", "Ana likes tea", "t"), statement("l2", "Ana likes green tea", "t")]
    branch = [statement("b1", "Ana really likes green tea", "t")]
    pairs = paired(live, branch, [])
    assert {pair.live: pair.branch for pair in pairs.paired.values()} == {"l2": "b1"}


def test_what_was_forgotten_takes_any_number() -> None:
    gone = [statement("f", "Ana is afraid of Rex", "t")]
    branch = [
        statement("b1", "Ana is very afraid of Rex", "t"),
        statement("b2", "Ana seems afraid of Rex", "t"),
        statement("b3", "Ana is afraid of Rex", "other"),
    ]
    assert paired([], branch, gone).repeated.keys() == {"b1", "b2"}


def test_one_id_is_one_fact() -> None:
    pairs = paired([statement("m", "Ana likes tea", "t")], [statement("m", "Oslo", "t")], [])
    pairs.take_same_id(["m"], ["m"], 0.0)
    assert pairs.paired["m"].branch == "m"


def test_every_measured_model_has_a_bar_of_its_own() -> None:
    bars = [near_cosine(f"{name}-x") for name in ("hashing", "multilingual-e5-small")]
    assert near_cosine("unknown") == NEAR_COSINE
    assert all(one < other for one, other in pairwise(bars))
