"""How far a replay has come, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` in `unit` (as "records" or "turns") of a step that is called `phase`."""

    phase: str
    done: int
    total: int
    unit: str = "records"


Report: TypeAlias = Callable[[Progress], None]
"""Called from any thread, some times a second at most by who reports."""


def unreported(_: Progress) -> None:
    """For who shows nothing."""
