"""Which facts of two extractions of the same turns say the same: pure, over texts and vectors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from palimpsest.ops.replay.curated import MatchedBy
from palimpsest.schemas.redaction import folded
from palimpsest.streams.models.base import Vector

LEAST_WORDS: Final = 0.5
"""The least share of common words at which two texts without vectors may say the same."""
TIED: Final = 1e-6
"""Scores that differ by less are equal: a cosine is not exact."""
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, order=True)
class Likeness:
    """How near two texts are, from 0 to 1, and by what that was told."""

    score: float
    by: MatchedBy


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares texts. `vectors` are those of the texts, where a model gave one; below the cosine
    `near` two texts have nothing to do with each other."""

    vectors: Mapping[str, Vector | None]
    near: float

    def of(self, a: str, b: str) -> Likeness | None:
        """None for texts that do not say the same."""
        if folded(a) == folded(b):
            return Likeness(1.0, "equal text")
        left, right = self.vectors.get(a), self.vectors.get(b)
        if left is not None and right is not None:
            cosine = min(float(np.dot(left, right)), 1.0)
            return Likeness(cosine, "embedding") if cosine >= self.near else None
        shared = word_overlap(a, b)
        return Likeness(shared, "words") if shared >= LEAST_WORDS else None

    def best(self, some: Iterable[str], others: Iterable[str]) -> Likeness | None:
        """The nearest of all pairs."""
        theirs = tuple(others)
        found = (self.of(a, b) for a in some for b in theirs)
        return max((each for each in found if each is not None), default=None)

    def nearest(
        self, texts: Iterable[str], among: Mapping[str, tuple[str, ...]]
    ) -> dict[str, Likeness]:
        """Those whose texts are the nearest to these, by their ids: several where they are equally
        near, none where nothing says the same."""
        mine = tuple(texts)
        found = {key: self.best(mine, other) for key, other in among.items()}
        known = {key: each for key, each in found.items() if each is not None}
        top = max((each.score for each in known.values()), default=0.0)
        return {key: each for key, each in known.items() if each.score >= top - TIED}


def word_overlap(a: str, b: str) -> float:
    """Words that both texts have, as a share of all that they have. Texts without any have
    nothing in common."""
    left, right = set(_WORD.findall(a.lower())), set(_WORD.findall(b.lower()))
    return len(left & right) / len(left | right) if left or right else 0.0
