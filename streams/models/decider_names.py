"""How a decider is named in the settings: one word, or provider, model and address in one."""

from __future__ import annotations

from typing import NamedTuple

from palimpsest.streams.models.settings import LlmSettings

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
