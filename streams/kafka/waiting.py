"""What a worker on Kafka cannot go on without now, and since when."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

Awaited: TypeAlias = Literal["broker", "partitions"]

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

    def note(self, awaited: Awaited | None) -> None:
        """Remember what is waited for at this moment, and log a broker that goes or comes."""
        before = self.now
        if before is not None and before.awaited == awaited:
            return
        if before is not None and before.awaited == "broker":
            logger.warning("the broker answers again")
        self.now = None
        if awaited is not None:
            self.now = Wait(awaited, self._clock(), self._texts[awaited])
        if awaited == "broker":
            logger.warning(self._texts[awaited])
