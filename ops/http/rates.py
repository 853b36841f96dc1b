"""How often a caller may do what: so many requests of a kind within any minute."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Literal

from palimpsest.ops.http.problems import Problem
from palimpsest.ops.http.settings import HttpSettings

Kind = Literal["modify", "delete", "batch_forget"]
WINDOW_SECONDS: Final = 60.0


class Rates:
    """Counts of the last minute. For one event loop."""

    def __init__(
        self, settings: HttpSettings, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits: dict[Kind, int] = {
            "modify": settings.modify_per_minute,
            "delete": settings.delete_per_minute,
            "batch_forget": settings.batch_forget_per_minute,
        }
        self._seconds = seconds
        self._asked: dict[tuple[str, Kind], deque[float]] = {}

    def count(self, caller: str, kind: Kind) -> None:
        """Take note of a request. Raises Problem, with when to ask again, for one too many."""
        now = self._seconds()
        asked = self._asked.setdefault((caller, kind), deque())
        while asked and now - asked[0] >= WINDOW_SECONDS:
            asked.popleft()
        if len(asked) >= self._limits[kind]:
            wait = max(1, math.ceil(WINDOW_SECONDS - (now - asked[0])))
            raise Problem(
                "rate_limited",
                f"more than {self._limits[kind]} requests of this kind in a minute (setting"
                f" http.{kind}_per_minute); again in {wait} s",
                {"Retry-After": str(wait)},
            )
        asked.append(now)
