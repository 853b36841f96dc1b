"""A text without the sentences that state something. Pure, in linear time."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple, cast

from pydantic import JsonValue

from palimpsest.schemas.normal_forms import one_line
from palimpsest.streams.text.tables import read_table

PLACEHOLDER: Final = "[forgotten]"
MIN_WORDS_LEFT: Final = 3
"""What has fewer is a greeting or a sigh: nothing is left to be shown."""
_SENTENCE: Final = re.compile(
    r"""[^.!?…。！？।؟۔\n]*+(?:[.!?…]++(?!["'”’»)\]]*+(?:\s|$))[^.!?…。！？।؟۔\n]*+)*+
    (?:[.!?…]++["'”’»)\]]*+\s*+|[。！？।؟۔]++[」』）”’]*+\s*+|\n\s*+)?""",
    re.VERBOSE,
)
_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")
_SUFFIX: Final = re.compile(r"(?:['’]s|ies|ied|ing|ed|es|e|s|y)$")
MIN_STEM: Final = 3


class Hidden(NamedTuple):
    """What is left of a text, empty where that is nothing worth showing, and the sentences that
    were left out."""

    text: str
    sentences: tuple[str, ...]


def without_statements(text: str, statements: Iterable[str], speaker: str = "") -> Hidden:
    """The text with a placeholder for the sentences that state one of these. `speaker` is who says
    "I" in the text.

    A sentence states what it shares the most telling words with, or half as many, and one that has
    a name or a number of the statement. Where no sentence shares any word, the statement was put
    in other words: then all of the text is left out.
    """
    parts = [part for part in _SENTENCE.findall(text) if part]
    words = [_words(part) for part in parts]
    own = _words(speaker)
    hidden: set[int] = set()
    for statement in statements:
        hidden |= _stating(words, statement, own)
    if not hidden:
        return Hidden(text, ())
    left = [part for number, part in enumerate(parts) if number not in hidden]
    is_enough = sum(len(_words(part)) for part in left) >= MIN_WORDS_LEFT
    gone = tuple(parts[number].strip() for number in sorted(hidden))
    return Hidden(_joined(parts, hidden) if is_enough else "", gone)


def without_sentences(value: JsonValue, sentences: Collection[str]) -> JsonValue:
    """A value with the placeholder for these sentences, wherever they stand in its texts."""
    if isinstance(value, dict):
        return {name: without_sentences(each, sentences) for name, each in value.items()}
    if isinstance(value, list):
        return [without_sentences(each, sentences) for each in value]
    if not isinstance(value, str):
        return value
    folded = one_line(value)
    found = [each for each in map(one_line, sentences) if each and each in folded]
    for sentence in found:
        folded = folded.replace(sentence, PLACEHOLDER)
    return folded if found else value


def _stating(words: list[set[str]], statement: str, own: set[str]) -> set[int]:
    """The numbers of the sentences that state it."""
    everywhere = set(range(len(words)))
    told = _words(statement) - own
    for wanted in (told - _COMMON_STEMS, told):
        shared = [len(wanted & each) for each in words]
        best = max(shared, default=0)
        if best:
            names = _names(statement) - own
            return {
                number
                for number in everywhere
                if 2 * shared[number] >= best or names & words[number]
            }
    return everywhere


def _joined(parts: list[str], hidden: Collection[int]) -> str:
    kept: list[tuple[str, str]] = []
    for number, part in enumerate(parts):
        said = PLACEHOLDER if number in hidden else part.strip()
        space = part[len(part.rstrip()) :]
        space = space if "\n" in space else " "
        if kept and (not said or said == PLACEHOLDER == kept[-1][0]):
            kept[-1] = kept[-1][0], space
        elif said:
            kept.append((said, space))
    return "".join(said + space for said, space in kept).rstrip()


def _words(text: str) -> set[str]:
    """The words of a text without their endings; of scripts without spaces each pair of
    characters."""
    plain = unicodedata.normalize("NFKC", text)
    found = {_stem(word.casefold()) for word in _WORD.findall(_UNSPACED.sub(" ", plain))}
    for run in _UNSPACED.findall(plain):
        found.update(run[n : n + 2] for n in range(max(len(run) - 1, 1)))
    return found


def _names(statement: str) -> set[str]:
    """The words with a capital or a digit, but for the subject, with which a statement begins."""
    words = _WORD.findall(unicodedata.normalize("NFKC", statement))[1:]
    return {
        _stem(word.casefold())
        for word in words
        if word[0].isupper() or any(character.isdigit() for character in word)
    }


def _stem(word: str) -> str:
    short = _SUFFIX.sub("", word)
    return short if len(short) >= MIN_STEM else word


_COMMON: Final = cast("dict[str, str]", read_table(__name__, "common_words.toml"))["common"]
_COMMON_STEMS: Final = frozenset(map(_stem, _COMMON.split()))
