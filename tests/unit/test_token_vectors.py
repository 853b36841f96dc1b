"""Packed token vectors: small, near to what they stand for, the same wherever they stand."""

from __future__ import annotations

import tracemalloc
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from palimpsest.stores.index.token_vectors import (
    MOST_COMPARED,
    PASSAGE_TOKENS,
    SENTENCE_TOKENS,
    WINDOW_TOKENS,
    TokenCodec,
    learned,
    token_codec,
)
from palimpsest.streams.models.late_interaction import DIMENSIONS, MODEL, WINDOW_PIECES
from tests.examples import examples

Vectors = NDArray[np.float32]
SEEDS = st.integers(0, 2**32 - 1)


def unit(count: int, seed: int, dimensions: int = DIMENSIONS) -> Vectors:
    """Random unit vectors that lean one way, as tokens do."""
    random = np.random.default_rng(seed)
    lean = np.linspace(1.0, 0.0, dimensions) ** 4
    vectors = (random.standard_normal((count, dimensions)) * lean + lean).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@cache
def codec() -> TokenCodec:
    return learned(unit(4_000, 1), 128)


def exact(query: Vectors, tokens: Vectors) -> float:
    """MaxSim within the directions that are kept, without rounding."""

    def within(vectors: Vectors) -> Vectors:
        kept = vectors @ codec().basis
        return kept / np.linalg.norm(kept, axis=1, keepdims=True)

    return float((within(query) @ within(tokens).T).max(axis=1).mean())


def test_the_codec_of_the_model_is_there() -> None:
    codec = token_codec(MODEL)
    assert codec is not None
    assert codec.basis.shape == (DIMENSIONS, 128)
    assert codec.token_bytes == 66
    np.testing.assert_allclose(codec.basis.T @ codec.basis, np.eye(128), atol=2e-3)
    assert token_codec("a-model-of-somebody") is None


@settings(max_examples=examples(12))
@given(st.integers(1, 60), SEEDS)
def test_unpacked_is_nearly_what_was_packed(count: int, seed: int) -> None:
    tokens = unit(count, seed)
    packed = codec().pack(tokens)
    assert len(packed) == count * codec().token_bytes
    found = codec().unpack(packed)
    assert found.shape == tokens.shape
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=2e-3)
    assert (found * tokens).sum(axis=1).min() > 0.85


@settings(max_examples=examples(12))
@given(st.integers(1, 30), SEEDS)
def test_packing_what_was_unpacked_changes_next_to_nothing(count: int, seed: int) -> None:
    once = codec().unpack(codec().pack(unit(count, seed)))
    again = codec().unpack(codec().pack(once))
    assert (once * again).sum(axis=1).min() > 0.99


@settings(max_examples=examples(12))
@given(st.integers(1, 32), st.lists(st.integers(1, 50), min_size=1, max_size=20), SEEDS)
def test_a_similarity_is_near_the_exact_one(asked: int, sizes: list[int], seed: int) -> None:
    query = unit(asked, seed)
    memories = [unit(size, seed + place + 1) for place, size in enumerate(sizes)]
    packed = [codec().pack(memory) for memory in memories]
    found = codec().similarities(codec().query(query), packed)
    wanted = [exact(query, memory) for memory in memories]
    np.testing.assert_allclose(found, wanted, atol=0.04)
    assert found.max() <= 1.01


def test_windows_are_those_that_the_model_reads() -> None:
    assert WINDOW_TOKENS == WINDOW_PIECES + 2


@settings(max_examples=examples(12))
@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), SEEDS, st.randoms())
def test_a_similarity_has_the_same_bits_whatever_stands_beside_it(
    sizes: list[int], seed: int, random: object
) -> None:
    query = codec().query(unit(9, seed))
    packed = [codec().pack(unit(size, seed + place + 1)) for place, size in enumerate(sizes)]
    together = codec().similarities(query, packed)
    alone = np.concatenate([codec().similarities(query, [one]) for one in packed])
    np.testing.assert_array_equal(together, alone)
    order = np.random.default_rng(seed).permutation(len(packed))
    np.testing.assert_array_equal(
        codec().similarities(query, [packed[place] for place in order]), together[order]
    )


