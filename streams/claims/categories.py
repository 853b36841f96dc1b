"""The categories of a claim, by its slot: what a profile of a person is made of. Pure."""

from __future__ import annotations

from typing import Final

from palimpsest.streams.claims.claim import Slot
from palimpsest.streams.claims.grammar import claim_of

CATEGORIES: Final[dict[Slot, tuple[str, ...]]] = {
    "name": ("name",),
    "age": ("name",),
    "birthday": ("name",),
    "origin": ("name",),
    "home": ("home",),
    "work": ("work",),
    "occupation": ("work",),
    "relationship": ("family",),
    "family": ("family",),
    "people": ("people",),
    "pet": ("pets",),
    "health": ("health",),
    "allergy": ("health", "diet"),
    "diet": ("diet",),
    "likes": ("preferences",),
    "favourite": ("preferences",),
    "possession": ("possessions",),
    "figure": (),
    "study": ("education",),
    "language": ("languages",),
    "hobby": ("hobbies",),
    "plan": ("plans",),
    "decision": ("plans",),
    "event": ("events",),
}


def categories_of(text: str) -> tuple[str, ...]:
    """The categories of a statement that is one claim; none of any other text."""
    claim = claim_of(text)
    return () if claim is None else CATEGORIES[claim.slot]
