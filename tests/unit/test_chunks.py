"""A text in chunks: none too long, nothing lost, cut where a reader would."""

from __future__ import annotations

import itertools
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palimpsest.schemas.normal_forms import one_line
from palimpsest.streams.normalize import _between_graphemes, batches, chunks

JAPANESE = "京都の港には多くの船が来る。冬は雪が降る。「本当ですか？」と彼は言った。" * 200
GERMAN = "Der Hafen von Oslo ist alt und groß, und viele Schiffe kommen z. B. aus Bergen. " * 200
UNENDING = "港" * 5_000


@example("0" * 9 + "\u03000", 10, 1)
@given(st.text(max_size=3_000), st.integers(10, 200), st.integers(0, 5))
def test_no_chunk_is_too_long_and_nothing_is_lost(text: str, size: int, overlap: int) -> None:
    found = chunks(text, size, overlap)
    whole = one_line(text)
    assert all(0 < len(chunk) <= size for chunk in found)
    assert bool(found) == bool(whole)
    place = 0  # every chunk goes on where the one before ended, or within its overlap
    squeezed = whole.replace(" ", "")
    for chunk in found:
        own = one_line(chunk).replace(" ", "")
        least = max(0, place - overlap)
        at = squeezed.find(own, _between_graphemes(squeezed, least, 0))
        assert 0 <= at <= place
        place = max(place, at + len(own))
    assert place == len(squeezed)


@pytest.mark.parametrize(
    ("text", "ends"), [(GERMAN, "."), (JAPANESE, "。"), (JAPANESE.replace("。", "。\n"), "。")]
)
def test_chunks_end_with_a_sentence(text: str, ends: str) -> None:
    found = chunks(text, 2_000, 200)
    assert len(found) > 3
    assert all(chunk.endswith(ends) for chunk in found)
    assert all(1_400 < len(chunk) <= 2_000 for chunk in found[:-1])
    for before, after in itertools.pairwise(found):
        assert before.endswith(after[:20]) or after[:20] in before[-220:]


def test_a_paragraph_goes_before_a_sentence_and_a_word_before_none() -> None:
    paragraphs = "A. " * 590 + "end\n\n" + "B. " * 200
    assert chunks(paragraphs, 2_000, 0)[0].endswith("end")
    assert set(chunks("word " * 1_000, 2_000, 0)[0].split()) == {"word"}


def test_a_text_without_ends_is_cut_all_the_same() -> None:
    found = chunks(UNENDING, 2_000, 200)
    assert [len(chunk) for chunk in found] == [2_000, 2_000, 1_400]


@pytest.mark.parametrize(
    "grapheme",
    [
        "x\u0323\u0301",  # marks that compose to nothing
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",  # a family
        "\U0001f44d\U0001f3fd",  # a skin tone
        "\U0001f1f3\U0001f1f4",  # a flag
        "का",  # a vowel sign
        "\U0001f3f4\U000e0067\U000e0062\U000e007f",  # a flag by tags
    ],
)
def test_no_cut_parts_a_grapheme(grapheme: str) -> None:
    text = grapheme * 500
    assert unicodedata.normalize("NFC", grapheme) == grapheme
    for size in range(200, 230):
        for chunk in chunks(text, size, 20):
            assert len(chunk) % len(grapheme) == 0
            assert chunk == grapheme * (len(chunk) // len(grapheme))


def test_a_grapheme_without_end_does_not_hold_it_up() -> None:
    found = chunks("e" + "\u0301" * 5_000, 300, 100)
    assert all(len(chunk) <= 300 for chunk in found)


def test_batches_hold_so_many_characters() -> None:
    assert batches(["aa", "bb", "c", "ddddd", "e"], 4) == [
        (0, ("aa", "bb")),
        (2, ("c",)),
        (3, ("ddddd",)),
        (4, ("e",)),
    ]
    assert batches([], 4) == []
