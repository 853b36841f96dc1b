"""Any server that speaks OpenAI's chat completions and embeddings.

Such servers differ in what they take. What one refuses by name (structured output, the name of
the token limit, a temperature) is left out or renamed, and remembered for as long as it is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue, SecretStr
from pydantic_core import to_json

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
        sent = self._payload(prompt)
        answer = await self._ask(sent)
        while answer.status == 400 and not is_too_long(answer) and self._adapt(answer, sent):
            sent = self._payload(prompt)
            answer = await self._ask(sent)
        if answer.status != 200:
            raise self._http.failure(answer)
        body = answer.object()
        self._http.raise_wrapped(answer, body, unless="choices")
        choice = _first(body.get("choices"))
        self._http.raise_wrapped(answer, choice)
        counts = ("prompt_tokens", "completion_tokens")
        return self.reply(answer, _content(choice), body.get("usage"), counts)

    async def _ask(self, payload: Mapping[str, JsonValue]) -> Answer:
        return await self._http.exchange("POST", "/chat/completions", payload)

    def _payload(self, prompt: Prompt) -> dict[str, JsonValue]:
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
        return payload

    def _adapt(self, answer: Answer, sent: Mapping[str, JsonValue]) -> bool:
        """Leave out what the server refuses by name; False when there is nothing to leave out. It
        goes by what was `sent`: another call may have learned the same meanwhile."""
        lowered = answer.text[:10_000].lower()
        if "response_format" in sent and any(
            word in lowered for word in ("response_format", "json_schema", "structured output")
        ):
            self._structured = False
        elif "max_tokens" in sent and "max_completion_tokens" in lowered:
            self._limit_name = "max_completion_tokens"
        elif "temperature" in sent and "temperature" in lowered:
            self._temperature = False
        else:
            return False
        return True


def _first(choices: JsonValue) -> dict[str, JsonValue]:
    """The first choice; empty where there is none."""
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _content(choice: Mapping[str, JsonValue]) -> str | None:
    """The text of a choice, or of the function that it calls instead. None where there is neither
    and the server says why (a refusal, a filter, the limit of tokens), or no message."""
    message = choice.get("message")
    if not isinstance(message, dict):
        return None
    text = _joined_parts(message.get("content")) or _joined_parts(_arguments(message))
    if text or (choice.get("finish_reason") in (None, "stop") and not message.get("refusal")):
        return text
    return None


def _joined_parts(content: JsonValue) -> str:
    """A text, or the texts of a list of parts; an object that is no part is the reply itself."""
    parts = content if isinstance(content, list) else [content]
    return "".join(map(_part, parts))


def _part(part: JsonValue) -> str:
    if isinstance(part, dict):
        said = part.get("text") if "type" in part or "text" in part else to_json(part).decode()
    else:
        said = part
    return said if isinstance(said, str) else ""


def _arguments(message: Mapping[str, JsonValue]) -> list[JsonValue]:
    """What a message calls functions with."""
    tools = message.get("tool_calls")
    called = tools if isinstance(tools, list) else []
    calls = [message.get("function_call")]
    calls += [each.get("function") for each in called if isinstance(each, dict)]
    return [call.get("arguments") for call in calls if isinstance(call, dict)]


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
        body = answer.object()
        self._http.raise_wrapped(answer, body, unless="data")
        rows = _in_order(body.get("data"))
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
