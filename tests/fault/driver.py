"""The pipeline in a process of its own, which tells of every step and can be killed at any."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

from tests.harness import FULL, Pipeline, pipeline_settings
from tests.spoken_model import ScriptedModel, spoken

BATCH = 3
_telling = threading.Lock()


def opened(folder: Path, batch: int = BATCH) -> Pipeline:
    """The pipeline that is run, killed and looked at."""
    return Pipeline(folder, pipeline_settings(FULL, "model"), ScriptedModel(spoken), batch=batch)


def tell(told: Connection, step: str) -> None:
    """Tell of a step, and wait until it was heard: a process on a busy machine must not have done
    everything before it is killed. The empty step is the last."""
    with _telling:
        told.send_bytes(step.encode())
        told.recv_bytes()


def run(folder: Path, told: Connection) -> None:
    """Process what lies in the log to its end, telling of every step. What an earlier process left
    is looked at first."""
    tell(told, "started")
    with opened(folder) as pipeline:
        assert pipeline.balance().holds
        tell(told, "opened")
        pipeline.on_step = lambda stage, step: tell(told, f"{stage} {step}")
        pipeline.run()
    tell(told, "")


def processes() -> ForkServerContext:
    """Processes that begin with everything imported, so that a hundred of them cost little."""
    context = multiprocessing.get_context("forkserver")
    # What they run may lie in a test's own file.
    context.set_forkserver_preload([__name__, "pytest", "tests.replayed", "tests.fault.preloaded"])
    return context


def run_and_kill(
    target: Callable[..., None], *given: object, after: int, within: float = 0.0
) -> str | None:
    """Call `target(*given, told)` in a process of its own until it told of `after` steps, and up to
    `within` seconds more; then kill -9. The last step; None where the empty one came before: all
    was done."""
    context = processes()
    here, there = context.Pipe()
    process = context.Process(target=target, args=(*given, there))
    process.start()
    there.close()
    last = ""
    try:
        for _ in range(after):
            last = here.recv_bytes().decode()
            here.send_bytes(b"heard")
            if not last:
                return None
        here.poll(within)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        return last
    except EOFError:
        process.join()
        raise AssertionError(f"it ended by itself: exit {process.exitcode}") from None
    finally:
        process.join()
        here.close()
