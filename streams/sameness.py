"""Whether two texts say the same in the same words: what a cosine alone cannot prove.

Small embedding models put "prefers tea over coffee" and "prefers coffee over tea" at a cosine of
.997 and more, and two facts that differ in a number or a place nearly as close. So a high cosine
makes two texts one only where their telling words agree, in order.
"""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"\w+(?:[.,]\d+)*", re.UNICODE)
_APOSTROPHES = str.maketrans("", "", "'’ʼ")

# Words that carry no statement of their own. Negations are not among them, nor are pronouns:
# who did something to whom is what facts differ in.
_LIGHT = frozenset(
    "a an the and also so too very really quite just that is are was were be been am do does did"
    " has have had of to in on at by for with as".split()
)


def telling_words(text: str) -> tuple[str, ...]:
    """The words of a text that carry its statement, lower-cased, in order; all words where only
    light ones are there."""
    folded = unicodedata.normalize("NFKC", text).casefold().translate(_APOSTROPHES)
    words = _WORD.findall(folded)
    return tuple(word for word in words if word not in _LIGHT) or tuple(words)


def same_statement(a: str, b: str) -> bool:
    """Whether the telling words of both texts are the same, in the same order."""
    return telling_words(a) == telling_words(b)
