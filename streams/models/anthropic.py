"""Anthropic's messages API. The reply's shape is constrained by a tool that must be used."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue, SecretStr
from pydantic_core import to_json

from palimpsest.streams.models.base import Prompt, Reply
from palimpsest.streams.models.http import DEFAULT_TIMEOUT_S, HttpProvider, RemoteModel

DEFAULT_BASE_URL: Final = "https://api.anthropic.com"
API_VERSION: Final = "2023-06-01"
_TOOL: Final = "answer"


class AnthropicLanguageModel(RemoteModel):
    def __init__(
        self,
        model: str,
        api_key: SecretStr | None = None,
        base_url: str = DEFAULT_BASE_URL,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        http = HttpProvider(
            "anthropic",
            base_url,
            api_key=api_key,
            key_header="x-api-key",
            key_prefix="",
            headers={"anthropic-version": API_VERSION},
            advice={401: "set a valid API key (llm.api_key)", 404: "correct the model's name"},
            timeout_s=timeout_s,
        )
        super().__init__(http, model)

    async def _problem(self) -> None:
        await self._listed(f"/v1/models/{self.model}")

    async def generate(self, prompt: Prompt) -> Reply:
        """One reply: the tool's input as JSON, or the text where the model wrote text."""
        answer = await self._http.post(
            "/v1/messages",
            {
                "model": self.model,
                "max_tokens": prompt.max_output_tokens,
                "system": prompt.system,
                "messages": [{"role": "user", "content": prompt.user}],
                "tools": [
                    {
                        "name": _TOOL,
                        "description": "Give the JSON object that was asked for.",
                        "input_schema": dict(prompt.schema),
                    }
                ],
                "tool_choice": {"type": "tool", "name": _TOOL},
            },
        )
        body = answer.object()
        text, counts = _content(body.get("content")), ("input_tokens", "output_tokens")
        return self.reply(answer, text, body.get("usage"), counts)


def _content(blocks: JsonValue) -> str | None:
    """The tool's input, else the texts joined; None where there are no blocks."""
    if not isinstance(blocks, list):
        return None
    texts: list[str] = []
    for block in blocks:
        if not isinstance(block, dict):
            continue
        if block.get("type") == "tool_use" and isinstance(block.get("input"), dict):
            return to_json(block["input"]).decode()
        text = block.get("text")
        if isinstance(text, str):
            texts.append(text)
    return "".join(texts)
