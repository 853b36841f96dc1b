"""What is checked of every vector before it is used: count, size, finite, unit length. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np
from pydantic import JsonValue

from palimpsest.streams.models.base import PermanentModelError, Vector

MIN_LENGTH: Final = 1e-12
"""Below it a vector has no direction."""


def unit_vectors(source: str, rows: JsonValue, count: int, dimensions: int) -> list[Vector]:
    """`rows` as `count` float32 unit vectors of `dimensions` numbers each.

    Raises PermanentModelError when the count or a size differs or a vector has no direction:
    a vector that is wrong is worse than none.
    """
    if not isinstance(rows, list) or len(rows) != count:
        got = len(rows) if isinstance(rows, list) else "no list of"
        raise PermanentModelError(f"{source} gave {got} vectors for {count} texts")
    return [_unit(source, row, dimensions) for row in rows]


def _unit(source: str, row: JsonValue, dimensions: int) -> Vector:
    if not isinstance(row, list) or len(row) != dimensions:
        got = len(row) if isinstance(row, list) else "no list of"
        raise PermanentModelError(
            f"{source} gave {got} numbers where {dimensions} belong; set the embedding"
            " dimensions to what the model gives, or the model to the one that was used before"
        )
    try:
        vector = np.array(row, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        vector = np.empty((0, 0))
    if vector.ndim != 1:
        raise PermanentModelError(f"{source} gave a vector with something else in it")
    return normalized(source, vector)


def normalized(source: str, vector: np.typing.NDArray[np.floating]) -> Vector:
    """`vector` scaled to length 1. Raises PermanentModelError where it has no direction."""
    wide = vector.astype(np.float64)
    largest = float(np.max(np.abs(wide), initial=0.0))
    # By the largest first: squares of very large or very small numbers leave the range.
    if not np.isfinite(wide).all() or largest < MIN_LENGTH:
        raise PermanentModelError(f"{source} gave a vector that is zero or not finite")
    scaled = wide / largest
    unit: Vector = (scaled / np.sqrt(scaled @ scaled)).astype(np.float32)
    return unit
