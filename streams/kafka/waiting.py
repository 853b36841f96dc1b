"""What a Kafka worker currently waits for and cannot continue without, and since when."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

Awaited: TypeAlias = Literal["broker", "partitions"]

LOG_AFTER: Final = timedelta(seconds=3)
"""A starting worker, or one whose broker moves, waits for moments that are not worth a log line."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wait:
    awaited: Awaited
    since: datetime
    text: str

    def as_json(self) -> dict[str, str]:
        since = f"{self.since:%Y-%m-%dT%H:%M:%SZ}"
        return {"for": self.awaited, "since": since, "text": f"{self.text} since {since}"}


class Waiting:
    """`now` is None while the worker works."""

    def __init__(self, servers: str, clock: Callable[[], datetime]) -> None:
        self.now: Wait | None = None
        self._texts: Mapping[Awaited, str] = {
            "broker": f"waiting for the broker at {servers}",
            "partitions": "waiting for its partitions",
        }
        self._clock = clock
        self._is_logged = False

    def note(self, awaited: Awaited | None) -> None:
        """Records what is waited for now; logs when a broker stays unreachable, and when it
        returns."""
        now = self._clock()
        if self.now is None or self.now.awaited != awaited:
            if self._is_logged:
                logger.warning("the broker answers again")
            self._is_logged = False
            self.now = None if awaited is None else Wait(awaited, now, self._texts[awaited])
        elif awaited == "broker" and not self._is_logged and now - self.now.since > LOG_AFTER:
            self._is_logged = True
            logger.warning("%s", self.now.as_json()["text"])
