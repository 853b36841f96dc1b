"""Whether two statements may contradict each other, by their words alone. Pure.

The check of the decide stage on a model's UPDATE and DELETE: cheap and coarse by intent, since a
hit only flags a proposal for review. What the rules act on is `palimpsest.streams.claims.conflict`.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, TypedDict, cast

from palimpsest.streams.claims.english import expanded
from palimpsest.streams.text.tables import read_table


class _Statements(TypedDict):
    negations: str
    antonyms: list[tuple[str, str]]


MIN_SHARED_TOKENS: Final = 2
MIN_TOKEN_CHARACTERS: Final = 2

_TABLE: Final = cast("_Statements", read_table(__name__, "statements.toml"))
NEGATIONS: Final = frozenset(_TABLE["negations"].split())
"""Words that turn a statement round, as they are after the apostrophe is gone."""

ANTONYMS: Final = _TABLE["antonyms"]
"""Pairs that cannot both hold of one thing. A pair counts only in opposition: one side has the
first half and not the second, the other side the reverse."""

_APOSTROPHES: Final = str.maketrans("", "", "'\u2019\u02bc\uff07\u2018`\u00b4")
_WORD: Final = re.compile(rf"[^\W_]{{{MIN_TOKEN_CHARACTERS},}}")
_NO_NEGATION: Final = re.compile(
    r"\b(?:not (?:only|just|merely)|no (?:problems?|trouble|doubt|matter|wonder)|without doubt)\b"
)
"""Wordings with a negation in them that turns nothing round."""


def tokens(text: str) -> frozenset[str]:
    """The words of `text`, lower-cased, apostrophes removed, at least two characters each."""
    return frozenset(_WORD.findall(text.lower().translate(_APOSTROPHES)))


def shared_tokens(a: str, b: str) -> int:
    """How many different words the two texts have in common."""
    return len(tokens(a) & tokens(b))


def words_oppose(a: str, b: str) -> bool:
    """Whether `a` and `b` may contradict each other, by their words alone. Symmetric."""
    left, right = tokens(a), tokens(b)
    if len(left & right) < MIN_SHARED_TOKENS:
        return False
    if _negates(a) != _negates(b):
        return True
    return any(
        _opposed(left, right, one, other) or _opposed(left, right, other, one)
        for one, other in ANTONYMS
    )


def _negates(text: str) -> bool:
    plain = _NO_NEGATION.sub(" ", text.lower().translate(_APOSTROPHES))
    return not NEGATIONS.isdisjoint(_WORD.findall(plain))


def _opposed(left: frozenset[str], right: frozenset[str], one: str, other: str) -> bool:
    return one in left and other not in left and other in right and one not in right


_QUOTES = str.maketrans(dict.fromkeys("’ʼ‘`´", "'") | {"−": "-"})
_SIGNS = "%#&*@/\\^°"
# Numbers with what belongs to them, words, the "-" of "-5" and "--force", signs that are said.
_PLAIN_WORD = re.compile(
    r"(?<![A-Za-z0-9)])[-+]\.?\d+(?:[.,:/-]\d+)*|(?<!\S)-+\w+"
    r"|(?<!\w)\.\d+|\d+(?:[.,:/-]\d+)*|[^\W\d_]+|!=|[^\w\s]"
)

# Whether two texts say the same in the same words: what a cosine alone cannot prove. Small
# embedding models put "prefers tea over coffee" and "prefers coffee over tea" at a cosine of .997
# and more, "was married" beside "is married", and two facts that differ in a number or a sign
# nearly as close. So a high cosine makes two texts one only where their telling words agree, in
# order. What is taken for one loses the second text, what is kept apart only stands twice: so of
# short words only those are left out that change nothing wherever they stand.

# Articles, and words of degree and emphasis. Tense, prepositions, negations and pronouns are not
# among them: they say when, how, whether, and who did it to whom.
_LIGHT = frozenset("a an the also so very really quite just actually sehr auch".split())
_NEGATIONS = frozenset("not never no nor without nicht kein keine keinen nie".split())


def telling_words(text: str) -> tuple[str, ...]:
    """The words and signs of a text that carry its statement, lower-cased, in order; all words
    where only light ones are there."""
    plain = unicodedata.normalize("NFKC", text).translate(_QUOTES)
    words = [found for found in _PLAIN_WORD.findall(expanded(plain)) if _is_said(found)]
    telling = tuple(
        word.casefold() for place, word in enumerate(words) if not _is_light(words, place)
    )
    return telling or tuple(word.casefold() for word in words)


def same_fact(a: str, b: str) -> bool:
    """Whether both texts say the same: their telling words are the same, in the same order."""
    words = telling_words(a)
    return words == telling_words(b) and (bool(words) or a == b)


def _is_said(found: str) -> bool:
    """Whether it is more than punctuation: a word, a figure, a sign of mathematics, of money or
    of code, or a vowel sign of a script that sets them apart."""
    if len(found) > 1 or found.isalnum() or found in _SIGNS:
        return True
    category = unicodedata.category(found)
    return category in ("Sm", "Sc") or category.startswith("M")


def _is_light(words: list[str], place: int) -> bool:
    """Whether the word there may be left out: not in "not very", "not just" and "plan A"."""
    word = words[place].casefold()
    if word == "too":
        return place == len(words) - 1
    if word not in _LIGHT or (word == "a" and words[place] == "A" and place):
        return False
    return not place or words[place - 1].casefold() not in _NEGATIONS


_INTRODUCED: Final = re.compile(
    r"\w[\w' -]{0,40}?['\u2019]s (?:[a-z][\w-]{0,20} ){1,3}(?=(?P<name>[^\W\d_a-z][\w-]{1,30})\b)"
)


def by_their_names(one: str, other: str) -> tuple[str, str]:
    """Both statements, where one is about "Ana's brother Max" and the other about "Max" both about
    Max: whoever was introduced so is called by the name alone afterwards."""
    return _by_name(one, other), _by_name(other, one)


def _by_name(statement: str, other: str) -> str:
    found = _INTRODUCED.match(statement)
    if found is None or re.match(rf"{re.escape(found['name'])}(?:['\u2019]s)? ", other) is None:
        return statement
    return statement[found.end() :]
