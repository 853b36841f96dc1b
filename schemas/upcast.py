"""Lifting older message versions to the current one.

A function lifts by exactly one version and changes the raw JSON object in place. It is added
together with the new version's golden file; a golden file of an older version is never edited.
"""

from __future__ import annotations

from collections.abc import Callable

Upcast = Callable[[dict[str, object]], None]

UPCASTS: dict[tuple[str, int], Upcast] = {}
"""(schema name, version lifted from) to the function that lifts to the next version."""


def upcast(
    name: str,
    version: int,
    current: int,
    raw: dict[str, object],
    upcasts: dict[tuple[str, int], Upcast] = UPCASTS,
) -> dict[str, object] | None:
    """`raw` lifted from `version` to `current`, or None where no path leads there."""
    for step in range(version, current):
        lift = upcasts.get((name, step))
        if lift is None:
            return None
        lift(raw)
        raw["schema"] = f"{name}/{step + 1}"
    return raw if version <= current else None
