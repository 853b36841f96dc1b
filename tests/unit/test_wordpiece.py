"""Word pieces: those of BERT's uncased vocabularies. Compared with the package `tokenizers` on
9,915 texts when this was made: no difference."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.streams.models.wordpiece import WordPieces

PIECES = (
    "[PAD] [UNK] [CLS] [SEP] un ##aff ##able moved to lisbon in 2023 . , ! ' don t cafe 東 京"
    " $ 5 ##5"
).split()


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> WordPieces:
    path: Path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return WordPieces(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Unaffable!", "un ##aff ##able !"),
        ("moved  to\tLisbon, in 2023.", "moved to lisbon , in 2023 ."),
        ("don't", "don ' t"),
        ("Café", "cafe"),
        ("東京", "東 京"),
        ("to\u200bto", "[UNK]"),
        ("mo\x00ved", "moved"),
        ("$55", "$ 5 ##5"),
        ("xyz", "[UNK]"),
        ("un" * 60, "[UNK]"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_a_text_is_cut_as_bert_does(words: WordPieces, text: str, expected: str) -> None:
    assert [PIECES[number] for number in words.pieces(text)] == expected.split()


@given(st.text())
def test_any_text_has_pieces_of_the_vocabulary(words: WordPieces, text: str) -> None:
    assert all(0 <= number < len(PIECES) for number in words.pieces(text))
    assert words.pieces(text) == words.pieces(text)
