"""All rows: the tables that a shard is made with."""

from __future__ import annotations

from typing import Final

from palimpsest.schemas.rows import graph, memories, pipeline, sessions
from palimpsest.schemas.rows.columns import Row

ROW_TYPES: Final[tuple[type[Row], ...]] = tuple(
    each
    for module in (memories, sessions, graph, pipeline)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Row) and each.__module__ == module.__name__
)
"""In the order of their definition, which the state hash depends on."""
