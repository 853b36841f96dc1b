"""How a memory fades and is reinforced: importance when shown, confidence by Ebbinghaus. Pure.

Days are counted from the last access, from creation where there was none.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from palimpsest.schemas.rows.memories import MemoryRow

DAY: Final = timedelta(days=1)
EXPONENT: Final = 0.8
"""Of the days in the forgetting curve."""
GAIN: Final = 0.05
FAMILIAR: Final = 20
"""Accesses after which one more raises the confidence by GAIN x ln 2."""
RECOVERED: Final = 0.5
"""Least confidence of a recovered memory that had faded: it lasts for weeks."""


def shown_importance(importance: float, rate: float, pinned: bool, days: float) -> float:
    """importance x rate ^ days; 1 for a pinned memory."""
    return 1.0 if pinned else importance * rate ** max(days, 0.0)


def reinforced(row: MemoryRow, times: int, at: datetime) -> MemoryRow:
    """The row after so many accesses, the last of them `at`.

    The first restores the confidence that fading has taken; each adds
    GAIN x ln(1 + accesses / FAMILIAR) to it, up to 1, and the curve begins again.
    """
    confidence = min(1.0, row.confidence / row.retained) if row.retained else row.confidence
    for count in range(row.access_count + 1, row.access_count + times + 1):
        if confidence >= 1.0:
            break
        confidence = min(1.0, confidence + GAIN * math.log1p(count / FAMILIAR))
    last = at if row.last_accessed is None else max(row.last_accessed, at)
    return replace(
        row,
        access_count=row.access_count + times,
        last_accessed=last,
        confidence=confidence,
        retained=1.0,
    )


def faded(row: MemoryRow, at: datetime, since: datetime | None = None) -> MemoryRow:
    """The row with its confidence faded up to `at`; nothing fades for the time before `since`.

    The curve is base x exp(-decay_rate x days ^ EXPONENT). What was lost by earlier nights is not
    lost again: the confidence is multiplied by the ratio of the curve now to the curve at the last
    decay, so that any number of nights comes to the curve itself.
    """
    begin = row.last_accessed or row.created_at
    until = max(begin, row.decayed_at or begin, since or begin)
    if at <= until:
        return row
    more = _bent((at - begin) / DAY) - _bent((until - begin) / DAY)
    share = math.exp(-row.decay_rate * more)
    return replace(
        row, confidence=row.confidence * share, retained=row.retained * share, decayed_at=at
    )


def fades_at(
    confidence: float, decay_rate: float, begin: datetime, decayed_at: datetime | None, floor: float
) -> datetime | None:
    """When the confidence, counted from `begin`, will have faded to the floor without a further
    access; None if that is more than a thousand years away."""
    if decay_rate <= 0.0 or floor <= 0.0:
        return None
    until = max(begin, decayed_at or begin)
    left = max(math.log(max(confidence, floor) / floor), 0.0) / decay_rate
    days = (_bent((until - begin) / DAY) + left) ** (1 / EXPONENT)
    try:
        return begin + timedelta(days=days) if days < 365_000 else None
    except OverflowError:  # after the year 9999
        return None


def _bent(days: float) -> float:
    return math.pow(days, EXPONENT)
