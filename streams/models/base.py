"""What stages and runner need of models: two small ports, and two ways to fail.

Adapters raise TransientModelError for what passes with time (refused, timeout, 429, 5xx) and
PermanentModelError for what does not (400, 401, 404, context too long). Anything else that
escapes is a bug and stops the worker. Adapters do not retry: the runner does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

Vector = NDArray[np.float32]


class ModelError(Exception):
    """Base of both ways to fail."""


class TransientModelError(ModelError):
    """Passes with time. `retry_after` is in seconds, None when the provider did not say."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class PermanentModelError(ModelError):
    """Does not pass with time: the record is dead-lettered with this text."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What to ask. `schema` is a JSON Schema for the reply, used where a provider can constrain.

    `purpose` is `extract`, `decide`, `contradict`, `summarize`, `infer-causes`, `consolidate` or
    `classify-facts`.
    `subject` has the same question as plain data for deterministic providers that read no prose.
    """

    purpose: str
    system: str
    user: str
    schema: Mapping[str, JsonValue]
    max_output_tokens: int
    subject: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Reply:
    """The raw text of a reply. Tokens None when not told; latency in milliseconds; cost in the
    currency of the prices that are set, None without them."""

    text: str
    model: str
    provider: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_ms: float = 0.0
    cost: float | None = None


class LanguageModel(Protocol):
    """One provider with one model."""

    provider: str
    model: str

    async def generate(self, prompt: Prompt) -> Reply: ...

    async def check(self) -> str | None:
        """None when usable; else one line on what is wrong and what to do about it."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Embedding:
    """A stored text's meaning: a unit vector, and from some models the packed vectors of its
    tokens."""

    vector: Vector
    tokens: bytes | None = None


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """A text's meaning: `tokens` (n, d) unit vectors, n at least 2, and `vector` (d,), their
    mean at unit length."""

    vector: Vector
    tokens: Vector


class EmbeddingModel(Protocol):
    """Texts to unit vectors. The same text gives the same vector, alone or in a batch.

    `model` names the vector space: vectors of two names are never compared.
    """

    model: str
    dimensions: int

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """One unit vector a text, in order, float32, length `dimensions`."""
        ...

    async def embed_query(self, text: str) -> Vector: ...

    async def check(self) -> str | None: ...

    async def close(self) -> None: ...


class UnusableModel:
    """Stands for an embedding model that cannot be made: every text waits, as in an outage."""

    def __init__(self, model: str, dimensions: int, reason: str) -> None:
        self.model = model
        self.dimensions = dimensions
        self.reason = reason

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        raise TransientModelError(self.reason)

    async def embed_query(self, text: str) -> Vector:
        raise TransientModelError(self.reason)

    async def check(self) -> str | None:
        return self.reason

    async def close(self) -> None:
        return None


@runtime_checkable
class PassageTokenModel(Protocol):
    """An embedding model that may have the packed vectors of a stored text's tokens. The same text
    gives the same tokens, alone or among others."""

    async def embed_with_tokens(self, texts: Sequence[str]) -> list[Embedding]:
        """As `embed_passages`, with the packed vectors of the tokens."""
        ...


@runtime_checkable
class TokenEmbeddingModel(PassageTokenModel, Protocol):
    """An embedding model that has a vector for every token of a question, too."""

    async def embed_query_tokens(self, text: str) -> TokenVectors: ...

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """Returns how many tokens each has as a sentence of a text. Once something was embedded."""
        ...


async def embeddings(model: EmbeddingModel, texts: Sequence[str]) -> list[Embedding]:
    """All that a model has of texts to be stored, in order. Raises as the model does."""
    if isinstance(model, PassageTokenModel):
        return await model.embed_with_tokens(texts)
    return [Embedding(vector) for vector in await model.embed_passages(texts)]


# --- what replies cost ----------------------------------------------------------------------

TOKENS_OF_A_PRICE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Of a million tokens that a model reads and writes, in one currency."""

    input: float
    output: float

    def cost(self, reply: Reply) -> float | None:
        """None where the provider did not tell the tokens."""
        if reply.input_tokens is None or reply.output_tokens is None:
            return None
        return self.of(reply.input_tokens, reply.output_tokens)

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """What so many tokens cost."""
        return (self.input * input_tokens + self.output * output_tokens) / TOKENS_OF_A_PRICE


class PricedLanguageModel:
    """Asks `model`, and adds the cost to its replies."""

    def __init__(self, model: LanguageModel, prices: Prices) -> None:
        self.provider = model.provider
        self.model = model.model
        self._asked = model
        self._prices = prices

    async def generate(self, prompt: Prompt) -> Reply:
        reply = await self._asked.generate(prompt)
        return replace(reply, cost=self._prices.cost(reply))

    async def check(self) -> str | None:
        return await self._asked.check()

    async def close(self) -> None:
        await self._asked.close()


# --- what is checked of every vector before it is used: count, size, finite, unit length ------

MIN_LENGTH: Final = 1e-12
"""Below it a vector has no direction."""


def unit_vectors(source: str, rows: JsonValue, count: int, dimensions: int) -> list[Vector]:
    """`rows` as `count` float32 unit vectors of `dimensions` numbers each.

    Raises PermanentModelError when the count or a size differs or a vector has no direction:
    a vector that is wrong is worse than none.
    """
    if not isinstance(rows, list) or len(rows) != count:
        got = len(rows) if isinstance(rows, list) else "no list of"
        raise PermanentModelError(f"{source} gave {got} vectors for {count} texts")
    return [_unit(source, row, dimensions) for row in rows]


def _unit(source: str, row: JsonValue, dimensions: int) -> Vector:
    if not isinstance(row, list) or len(row) != dimensions:
        got = len(row) if isinstance(row, list) else "no list of"
        raise PermanentModelError(
            f"{source} gave {got} numbers where {dimensions} belong; set the embedding"
            " dimensions to what the model gives, or the model to the one that was used before"
        )
    try:
        vector = np.array(row, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        vector = np.empty((0, 0))
    if vector.ndim != 1:
        raise PermanentModelError(f"{source} gave a vector with something else in it")
    return normalized(source, vector)


def normalized(source: str, vector: np.typing.NDArray[np.floating]) -> Vector:
    """`vector` scaled to length 1. Raises PermanentModelError where it has no direction."""
    wide = vector.astype(np.float64)
    largest = float(np.max(np.abs(wide), initial=0.0))
    # By the largest first: squares of very large or very small numbers leave the range.
    if not np.isfinite(wide).all() or largest < MIN_LENGTH:
        raise PermanentModelError(f"{source} gave a vector that is zero or not finite")
    scaled = wide / largest
    unit: Vector = (scaled / np.sqrt(scaled @ scaled)).astype(np.float32)
    return unit
