"""Whether two statements may contradict each other, by their words alone. Pure.

The check of the decide stage on a model's UPDATE and DELETE: cheap and coarse by intent, since a
hit only flags a proposal for review. What the rules act on is `palimpsest.streams.claims.conflict`.
"""

from __future__ import annotations

import re
from typing import Final

MIN_SHARED_TOKENS: Final = 2
MIN_TOKEN_CHARACTERS: Final = 2

_NEGATION_WORDS: Final = (
    "not no never none nobody nothing neither nor without cannot cant couldnt didnt doesnt dont"
    " hadnt hasnt havent isnt arent aint mustnt neednt shouldnt wasnt werent wont wouldnt"
)
NEGATIONS: Final = frozenset(_NEGATION_WORDS.split())
"""Words that turn a statement round, as they are after the apostrophe is gone."""

ANTONYMS: Final = (
    ("enabled", "disabled"),
    ("enable", "disable"),
    ("enables", "disables"),
    ("allow", "deny"),
    ("allows", "denies"),
    ("allowed", "denied"),
    ("accept", "reject"),
    ("accepts", "rejects"),
    ("accepted", "rejected"),
    ("always", "never"),
    ("on", "off"),
    ("true", "false"),
)
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
