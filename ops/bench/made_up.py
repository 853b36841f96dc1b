"""Made-up words, sentences and turns: the same for the same seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from palimpsest.ops.ingest.records import turn_id_of_message
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.output import published

SEED: Final = 20_260_301
WORDS: Final = 4_000
SYLLABLES: Final = ("ka", "lo", "mi", "ren", "tu", "sa", "vor", "eli", "dan", "po", "gri", "hem")
FIRST_TURN: Final = datetime(2026, 3, 1, tzinfo=UTC)
SESSION_TURNS: Final = 20
NAMES: Final = 800
VERBS: Final = tuple("works at|lives in|visited|bought|studies|plays|joined|went to".split("|"))


class Vocabulary:
    """Draws from made-up words by Zipf's law."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(SEED)
        self.words = [
            "".join(chance.choices(SYLLABLES, k=chance.randint(2, 4))) for _ in range(WORDS)
        ]
        self._weights = [*itertools.accumulate(1.0 / rank for rank in range(1, WORDS + 1))]
        self.chance = random.Random(seed)

    def phrase(self, count: int) -> str:
        return " ".join(self.chance.choices(self.words, cum_weights=self._weights, k=count))

    def sentence(self, count: int = 10) -> str:
        return f"I keep {self.phrase(count)}."

    def relation(self) -> str:
        """A sentence about two names, for the graph."""
        names, weights = self.words[:NAMES], self._weights[:NAMES]
        one, other = self.chance.choices(names, cum_weights=weights, k=2)
        verb = self.chance.choice(VERBS)
        return f"{one.capitalize()} {verb} {other.capitalize()}."


def turn_records(
    count: int, scopes: int, vocabulary: Vocabulary, words: int = 14
) -> Iterator[Outgoing]:
    """Turns with a sentence of `words` words each, scopes in rotation."""
    for number in range(count):
        yield _record(number, scopes, vocabulary.sentence(words))


def related_records(count: int, scopes: int, vocabulary: Vocabulary) -> Iterator[Outgoing]:
    """The same, but every other turn of a scope is about two names."""
    for number in range(count):
        is_plain = number // scopes % 2
        yield _record(number, scopes, vocabulary.sentence() if is_plain else vocabulary.relation())


def _record(number: int, scopes: int, content: str) -> Outgoing:
    scope, place = f"bench-{number % scopes}", number // scopes
    turn = ConversationTurn(
        turn_id=f"t{place}",
        session_id=f"s{place // SESSION_TURNS}",
        speaker=("Ana", "Ben")[place % 2],
        content=content,
    )
    at = FIRST_TURN + timedelta(seconds=number)
    return published(CONVERSATION_TURNS, turn_id_of_message(scope, turn), scope, at, turn)
