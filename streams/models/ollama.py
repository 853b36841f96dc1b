"""Ollama, for replies and for embeddings. API: `/api/generate`, `/api/embed`, `/api/tags`."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from palimpsest.streams.models.base import (
    PermanentModelError,
    Prompt,
    Reply,
    TransientModelError,
)
from palimpsest.streams.models.http import (
    DEFAULT_MAX_RESPONSE_BYTES,
    DEFAULT_TIMEOUT_S,
    MAX_EMBEDDING_RESPONSE_BYTES,
    Answer,
    HttpProvider,
    RemoteEmbeddingModel,
    RemoteModel,
)

DEFAULT_BASE_URL: Final = "http://localhost:11434"
CONTEXT_TOKENS: Final = 8_192
"""Ollama's own default cuts the prompt without a word; this holds the longest turn and reply."""


def _provider(base_url: str, model: str, timeout_s: float, max_bytes: int) -> HttpProvider:
    return HttpProvider(
        "ollama",
        base_url,
        advice={0: "start it with `ollama serve`", 404: f"run `ollama pull {model}`"},
        timeout_s=timeout_s,
        max_response_bytes=max_bytes,
    )


class _Ollama(RemoteModel):
    async def _problem(self) -> str | None:
        answer = await self._listed("/api/tags")
        models = None if answer is None else answer.object().get("models")
        where = self._http.shown_url
        if not isinstance(models, list):
            return f"{where} does not answer like Ollama; correct the base URL"
        names = {entry.get("name") for entry in models if isinstance(entry, dict)}
        if not names.isdisjoint((self.model, f"{self.model}:latest")):
            return None
        return f"ollama at {where} has no model {self.model}: run `ollama pull {self.model}`"


class OllamaLanguageModel(_Ollama):
    def __init__(
        self,
        model: str,
        base_url: str = DEFAULT_BASE_URL,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        super().__init__(_provider(base_url, model, timeout_s, DEFAULT_MAX_RESPONSE_BYTES), model)
        # Some models of some versions refuse even to be told not to think: remembered.
        self._can_stop_thinking = True

    async def generate(self, prompt: Prompt) -> Reply:
        """One reply, constrained to the prompt's schema, at temperature 0, without thinking."""
        stops = self._can_stop_thinking
        answer = await self._ask(prompt, stops)
        if answer.status == 400 and stops and "think" in answer.text[:1_000]:
            self._can_stop_thinking = False
            answer = await self._ask(prompt, False)
        if answer.status != 200:
            raise self._http.failure(answer)
        body = answer.object()
        error, text = body.get("error"), body.get("response")
        if isinstance(error, str):
            raise TransientModelError(f"ollama failed: {self._http.hidden(error)}")
        # Without a text, the whole answer tells why: the limit of tokens, or only thoughts.
        if not isinstance(text, str) or (
            not text and body.get("done_reason") not in (None, "stop")
        ):
            text = None
        return self.reply(answer, text, body, ("prompt_eval_count", "eval_count"))

    async def _ask(self, prompt: Prompt, stops_thinking: bool) -> Answer:
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
                "num_ctx": CONTEXT_TOKENS,
            },
        }
        if stops_thinking:
            payload["think"] = False
        return await self._http.exchange("POST", "/api/generate", payload)


class OllamaEmbeddingModel(RemoteEmbeddingModel, _Ollama):
    def __init__(
        self,
        model: str,
        dimensions: int,
        base_url: str = DEFAULT_BASE_URL,
        *,
        query_prefix: str = "",
        passage_prefix: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        http = _provider(base_url, model, timeout_s, MAX_EMBEDDING_RESPONSE_BYTES)
        super().__init__(http, model, dimensions, query_prefix, passage_prefix)

    async def _rows(self, texts: list[JsonValue]) -> JsonValue:
        asked: dict[str, JsonValue] = {"model": self.model, "input": texts, "truncate": True}
        body = (await self._http.post("/api/embed", asked)).object()
        if not body:
            raise PermanentModelError(f"{self._http.shown_url} did not answer with a JSON object")
        if isinstance(error := body.get("error"), str):
            raise TransientModelError(f"ollama failed: {self._http.hidden(error)}")
        return body.get("embeddings")
