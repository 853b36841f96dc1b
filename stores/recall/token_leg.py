"""The vector leg by token vectors: how near a question's tokens are to those of each memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from palimpsest.stores.index.passages import TurnText
from palimpsest.stores.index.token_vectors import QueryTokens, TokenCodec, token_codec
from palimpsest.stores.index.vector_column import Vector
from palimpsest.stores.ranking import Floats, RankingParameters

PackedTokens = Callable[[Sequence[str]], Mapping[str, bytes]]
"""The packed token vectors of memories by id, of those that have any."""
PackedTurns = Callable[[Sequence[TurnText]], Mapping[TurnText, bytes]]
"""Those of all that turns say, of turns that have more than an outline."""
TokenCounts = Callable[[Sequence[str]], Sequence[int]]
"""How many tokens each text has as a sentence of another one."""


@dataclass(frozen=True, slots=True, eq=False)
class QueryEmbedding:
    """A question's meaning: a unit vector (d,), and from some models the unit vectors (n, d) of
    its tokens, and how many of them texts have."""

    vector: Vector
    tokens: Vector | None = None
    token_counts: TokenCounts | None = None


@dataclass(frozen=True, slots=True)
class TokenLeg:
    """One question's tokens, against those of any memories."""

    codec: TokenCodec
    query: QueryTokens
    packed: PackedTokens
    of_turns: PackedTurns
    parameters: RankingParameters

    def scores(self, ids: Sequence[str], nearby: Mapping[int, Sequence[str]]) -> Floats:
        """Scores (n,), 0..1, NaN for what has no token vectors. `nearby` has, by its offset in the
        session, the id of the turn that far from each of the first of `ids` (empty: none): what it
        says counts, too."""
        places = {memory_id: place for place, memory_id in enumerate(ids)}
        for memory_id in filter(None, chain(*nearby.values())):
            places.setdefault(memory_id, len(places))
        found = self.packed(list(places))
        blobs = [found.get(memory_id, b"") for memory_id in places]
        shares = []
        for offset, share in self.parameters.context_shares:
            others = np.full(len(places), -1, dtype=np.int64)
            turns = nearby.get(offset, ())
            others[: len(turns)] = [places.get(memory_id, -1) for memory_id in turns]
            shares.append((others, share))
        similarities = self.codec.similarities(self.query, blobs, shares)[: len(ids)]
        return self._share(similarities)

    def passage_scores(self, texts: Sequence[TurnText]) -> Floats:
        """Scores (n,), 0..1, by the nearest passage of each turn; NaN for what has no token
        vectors."""
        blobs = self._whole(texts)
        return self._share(self.codec.nearest_passages(self.query, blobs))

    def nearest_sentence(
        self, counts: TokenCounts, text: TurnText, sentences: Sequence[str]
    ) -> int | None:
        """The number of the sentence of a memory's text that is nearest to the question; None where
        that cannot be told, as of an outline."""
        [packed] = self._whole([text])
        return self.codec.nearest_sentence(self.query, packed, counts(sentences))

    def _whole(self, texts: Sequence[TurnText]) -> list[bytes]:
        """The tokens of all of a text, if they are known, else of its outline; else none."""
        found = {text.memory_id: packed for text, packed in self.of_turns(texts).items()}
        others = [text.memory_id for text in texts if text.memory_id not in found]
        if others:
            found |= self.packed(others)
        return [found.get(text.memory_id, b"") for text in texts]

    def estimates(self, cosines: Vector) -> Floats:
        """Scores (n,) of memories of which only the vector is known, by its cosine to the
        question's."""
        parameters = self.parameters
        slope, rest = parameters.similarity_by_cosine
        return self._share(rest + slope * cosines.astype(np.float64))

    def _share(self, similarities: Floats) -> Floats:
        least = self.parameters.least_similarity
        scores: Floats = np.clip((similarities - least) / (1.0 - least), 0.0, 1.0)
        return scores


def token_leg(
    model: str,
    query: QueryEmbedding | None,
    packed: PackedTokens,
    of_turns: PackedTurns,
    parameters: RankingParameters,
) -> TokenLeg | None:
    """None where the question has no tokens, or those of the model are not packed."""
    codec = token_codec(model)
    if codec is None or query is None or query.tokens is None:
        return None
    return TokenLeg(codec, codec.query(query.tokens), packed, of_turns, parameters)
