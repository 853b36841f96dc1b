"""Ollama, for replies and for embeddings. API: `/api/generate`, `/api/embed`, `/api/tags`."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from palimpsest.streams.models.base import (
    PermanentModelError,
    Prompt,
    Reply,
    TransientModelError,
    Vector,
)
from palimpsest.streams.models.http import (
    CHECK_TIMEOUT_S,
    DEFAULT_TIMEOUT_S,
    MAX_EMBEDDING_RESPONSE_BYTES,
    Answer,
    HttpProvider,
)
from palimpsest.streams.models.remote import RemoteEmbeddingModel, RemoteModel
from palimpsest.streams.models.vectors import unit_vectors

DEFAULT_BASE_URL: Final = "http://localhost:11434"
DEFAULT_MODEL: Final = "qwen3:4b"
DEFAULT_CONTEXT_TOKENS: Final = 8_192
"""Ollama's own default cuts the prompt without a word; this holds the longest turn and reply."""


def _provider(base_url: str, model: str, timeout_s: float, max_bytes: int) -> HttpProvider:
    return HttpProvider(
        "ollama",
        base_url,
        advice={0: "start it with `ollama serve`", 404: f"run `ollama pull {model}`"},
        timeout_s=timeout_s,
        max_response_bytes=max_bytes,
    )


async def _check(http: HttpProvider, model: str, timeout_s: float) -> str | None:
    answer = await http.get("/api/tags", timeout_s)
    if answer.status != 200:
        raise http.failure(answer)
    models = answer.object().get("models")
    if not isinstance(models, list):
        return f"{http.shown_url} does not answer like Ollama; correct the base URL"
    names = {entry.get("name") for entry in models if isinstance(entry, dict)}
    if model in names or f"{model}:latest" in names:
        return None
    return f"ollama at {http.shown_url} has no model {model}: run `ollama pull {model}`"


class OllamaLanguageModel(RemoteModel):
    """`context_tokens` is asked of the server for prompt and reply together."""

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        base_url: str = DEFAULT_BASE_URL,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        check_timeout_s: float = CHECK_TIMEOUT_S,
        context_tokens: int = DEFAULT_CONTEXT_TOKENS,
    ) -> None:
        http = _provider(base_url, model, timeout_s, 4 * 1024 * 1024)
        super().__init__(http, model, _check, check_timeout_s)
        self._context_tokens = context_tokens
        self._timeout_s = timeout_s
        # Some models of some versions refuse even to be told not to think: remembered.
        self._can_stop_thinking = True

    async def generate(self, prompt: Prompt) -> Reply:
        """One reply, constrained to the prompt's schema, at temperature 0, without thinking."""
        answer = await self._ask(prompt)
        if answer.status == 400 and self._can_stop_thinking and "think" in answer.text[:1_000]:
            self._can_stop_thinking = False
            answer = await self._ask(prompt)
        if answer.status != 200:
            raise self._http.failure(answer)
        body = answer.object()
        error, text = body.get("error"), body.get("response")
        if isinstance(error, str):
            raise TransientModelError(f"ollama failed: {self._http.hidden(error)}")
        text = text if isinstance(text, str) else None
        return self.reply(answer, text, body, ("prompt_eval_count", "eval_count"))

    async def _ask(self, prompt: Prompt) -> Answer:
        payload: dict[str, JsonValue] = {
            "model": self.model,
            "system": prompt.system,
            "prompt": prompt.user,
            "format": dict(prompt.schema),
            "stream": False,
            "options": {
                "temperature": 0,
                "seed": 0,
                "num_predict": prompt.max_output_tokens,
                "num_ctx": self._context_tokens,
            },
        }
        if self._can_stop_thinking:
            payload["think"] = False
        return await self._http.exchange("POST", "/api/generate", payload, self._timeout_s)


class OllamaEmbeddingModel(RemoteEmbeddingModel):
    def __init__(
        self,
        model: str,
        dimensions: int,
        base_url: str = DEFAULT_BASE_URL,
        *,
        query_prefix: str = "",
        passage_prefix: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        check_timeout_s: float = CHECK_TIMEOUT_S,
    ) -> None:
        http = _provider(base_url, model, timeout_s, MAX_EMBEDDING_RESPONSE_BYTES)
        super().__init__(http, model, _check, check_timeout_s)
        self.dimensions = dimensions
        self.query_prefix, self.passage_prefix = query_prefix, passage_prefix

    async def _vectors(self, texts: list[JsonValue]) -> list[Vector]:
        answer = await self._http.post(
            "/api/embed", {"model": self.model, "input": texts, "truncate": True}
        )
        body = answer.object()
        if not body:
            raise PermanentModelError(f"{self._http.shown_url} did not answer with a JSON object")
        source = f"ollama model {self.model}"
        return unit_vectors(source, body.get("embeddings"), len(texts), self.dimensions)
