"""Any server that speaks OpenAI's chat completions and embeddings.

Such servers differ in what they take. What one refuses by name (structured output, the name of
the token limit, a temperature) is left out or renamed, and remembered for as long as it is open.
"""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue, SecretStr

from palimpsest.streams.models.base import PermanentModelError, Prompt, Reply
from palimpsest.streams.models.http import (
    DEFAULT_TIMEOUT_S,
    MAX_EMBEDDING_RESPONSE_BYTES,
    Answer,
    HttpProvider,
    RemoteEmbeddingModel,
    RemoteModel,
    is_too_long,
)

DEFAULT_BASE_URL: Final = "https://api.openai.com/v1"


class _OpenAI(RemoteModel):
    async def _problem(self) -> str | None:
        answer = await self._listed("/models", 404, 405)
        if answer is None:
            return None  # many compatible servers do not list their models
        listed = answer.object().get("data")
        known = [e for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []
        # llama.cpp lists the path of its one model and answers to any name.
        named = any(e.get("id") == self.model or e.get("owned_by") == "llamacpp" for e in known)
        if named or not known:
            return None
        where = f"openai at {self._http.shown_url}"
        return f"{where} does not offer {self.model}; correct the model's name"


class OpenAILanguageModel(_OpenAI):
    """`base_url` includes the version, for example `http://localhost:8000/v1`."""

    def __init__(
        self,
        model: str,
        base_url: str = DEFAULT_BASE_URL,
        api_key: SecretStr | None = None,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        advice = {401: "set a valid API key (llm.api_key)"}
        http = HttpProvider("openai", base_url, api_key=api_key, advice=advice, timeout_s=timeout_s)
        super().__init__(http, model)
        self._structured = True
        self._limit_name = "max_tokens"
        self._temperature = True

    async def generate(self, prompt: Prompt) -> Reply:
        """One reply, constrained to the prompt's schema where the server can, temperature 0."""
        answer = await self._ask(prompt)
        while answer.status == 400 and not is_too_long(answer) and self._adapt(answer):
            answer = await self._ask(prompt)
        if answer.status != 200:
            raise self._http.failure(answer)
        body = answer.object()
        if "error" in body and "choices" not in body:
            # Some gateways wrap the failure of what is behind them in a 200.
            error = body["error"]
            code = error.get("code") if isinstance(error, dict) else None
            status = code if isinstance(code, int) and 400 <= code < 600 else 502
            raise self._http.failure(Answer(status, answer.body, answer.latency_ms))
        text, counts = _content(body.get("choices")), ("prompt_tokens", "completion_tokens")
        return self.reply(answer, text, body.get("usage"), counts)

    async def _ask(self, prompt: Prompt) -> Answer:
        payload: dict[str, JsonValue] = {
            "model": self.model,
            "messages": [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.user},
            ],
            self._limit_name: prompt.max_output_tokens,
        }
        if self._temperature:
            payload["temperature"] = 0
        if self._structured:
            payload["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": prompt.purpose,
                    "strict": True,
                    "schema": dict(prompt.schema),
                },
            }
        return await self._http.exchange("POST", "/chat/completions", payload)

    def _adapt(self, answer: Answer) -> bool:
        """Leave out what the server refuses by name; False when there is nothing to leave out."""
        lowered = answer.text[:10_000].lower()
        if self._structured and any(
            word in lowered for word in ("response_format", "json_schema", "structured output")
        ):
            self._structured = False
        elif self._limit_name == "max_tokens" and "max_completion_tokens" in lowered:
            self._limit_name = "max_completion_tokens"
        elif self._temperature and "temperature" in lowered:
            self._temperature = False
        else:
            return False
        return True


def _content(choices: JsonValue) -> str | None:
    """The text of the first choice: empty for a refusal, None where there is no choice."""
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    message = choices[0].get("message")
    if not isinstance(message, dict):
        return None
    content = message.get("content")
    return content if isinstance(content, str) else ""


class OpenAIEmbeddingModel(RemoteEmbeddingModel, _OpenAI):
    """`ask_dimensions` sends the size along, for models that can shorten their vectors."""

    def __init__(
        self,
        model: str,
        dimensions: int,
        base_url: str = DEFAULT_BASE_URL,
        api_key: SecretStr | None = None,
        *,
        ask_dimensions: bool = False,
        query_prefix: str = "",
        passage_prefix: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        http = HttpProvider(
            "openai",
            base_url,
            api_key=api_key,
            advice={401: "set a valid API key (embedding.api_key)"},
            timeout_s=timeout_s,
            max_response_bytes=MAX_EMBEDDING_RESPONSE_BYTES,
        )
        super().__init__(http, model, dimensions, query_prefix, passage_prefix)
        self._ask_dimensions = ask_dimensions

    async def _rows(self, texts: list[JsonValue]) -> JsonValue:
        payload: dict[str, JsonValue] = {
            "model": self.model,
            "input": texts,
            "encoding_format": "float",
        }
        if self._ask_dimensions:
            payload["dimensions"] = self.dimensions
        answer = await self._http.post("/embeddings", payload)
        rows = _in_order(answer.object().get("data"))
        if rows is None:
            raise PermanentModelError(
                f"{self._http.shown_url} did not answer with numbered embeddings"
            )
        return rows


def _in_order(data: JsonValue) -> list[JsonValue] | None:
    """The vectors by their `index`: the order of the list is not promised."""
    if not isinstance(data, list):
        return None
    rows: dict[int, JsonValue] = {}
    for position, entry in enumerate(data):
        if not isinstance(entry, dict):
            return None
        index = entry.get("index", position)
        if not isinstance(index, int) or index in rows or not 0 <= index < len(data):
            return None
        rows[index] = entry.get("embedding")
    return [rows[index] for index in range(len(data))]
