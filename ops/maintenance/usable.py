"""Waiting for a language model that cannot be used when a worker starts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from palimpsest.streams.models.base import LanguageModel
from palimpsest.streams.runtime.source import Interrupted

CHECK_AGAIN_SECONDS = 5.0


@dataclass(slots=True)
class ModelGate:
    """`unusable` tells what is wrong with the language model, and is None again once it answers;
    until then extraction waits and everything else goes on. With `stopping` nobody waits."""

    language: LanguageModel
    unusable: str | None = None
    stopping: bool = False

    async def opened(self) -> None:
        """Wait for the language model. Raises Interrupted when the worker stops meanwhile."""
        while self.unusable is not None:
            waited = 0.0
            while waited < CHECK_AGAIN_SECONDS:
                if self.stopping:
                    raise Interrupted
                await asyncio.sleep(0.1)
                waited += 0.1
            self.unusable = await self.language.check()
