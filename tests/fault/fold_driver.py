"""A fold in a process of its own that tells of its batches, to be killed at any."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

import palimpsest.ops.replay.fold as engine
from tests.fault.driver import tell
from tests.folded_history import ends_of, fold, recorded
from tests.harness import Pipeline

BATCH = 9


def opened(folder: Path) -> Pipeline:
    return recorded(folder)


def run(folder: Path, stored: Path, told: Connection) -> None:
    """Fold the log in `folder`, telling of every batch."""
    engine.BATCH_RECORDS = BATCH

    def look() -> bool:
        tell(told, "batch")
        return False

    with opened(folder) as pipeline:
        fold(pipeline, ends_of(pipeline), stored, stopping=look)
    tell(told, "")
