"""Reads that were answered, as they wait in memory for being recorded."""

from __future__ import annotations

import uuid
from collections import deque
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

MOST_NOTED: Final = 10_000
"""Maximum number of reads that wait for being recorded; the oldest of more are not recorded."""
asker: Final[ContextVar[str | None]] = ContextVar("asker", default=None)
"""The id of the actor for whom a read is answered."""


@dataclass(frozen=True, slots=True)
class Accessed:
    """A read that returned memories: `results` are their ids with their scores, best first.
    `session_id` is empty where the read names none."""

    kind: Literal["recall", "context", "get"]
    scope: str
    results: tuple[tuple[str, float | None], ...]
    question: str | None = None
    session_id: str = ""
    asked_by: str | None = field(default_factory=asker.get)


@dataclass(frozen=True, slots=True)
class Noted:
    """A read that was answered, as it waits in memory."""

    recall_id: str
    at: datetime
    accessed: Accessed


class AccessBuffer:
    """Reads of this process that are not in the log yet."""

    def __init__(self, record: bool = True) -> None:
        self._noted: deque[Noted] | None = deque(maxlen=MOST_NOTED) if record else None

    def note(self, accessed: Accessed | None, at: datetime) -> None:
        """Called after a read was answered; any thread may."""
        if accessed is not None and self._noted is not None:
            self._noted.append(Noted(str(uuid.uuid4()), at, accessed))

    def taken(self) -> list[Noted]:
        """Empties the buffer; oldest first."""
        found: list[Noted] = []
        while self._noted:
            found.append(self._noted.popleft())
        return found
