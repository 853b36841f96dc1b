"""Periodic passes over the records of an embedded log, alongside the stages that read them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import ClassVar, Final

logger = logging.getLogger(__name__)
LOOK_SECONDS: Final = 1.0
READ_RECORDS: Final = 500


class LogRounds(ABC):
    """Runs a round every LOOK_SECONDS, if `wanted`; `wait` sleeps that long. A round that fails
    with one of `passing` is logged with the text `left`, and the next round does the rest."""

    passing: ClassVar[tuple[type[Exception], ...]]
    left: ClassVar[str]

    def __init__(
        self, wanted: bool, wait: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self._wanted = wanted
        self._wait = wait
        self._lock = threading.Lock()

    def once(self) -> int:
        """Returns the number of changed records. Blocks; raises the errors in `passing`."""
        with self._lock:  # a cancelled round continues in its thread
            return self._round()

    @abstractmethod
    def _round(self) -> int:
        """Processes what arrived since the last round."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs in the background until the block ends, and once more at its end."""
        if not self._wanted:
            yield
            return
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._once()

    async def _run(self) -> None:
        while True:
            await self._once()
            await self._wait(LOOK_SECONDS)

    async def _once(self) -> None:
        try:
            await asyncio.to_thread(self.once)
        except self.passing as error:
            logger.warning("%s: %s", self.left, error)
