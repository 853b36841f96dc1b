"""Whether two texts say the same in the same words: what a cosine alone cannot prove.

Small embedding models put "prefers tea over coffee" and "prefers coffee over tea" at a cosine of
.997 and more, "was married" beside "is married", and two facts that differ in a number or a sign
nearly as close. So a high cosine makes two texts one only where their telling words agree, in
order. What is taken for one loses the second text, what is kept apart only stands twice: so of
short words only those are left out that change nothing wherever they stand.
"""

from __future__ import annotations

import re
import unicodedata

from palimpsest.streams.claims.english import expanded

_APOSTROPHES = str.maketrans(dict.fromkeys("’ʼ‘`´", "'") | {"−": "-"})
_SIGNS = "%#&*@/\\^°"
# Numbers with what belongs to them, words, the "-" of "-5" and "--force", signs that are said.
_WORD = re.compile(
    r"(?<![A-Za-z0-9)])[-+]\.?\d+(?:[.,:/-]\d+)*|(?<!\S)-+\w+"
    r"|(?<!\w)\.\d+|\d+(?:[.,:/-]\d+)*|[^\W\d_]+|!=|[^\w\s]"
)

# Articles, and words of degree and emphasis. Tense, prepositions, negations and pronouns are not
# among them: they say when, how, whether, and who did it to whom.
_LIGHT = frozenset("a an the also so very really quite just actually sehr auch".split())
_NEGATIONS = frozenset("not never no nor without nicht kein keine keinen nie".split())


def telling_words(text: str) -> tuple[str, ...]:
    """The words and signs of a text that carry its statement, lower-cased, in order; all words
    where only light ones are there."""
    plain = unicodedata.normalize("NFKC", text).translate(_APOSTROPHES)
    words = [found for found in _WORD.findall(expanded(plain)) if _is_said(found)]
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
