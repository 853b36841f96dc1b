"""A fold in a process of its own that can be killed at any moment."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

import palimpsest.ops.replay.fold as engine
from tests.folded_history import ends_of, fold, recorded
from tests.harness import Pipeline

BATCH = 9


def opened(folder: Path) -> Pipeline:
    return recorded(folder)


def run(folder: Path, stored: Path, told: Connection) -> None:
    """Fold the log in `folder`; one message a batch, and a last empty one."""
    engine.BATCH_RECORDS = BATCH

    def look() -> bool:
        told.send_bytes(b"batch")
        return False

    with opened(folder) as pipeline:
        fold(pipeline, ends_of(pipeline), stored, stopping=look)
    told.send_bytes(b"")


def fold_and_kill(
    context: ForkServerContext, folder: Path, stored: Path, after: int, wait: float
) -> bool:
    """Fold until `after` batches were begun, and some moment of the last of them; then kill -9.
    Whether all was done before."""
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(folder, stored, there))
    process.start()
    there.close()
    try:
        for _ in range(after):
            if here.recv_bytes() == b"":
                return True
        here.poll(wait)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        return False
    except EOFError:
        process.join()
        raise AssertionError(f"the fold ended by itself: exit {process.exitcode}") from None
    finally:
        process.join()
        here.close()
