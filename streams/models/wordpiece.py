"""Texts as the numbers of word pieces, as BERT's uncased vocabularies have them.

Written here because the package `tokenizers` brings a client for a model hub and ten packages
more. Source: Wu et al., "Google's Neural Machine Translation System" (2016), section 4.1, and the
reference implementation of BERT (`tokenization.py`), whose pieces these are exactly.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

LONGEST_WORD: Final = 100
"""Characters; a longer word is unknown as a whole."""
_CACHED_WORDS: Final = 50_000
_WIDE: Final = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
"""Chinese characters, each a word of its own."""


class WordPieces:
    """A vocabulary: one piece a line, its number that of the line, from 0."""

    def __init__(self, vocabulary: Path) -> None:
        pieces = vocabulary.read_text(encoding="utf-8").splitlines()
        self._numbers = {piece: number for number, piece in enumerate(pieces)}
        self.unknown = self._numbers["[UNK]"]
        self.start = self._numbers["[CLS]"]
        self.end = self._numbers["[SEP]"]
        self._of_word = lru_cache(maxsize=_CACHED_WORDS)(self._cut)

    def pieces(self, text: str) -> list[int]:
        """The numbers of a text's pieces, without `start` and `end`."""
        found: list[int] = []
        for word in _words(text):
            found += self._of_word(word)
        return found

    def _cut(self, word: str) -> tuple[int, ...]:
        """The longest piece that begins the word, then the longest of what is left, and so on."""
        if len(word) > LONGEST_WORD:
            return (self.unknown,)
        found: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                number = self._numbers.get(prefix + word[start:end])
                if number is not None:
                    break
            else:
                return (self.unknown,)
            found.append(number)
            start = end
        return tuple(found)


def _words(text: str) -> Iterator[str]:
    """Lower-cased words without accents; each sign of punctuation is one."""
    # The plain case of English letters needs no look at every character's category.
    plain = text.lower() if text.isascii() else "".join(_folded(text))
    for run in plain.translate(_CONTROLS if text.isascii() else {}).split():
        yield from _split_at_signs(run)


def _folded(text: str) -> Iterator[str]:
    for char in text:
        category = unicodedata.category(char)
        if char in "\t\n\r" or category == "Zs":
            yield " "
        elif char == "\ufffd" or category.startswith("C"):
            continue
        elif any(low <= ord(char) <= high for low, high in _WIDE):
            yield f" {char} "
        else:
            for part in unicodedata.normalize("NFD", char.lower()):
                if unicodedata.category(part) != "Mn":
                    yield part


def _split_at_signs(run: str) -> Iterator[str]:
    if run.isalnum():
        yield run
        return
    start = 0
    for place, char in enumerate(run):
        is_sign = (
            not char.isalnum() and char > " "
            if char.isascii()
            else unicodedata.category(char).startswith("P")
        )
        if is_sign:
            if start < place:
                yield run[start:place]
            yield char
            start = place + 1
    if start < len(run):
        yield run[start:]


_CONTROLS: Final = {number: None for number in (*range(32), 127) if chr(number) not in "\t\n\r"}
