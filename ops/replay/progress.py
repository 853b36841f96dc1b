"""Reports the progress of a replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` in `unit` (such as "records" or "turns") of the step `phase`."""

    phase: str
    done: int
    total: int
    unit: str = "records"


Report: TypeAlias = Callable[[Progress], None]
"""Called from any thread, at most a few times per second by each reporter."""


def unreported(_: Progress) -> None:
    """Discards the progress."""
