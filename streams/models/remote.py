"""What models over HTTP have in common: a check that never raises, prefixes, replies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from pydantic import JsonValue

from palimpsest.streams.models.base import ModelError, Reply, Vector
from palimpsest.streams.models.http import Answer, HttpProvider, whole_number

Check: TypeAlias = Callable[[HttpProvider, str, float], Awaitable[str | None]]
"""(provider, model, seconds) to what is wrong, or None. May raise ModelError."""


class RemoteModel:
    """One model of a provider. `check_timeout_s` is in seconds."""

    def __init__(
        self, http: HttpProvider, model: str, check: Check, check_timeout_s: float
    ) -> None:
        self.provider = http.name
        self.model = model
        self._http = http
        self._check = check
        self._check_timeout_s = check_timeout_s

    async def check(self) -> str | None:
        try:
            return await self._check(self._http, self.model, self._check_timeout_s)
        except ModelError as error:
            return str(error)

    async def close(self) -> None:
        await self._http.close()

    def reply(
        self, answer: Answer, text: str | None, usage: JsonValue, counts: tuple[str, str]
    ) -> Reply:
        """`counts` name the tokens of prompt and reply in `usage`. Where there is no `text`, the
        answer is handed on as it is: it is asked again, then kept."""
        counted = usage if isinstance(usage, dict) else {}
        return Reply(
            text=answer.text if text is None else text,
            model=self.model,
            provider=self.provider,
            input_tokens=whole_number(counted.get(counts[0])),
            output_tokens=whole_number(counted.get(counts[1])),
            latency_ms=answer.latency_ms,
        )


class RemoteEmbeddingModel(RemoteModel, ABC):
    """Vectors of `dimensions` numbers. Prefixes are for models trained with them."""

    dimensions: int
    query_prefix: str
    passage_prefix: str

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        return await self._embed([self.passage_prefix + text for text in texts]) if texts else []

    async def embed_query(self, text: str) -> Vector:
        return (await self._embed([self.query_prefix + text]))[0]

    async def _embed(self, texts: Sequence[str]) -> list[Vector]:
        # Most servers refuse an empty input.
        return await self._vectors([text or " " for text in texts])

    @abstractmethod
    async def _vectors(self, texts: list[JsonValue]) -> list[Vector]:
        """The unit vectors of at least one text, none of them empty, in order."""
