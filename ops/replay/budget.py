"""What a language model may read and write for a branch, and the model that keeps to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from palimpsest.ops.replay.ledger import Ledger
from palimpsest.streams.models.base import LanguageModel, ModelError, Prompt, Reply
from palimpsest.streams.runtime.source import Interrupted

BYTES_PER_TOKEN: Final = 3.0
"""At most so many tokens are expected of a prompt: most models make fewer of a text, and one that
makes more is noticed at its first reply."""


def size_of(prompt: Prompt) -> int:
    """Bytes that a model reads."""
    return len(prompt.system.encode()) + len(prompt.user.encode())


def most_tokens(prompt: Prompt, bytes_per_token: float = BYTES_PER_TOKEN) -> int:
    """The most that a call is expected to read and write."""
    return round(size_of(prompt) / bytes_per_token) + prompt.max_output_tokens


@dataclass(slots=True)
class Budget:
    """Tokens that all runs of a re-extraction may read and write together; None: any number.

    What is under way counts with the most that it may cost, so the limit is never passed by more
    than a provider's own miscount. `exhausted` is called once, when a call does not fit any more.
    """

    ledger: Ledger
    limit: int | None
    exhausted: Callable[[], None] = lambda: None
    is_exhausted: bool = False
    _bytes_per_token: float = BYTES_PER_TOKEN
    _reserved: int = 0
    _free: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def reserve(self, prompt: Prompt) -> int:
        """Set aside what a call may cost, once it fits. Raises Interrupted when it never will;
        calls under way are then done, so that none of their replies is lost on its way."""
        wanted = most_tokens(prompt, self._bytes_per_token)
        async with self._free:
            while self.limit is not None and not self._fits(wanted):
                if not self._reserved:
                    if not self.is_exhausted:
                        self.is_exhausted = True
                        self.exhausted()
                    raise Interrupted("the budget of tokens is used up")
                await self._free.wait()
            self._reserved += wanted
        return wanted

    def _fits(self, wanted: int) -> bool:
        if self.is_exhausted or self.limit is None:
            return not self.is_exhausted
        return self.ledger.spent().tokens + self._reserved + wanted <= self.limit

    async def settle(self, prompt: Prompt, reserved: int, reply: Reply | None) -> None:
        """A call is done. Where no one tells its tokens it counts with all that was set aside."""
        read = None if reply is None else reply.input_tokens
        written = None if reply is None else reply.output_tokens
        if read is None or written is None:
            written = prompt.max_output_tokens
            read = reserved - written
        else:
            self._bytes_per_token = min(self._bytes_per_token, size_of(prompt) / max(read, 1))
        self.ledger.note_spent(read, written)
        await self.release(reserved)

    async def release(self, reserved: int) -> None:
        """What was set aside is free again."""
        async with self._free:
            self._reserved -= reserved
            self._free.notify_all()


class BudgetedModel:
    """Asks `model` as long as the budget lasts."""

    def __init__(self, model: LanguageModel, budget: Budget) -> None:
        self.provider = model.provider
        self.model = model.model
        self._asked = model
        self._budget = budget

    async def generate(self, prompt: Prompt) -> Reply:
        reserved = await self._budget.reserve(prompt)
        try:
            reply = await self._asked.generate(prompt)
        except ModelError:  # nothing was read, as far as anyone knows
            await self._budget.release(reserved)
            raise
        except BaseException:  # let go of; the provider goes on and is paid
            await asyncio.shield(self._budget.settle(prompt, reserved, None))
            raise
        await self._budget.settle(prompt, reserved, reply)
        return reply

    async def check(self) -> str | None:
        return await self._asked.check()

    async def close(self) -> None:
        await self._asked.close()
