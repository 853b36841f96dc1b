"""What a claim is: one thing that a sentence says of one holder, by slot. Pure."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, get_args

from palimpsest.streams.claims.language import ENGLISH

Slot = Literal[
    "name", "age", "birthday", "home", "origin", "work", "occupation", "relationship", "family",
    "people", "pet", "health", "allergy", "diet", "likes", "favourite", "possession", "figure",
    "study", "language", "trait", "hobby", "plan", "decision", "event",
]  # fmt: skip
CATEGORIES: Final = {slot: tuple(ENGLISH["slots"][slot]["categories"]) for slot in get_args(Slot)}
"""The categories of a claim: what a profile of a person is made of."""


class Claim(NamedTuple):
    """One thing that a sentence says of one holder.

    `holder`: whom it is about, as written ("Ana", "Ana's sister Rita", "The user").
    `key`: what must be the same before two values of a slot can compete, folded: the kind of a
    favourite, the relation of a relative, the animal of a pet. Empty where the slot needs none.
    `value`: as written, without determiner.
    `holds`: False where the claim denies its value ("no longer lives in", "hates").
    `is_news`: it says that this came to be ("moved to", "now", "switched to").
    `qualified`: a time, place, frequency or purpose stands with it, so it may be kept but can end
    nothing.
    `text`: the sentence in the third person, which stands alone: "Ana lives in Lisbon."
    """

    slot: Slot
    holder: str
    key: str
    value: str
    holds: bool
    is_news: bool
    qualified: bool
    text: str
