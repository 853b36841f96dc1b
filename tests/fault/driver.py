"""The pipeline in a process of its own, which tells of every step and can be killed at any."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

from tests.harness import FULL, Pipeline, pipeline_settings
from tests.spoken_model import ScriptedModel, spoken

BATCH = 3


def opened(folder: Path, batch: int = BATCH) -> Pipeline:
    """The pipeline that is run, killed and looked at."""
    return Pipeline(folder, pipeline_settings(FULL, "model"), ScriptedModel(spoken), batch=batch)


def run(folder: Path, told: Connection) -> None:
    """Process what lies in the log to its end; one message a step, and a last empty one. What an
    earlier process left is looked at first."""
    told.send_bytes(b"started")
    with opened(folder) as pipeline:
        assert pipeline.balance().holds
        told.send_bytes(b"opened")
        pipeline.on_step = lambda stage, step: told.send_bytes(f"{stage} {step}".encode())
        pipeline.run()
    told.send_bytes(b"")


def processes() -> ForkServerContext:
    """Processes that begin with everything imported, so that a hundred of them cost little."""
    context = multiprocessing.get_context("forkserver")
    # What they run may lie in a test's own file.
    context.set_forkserver_preload([__name__, "pytest"])
    return context


def run_and_kill(context: ForkServerContext, folder: Path, after: int) -> str | None:
    """Run until `after` steps were told, then kill -9. The step killed at; None where all was
    done before."""
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(folder, there))
    process.start()
    there.close()
    try:
        for _ in range(after - 1):
            if here.recv_bytes() == b"":
                return None
        last = here.recv_bytes().decode()
        if not last:
            return None
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        return last
    except EOFError:
        process.join()
        raise AssertionError(f"the pipeline ended by itself: exit {process.exitcode}") from None
    finally:
        process.join()
        here.close()