def test_what_has_no_tokens_has_no_similarity() -> None:
    query = codec().query(unit(5, 1))
    found = codec().similarities(query, [b"", codec().pack(unit(3, 2)), b""])
    assert np.isnan(found).tolist() == [True, False, True]
    assert len(codec().similarities(query, [])) == 0
    nothing = codec().query(np.zeros((0, DIMENSIONS), dtype=np.float32))
    assert np.isnan(codec().similarities(nothing, [codec().pack(unit(3, 2))])).all()
    assert codec().unpack(b"").shape == (0, DIMENSIONS)


def test_a_text_is_nearest_to_itself() -> None:
    memories = [unit(20, seed) for seed in range(50)]
    packed = [codec().pack(memory) for memory in memories]
    for place in range(0, 50, 7):
        found = codec().similarities(codec().query(memories[place]), packed)
        assert int(found.argmax()) == place
        assert found[place] > 0.98


@pytest.mark.parametrize("cut", [1, 65])
def test_cut_bytes_are_refused(cut: int) -> None:
    packed = codec().pack(unit(2, 3))
    with pytest.raises(ValueError, match="whole tokens"):
        codec().unpack(packed[:-cut])
    with pytest.raises(ValueError, match="whole tokens"):
        codec().similarities(codec().query(unit(2, 3)), [packed[:-cut]])


def test_other_numbers_of_directions_work_alike() -> None:
    codec: TokenCodec = learned(unit(500, 1, 32), 8)
    tokens = unit(4, 2, 32)
    assert len(codec.pack(tokens)) == 4 * (4 + 2)
    assert codec.unpack(codec.pack(tokens)).shape == (4, 32)


def test_what_was_said_nearby_counts_for_the_most_part() -> None:
    question, answer, strange = unit(6, 11), unit(8, 12), unit(9, 13)
    packed = [codec().pack(question), codec().pack(answer), b"", codec().pack(strange)]
    query = codec().query(question)
    alone = codec().similarities(query, packed)
    found = codec().similarities(query, packed, [(np.array([-1, 0, 1, 2]), 0.9)])
    assert found[0] == alone[0]
    assert found[1] >= max(alone[1], 0.9 * alone[0] - 1e-6)
    assert np.isnan(found[2])
    assert found[3] == alone[3]
    moved = codec().similarities(query, [packed[1], packed[0]], [(np.array([1, -1]), 0.9)])
    np.testing.assert_array_equal(moved, found[[1, 0]])
    two_after = (np.array([-1, -1, -1, -1]), 0.8), (np.array([-1, 3, -1, 0]), 0.85)
    both = codec().similarities(query, packed, two_after)
    assert both[3] >= 0.85 * alone[0] - 1e-6
    assert both[0] == alone[0]


@pytest.mark.parametrize("count", [PASSAGE_TOKENS, PASSAGE_TOKENS + 1, 2 * PASSAGE_TOKENS + 452])
def test_a_long_memory_counts_by_its_nearest_passage(count: int) -> None:
    query, short, tokens = codec().query(unit(7, 1)), unit(30, 2), unit(count, 3)
    parts = [tokens[at : at + PASSAGE_TOKENS] for at in range(0, count, PASSAGE_TOKENS)]
    packed = [codec().pack(each) for each in (short, tokens, short)]
    of_parts = codec().similarities(query, [codec().pack(part) for part in parts])
    found = codec().similarities(query, packed)
    assert found[1] == of_parts.max()
    assert found[0] == found[2] == codec().similarities(query, packed[:1])[0]
    # The words of a turn near it count as before.
    near = [(np.array([-1, 0, -1]), 0.9)]
    nearest = codec().pack(parts[int(of_parts.argmax())])
    expected = codec().similarities(query, [packed[0], nearest, packed[2]], near)
    np.testing.assert_array_equal(codec().similarities(query, packed, near), expected)


