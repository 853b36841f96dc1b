"""Rate limits: the maximum number of requests of a kind that a caller may send in any minute."""

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
    """Counts the requests of the last minute. For one event loop."""

    def __init__(
        self, settings: HttpSettings, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits: dict[Kind, int] = {
            "modify": settings.modify_per_minute,
            "delete": settings.delete_per_minute,
            "batch_forget": settings.batch_forget_per_minute,
        }
        self._seconds = seconds
        self._times: dict[tuple[str, Kind], deque[float]] = {}

    def count(self, caller: str, kind: Kind) -> None:
        """Counts a request. Raises Problem, with the time to retry, beyond the limit."""
        now = self._seconds()
        times = self._times.setdefault((caller, kind), deque())
        while times and now - times[0] >= WINDOW_SECONDS:
            times.popleft()
        if len(times) >= self._limits[kind]:
            wait = max(1, math.ceil(WINDOW_SECONDS - (now - times[0])))
            raise Problem(
                "rate_limited",
                f"more than {self._limits[kind]} requests of this kind in a minute (setting"
                f" http.{kind}_per_minute); again in {wait} s",
                {"Retry-After": str(wait)},
            )
        times.append(now)
