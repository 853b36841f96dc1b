"""Waiting for a language model that cannot be used when a worker starts."""

from __future__ import annotations

import asyncio
from typing import Protocol

from streams.models.base import LanguageModel
from streams.worker import Interrupted

CHECK_AGAIN_SECONDS = 5.0


class Waiting(Protocol):
    """Who waits for a language model that cannot be used now."""

    language: LanguageModel
    unusable: str | None
    stopping: bool


async def until_usable(app: Waiting) -> None:
    """Wait for the language model. Raises Interrupted when the worker stops meanwhile."""
    while app.unusable is not None:
        waited = 0.0
        while waited < CHECK_AGAIN_SECONDS:
            if app.stopping:
                raise Interrupted
            await asyncio.sleep(0.1)
            waited += 0.1
        app.unusable = await app.language.check()
