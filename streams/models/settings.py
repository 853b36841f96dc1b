"""The sections `llm`, `replies` and `embedding` of the settings, names of deciders, and what is
known of embedding models."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

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
    wait_seconds: float = Field(
        default=2.0,
        gt=0,
        le=3600,
        description="how long a write or a question waits for the vectors of a remote provider, in"
        " seconds; a text that has none by then is stored and found by its words, and its vector"
        " follows",
    )
    batch: int = Field(default=256, ge=1, le=4096, description="maximum number of texts per call")
    query_prefix: str | None = Field(
        default=None, description="prefix of a query; when not set, the model's known prefix"
    )
    passage_prefix: str | None = Field(
        default=None, description="prefix of a stored text; when not set, the model's known prefix"
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


# --- how a decider is named: one word, or provider, model and address in one ------------------

RULES = "rules"
REMOTE = ("ollama", "openai", "anthropic")
MOST_CHARACTERS = 512


class DeciderName(NamedTuple):
    """`rules`, or `provider/model` with `@address` where it is not the provider's usual one. Any of
    the three may have what the others have between them: a model may be called `meta/llama`."""

    provider: str
    model: str = ""
    base_url: str | None = None


def decider_name(text: str) -> DeciderName:
    """Raises ValueError with what is wrong and what such a name looks like."""
    if text == RULES:
        return DeciderName(RULES)
    provider, _, rest = text.partition("/")
    model, at, address = rest.partition("@http")
    if provider not in REMOTE or not model.strip() or len(text) > MOST_CHARACTERS:
        raise ValueError(
            f"{text!r} names no decider: write rules, or provider/model, or"
            " provider/model@http://host/path, the provider being one of " + ", ".join(REMOTE)
        )
    return DeciderName(provider, model, f"http{address}" if at else None)


def decider_model(name: DeciderName, llm: LlmSettings, seconds: float) -> LlmSettings:
    """The settings of the decider's model. The key of `llm` goes to no one but its own provider at
    its own address."""
    at_home = (name.provider, name.base_url) == (llm.provider, llm.base_url)
    return LlmSettings.model_validate(
        {
            "provider": name.provider,
            "model": name.model,
            "base_url": name.base_url,
            "api_key": llm.api_key if at_home else None,
            "timeout_seconds": seconds,
            "concurrency": llm.concurrency,
            "input_price": llm.input_price if at_home and name.model == llm.model else None,
            "output_price": llm.output_price if at_home and name.model == llm.model else None,
        }
    )


# --- what is known of embedding models: defaults that settings beat --------------------------


@dataclass(frozen=True, slots=True)
class EmbeddingDefaults:
    """What a model needs to be used well.

    `exact` and `near` are cosines: from `exact` on two facts in the same telling words are one,
    below `near` they have nothing to do with each other, and in between it must be decided.
    Prefixes are put before a text of that kind, for models trained with them.
    """

    dimensions: int
    exact: float = 0.98
    near: float = 0.70
    query_prefix: str = ""
    passage_prefix: str = ""


GENERAL: Final = EmbeddingDefaults(dimensions=0)
"""For a model that is not in the table: its dimensions must be set."""

KNOWN: Final[dict[str, EmbeddingDefaults]] = {
    # Measured on pairs of facts: paraphrases .977 to .995, updates and contradictions .905 to
    # .999, the same subject .81 to .90, unrelated ones .76 to .79.
    "multilingual-e5-small-q4": EmbeddingDefaults(384, exact=0.975, near=0.88),
    # Means of token vectors, measured on pairs in English: those that say the same from .970 on,
    # contradictions from .916, about one thing from .894, half of the unrelated ones below .85.
    "answerai-colbert-small-int8": EmbeddingDefaults(384, exact=0.97, near=0.85),
    # Counts words and pieces of words: opposites share most of them.
    "hashing-1": EmbeddingDefaults(256, exact=0.999, near=0.45),
    "nomic-embed-text": EmbeddingDefaults(
        768, query_prefix="search_query: ", passage_prefix="search_document: "
    ),
    "mxbai-embed-large": EmbeddingDefaults(
        1024, query_prefix="Represent this sentence for searching relevant passages: "
    ),
    "all-minilm": EmbeddingDefaults(384),
    "bge-m3": EmbeddingDefaults(1024),
    "text-embedding-3-small": EmbeddingDefaults(1536),
    "text-embedding-3-large": EmbeddingDefaults(3072),
}


def defaults_for(model: str) -> EmbeddingDefaults:
    """The defaults of a model by its name, with or without a tag (`bge-m3:latest`), and by the name
    of its vector space, which may end in the dimensions (`hashing-1-256`)."""
    base = re.sub(r"[-@]\d+$", "", model)
    return KNOWN.get(model) or KNOWN.get(base) or KNOWN.get(base.partition(":")[0]) or GENERAL