def test_of_a_long_memory_a_long_question_finds_what_it_repeats() -> None:
    tokens = unit(9 * PASSAGE_TOKENS + 100, 4)
    for passage in (0, 6, 9):
        said = tokens[passage * PASSAGE_TOKENS :][: min(254, PASSAGE_TOKENS)]
        query = codec().query(said)
        alone = codec().pack(tokens[passage * PASSAGE_TOKENS :][:PASSAGE_TOKENS])
        short = codec().pack(unit(30, 2))
        found = codec().similarities(query, [short, codec().pack(tokens), short])
        expected = codec().similarities(query, [short, alone, short])
        np.testing.assert_array_equal(found, expected)
        assert found[1] > 0.98
        assert codec().nearest_passages(query, [codec().pack(tokens)])[0] <= found[1] + 1e-6


@settings(max_examples=examples(12))
@given(st.lists(st.sampled_from([1, 30, MOST_COMPARED, MOST_COMPARED + 1]), max_size=9), SEEDS)
def test_long_questions_and_memories_are_compared_one_by_one(sizes: list[int], seed: int) -> None:
    query = codec().query(unit(40, seed))
    packed = [codec().pack(unit(size, seed + place + 1)) for place, size in enumerate(sizes)]
    together = codec().similarities(query, packed)
    alone = [codec().similarities(query, [one])[0] for one in packed]
    np.testing.assert_array_equal(together, alone)


def test_long_questions_and_memories_take_little_memory() -> None:
    query = codec().query(unit(254, 1))
    packed = [codec().pack(unit(16_384, 2))] * 6 + [codec().pack(unit(2_000, 3))] * 40
    tracemalloc.start()
    try:
        codec().similarities(query, packed)
        codec().nearest_passages(query, packed)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 128 * 2**20  # all at once: some 2 GB


@settings(max_examples=examples(12))
@given(st.lists(st.integers(0, 200), min_size=1, max_size=6), SEEDS)
def test_the_nearest_passage_is_the_best_of_all_that_overlap(sizes: list[int], seed: int) -> None:
    query = codec().query(unit(5, seed))
    texts = [unit(size, seed + number + 1) for number, size in enumerate(sizes)]
    found = codec().nearest_passages(query, [codec().pack(text) for text in texts])
    for text, nearest in zip(texts, found.tolist(), strict=True):
        starts = range(0, max(len(text) - SENTENCE_TOKENS, 1), SENTENCE_TOKENS)
        parts = [codec().pack(text[at : at + 2 * SENTENCE_TOKENS]) for at in starts]
        expected = codec().similarities(query, parts).max()
        np.testing.assert_equal(nearest, expected)


@settings(max_examples=examples(12))
@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(0, 40), SEEDS)
def test_the_nearest_sentence_is_the_one_that_a_question_repeats(
    sizes: list[int], before: int, seed: int
) -> None:
    """In windows with a mark at each end, after a day and a speaker."""
    wanted = max(range(len(sizes)), key=lambda number: (sizes[number], number))
    words = unit(before + sum(sizes), seed)
    first = before + sum(sizes[:wanted])
    query = codec().query(words[first : first + sizes[wanted]])
    step = WINDOW_TOKENS - 2
    windows = [words[at : at + step] for at in range(0, max(len(words), 1), step)]
    marks = unit(1, seed + 1)
    tokens = np.concatenate([each for window in windows for each in (marks, window, marks)])
    found = codec().nearest_sentence(query, codec().pack(tokens), sizes)
    if sizes[wanted] > 3:
        assert found == wanted
    # Of another text, as an outline of it.
    assert codec().nearest_sentence(query, codec().pack(tokens), [*sizes, 1 + before]) is None
