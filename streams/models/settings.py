"""The sections `llm`, `replies` and `embedding` of the settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from palimpsest.schemas.section import Section

DEFAULT_LLM_MODELS = {
    "rules": "rules-2",
    "ollama": "qwen3:4b",
    "openai": "gpt-4o-mini",
    "anthropic": "claude-haiku-4-5",
}
ENGLISH = ("english", "porter")
"""Snowball's names for stemmers of English."""
LOCAL_ENGLISH = "answerai-colbert-small-int8"
DEFAULT_EMBEDDING_MODELS = {
    "local": "multilingual-e5-small-q4",
    "ollama": "nomic-embed-text",
    "openai": "text-embedding-3-small",
    "hashing": "hashing-1",
}


class LlmSettings(Section):
    provider: Literal["rules", "ollama", "openai", "anthropic"] = Field(
        default="rules",
        description="who extracts facts: rules (no model), ollama, openai (any compatible"
        " server) or anthropic",
    )
    base_url: str | None = Field(
        default=None, description="the provider's URL; when not set, the provider's default"
    )
    model: str | None = Field(
        default=None, description="the model's name; when not set, the provider's default"
    )
    api_key: SecretStr | None = Field(default=None, description="key for the provider; never shown")
    timeout_seconds: float = Field(
        default=45.0, gt=0, le=3600, description="timeout of a call, in seconds"
    )
    concurrency: int = Field(
        default=4, ge=1, le=256, description="maximum number of concurrent model calls"
    )
    input_price: float | None = Field(
        default=None, ge=0, description="price of a million input tokens, in any currency"
    )
    output_price: float | None = Field(
        default=None, ge=0, description="price of a million output tokens, in the same currency"
    )

    @property
    def model_name(self) -> str:
        return self.model or DEFAULT_LLM_MODELS[self.provider]


class ReplySettings(Section):
    """Recorded replies of the language model."""

    retention_days: float = Field(
        default=30.0,
        ge=0,
        le=36_500,
        description="how long a reply of a remote language model is kept, to be taken when the same"
        " is asked again, in days; 0 keeps none",
    )
    max_megabytes: float = Field(
        default=1_024.0,
        gt=0,
        description="maximum size of recorded replies, in megabytes; the oldest are deleted first",
    )


class EmbeddingSettings(Section):
    provider: Literal["local", "ollama", "openai", "hashing"] = Field(
        default="local",
        description="who makes vectors: local (comes with the program), ollama, openai (any"
        " compatible server) or hashing (word counts; for tests and load tests)",
    )
    base_url: str | None = Field(
        default=None, description="the provider's URL; when not set, the provider's default"
    )
    model: str | None = Field(
        default=None,
        description="the model's name; when not set, the provider's default. The local one follows"
        " search.language: answerai-colbert-small-int8 for English, multilingual-e5-small-q4 for"
        " any other",
    )
    api_key: SecretStr | None = Field(default=None, description="key for the provider; never shown")
    dimensions: int | None = Field(
        default=None,
        ge=8,
        le=65_536,
        description="vector dimensions; required for an unknown model",
    )
    timeout_seconds: float = Field(
        default=45.0, gt=0, le=3600, description="timeout of a call, in seconds"
    )
    batch: int = Field(default=256, ge=1, le=4096, description="maximum number of texts per call")
    query_prefix: str | None = Field(
        default=None, description="prefix of a query; when not set, the model's known prefix"
    )
    passage_prefix: str | None = Field(
        default=None,
        description="prefix of a stored text; when not set, the model's known prefix",
    )

    @property
    def by_language(self) -> bool:
        """Whether the language of the texts chooses the model."""
        return self.provider == "local" and self.model is None

    def model_for(self, language: str) -> str:
        """The model for texts of a language (Snowball's name)."""
        if self.by_language and language in ENGLISH:
            return LOCAL_ENGLISH
        return self.model or DEFAULT_EMBEDDING_MODELS[self.provider]
