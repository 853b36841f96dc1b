"""What stages and runner need of models: two small ports, and two ways to fail.

Adapters raise TransientModelError for what passes with time (refused, timeout, 429, 5xx) and
PermanentModelError for what does not (400, 401, 404, context too long). Anything else that
escapes is a bug and stops the worker. Adapters do not retry: the runner does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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

    `purpose` is `extract`, `decide`, `contradict` or `summarize`. `subject` carries the same
    question as plain data for deterministic providers that read no prose.
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


@runtime_checkable
class TokenEmbeddingModel(Protocol):
    """An embedding model that has a vector for every token, too. The same text gives the same
    tokens, alone or among others."""

    async def embed_with_tokens(self, texts: Sequence[str]) -> list[Embedding]:
        """As `embed_passages`, with the packed vectors of the tokens."""
        ...

    async def embed_query_tokens(self, text: str) -> TokenVectors: ...


async def embeddings(model: EmbeddingModel, texts: Sequence[str]) -> list[Embedding]:
    """All that a model has of texts to be stored, in order. Raises as the model does."""
    if isinstance(model, TokenEmbeddingModel):
        return await model.embed_with_tokens(texts)
    return [Embedding(vector) for vector in await model.embed_passages(texts)]
