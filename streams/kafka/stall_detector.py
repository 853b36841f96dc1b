"""Records that are in the log and never come.

Around a rebalance Faust may drop records that it has fetched and go on behind them. A task that
gets a later one notices, and reads what is missing; where no later one follows it would wait until
the next rebalance. So it is looked now and then where the log ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

LOOK_SECONDS: Final = 5.0
"""How often it is looked: a record that was there the last time, too, is not on its way."""

Place = TypeVar("Place", bound=tuple[str, int])


class StallDetector(Generic[Place]):
    """What was missing at the last look, by topic and partition."""

    def __init__(self) -> None:
        self._stood: Mapping[Place, int] = {}

    def found(self, wanted: Mapping[Place, int], ends: Mapping[Place, int]) -> dict[Place, int]:
        """Where to fetch again from, by place. `wanted` are the offsets that are waited for while
        nothing else is there to do, `ends` those after the last records of the log."""
        stands = {place: offset for place, offset in wanted.items() if offset < ends[place]}
        again = {place: at for place, at in stands.items() if self._stood.get(place) == at}
        self._stood = stands
        return again
