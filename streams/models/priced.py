"""A language model whose replies tell what they cost."""

from __future__ import annotations

from dataclasses import dataclass, replace

from palimpsest.streams.models.base import LanguageModel, Prompt, Reply

TOKENS_OF_A_PRICE = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Of a million tokens that a model reads and writes, in one currency."""

    input: float
    output: float

    def cost(self, reply: Reply) -> float | None:
        """None where the provider did not tell the tokens."""
        if reply.input_tokens is None or reply.output_tokens is None:
            return None
        return self.of(reply.input_tokens, reply.output_tokens)

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """What so many tokens cost."""
        return (self.input * input_tokens + self.output * output_tokens) / TOKENS_OF_A_PRICE


class PricedLanguageModel:
    """Asks `model`, and adds the cost to its replies."""

    def __init__(self, model: LanguageModel, prices: Prices) -> None:
        self.provider = model.provider
        self.model = model.model
        self._asked = model
        self._prices = prices

    async def generate(self, prompt: Prompt) -> Reply:
        reply = await self._asked.generate(prompt)
        return replace(reply, cost=self._prices.cost(reply))

    async def check(self) -> str | None:
        return await self._asked.check()

    async def close(self) -> None:
        await self._asked.close()
