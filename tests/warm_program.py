"""The program in processes of its own that need not import it: forked from one that did.

A start of the program is a second of processor, nearly all of it imports; hundreds of tests start
it. Here one process a test session imports it (and nothing that runs threads), and forks for every
start: the fork has arguments, folder, environment, streams and exit code of its own and calls the
same `main`. What is tried of the start itself, or of signals to it, starts the program afresh
(`Program.command`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import typer.main

ROOT = Path(__file__).parents[1]
MODULES = (
    "palimpsest.ops.cli.main",
    "palimpsest.ops.cli.tables",
    "palimpsest.ops.bootstrap",
    "palimpsest.ops.cli.printing",
    "palimpsest.ops.cli.progress",
    "palimpsest.ops.commanding",
    "palimpsest.ops.maintenance.doctor",
    "palimpsest.ops.operations.executing",
    "palimpsest.ops.service.queries",
    "palimpsest.ops.operations.recalling",
    "palimpsest.ops.service.client",
    "palimpsest.ops.service.running",
    "palimpsest.ops.settings.sources",
    "palimpsest.streams.rules.model",
    "pyarrow.dataset",
    "pytz",
    "lance_namespace",  # a fork of LanceDB itself hangs: it starts threads
)
"""What most commands import."""


def run_warm(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    stdin: bytes | None,
    timeout: float,
) -> subprocess.CompletedProcess[bytes]:
    """As `subprocess.run` of the program; raises TimeoutExpired after `timeout` seconds."""
    with contextlib.ExitStack() as undo:
        caller = undo.enter_context(socket.socket(socket.AF_UNIX))
        caller.connect(_warm())
        out, err = (undo.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        source, sink = os.pipe()
        start = {"arguments": arguments, "folder": str(folder), "environment": dict(environment)}
        socket.send_fds(caller, [b"f"], [source, out.fileno(), err.fileno()])
        os.close(source)
        caller.sendall(json.dumps(start).encode() + b"\n")
        feeding = threading.Thread(target=_feed, args=(sink, stdin or b""))
        feeding.start()
        caller.settimeout(timeout)
        answers = undo.enter_context(caller.makefile("r"))
        process = int(answers.readline())
        try:
            code = int(answers.readline())
        except TimeoutError:
            os.kill(process, signal.SIGKILL)
            raise subprocess.TimeoutExpired(list(arguments), timeout) from None
        finally:
            feeding.join()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, out.read(), err.read())


def _feed(sink: int, text: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(sink, "wb") as stream:
        stream.write(text)


_starting = threading.Lock()


def _warm() -> str:
    """The address of the process that forks."""
    with _starting:
        return _started()


@functools.cache
def _started() -> str:
    folder = tempfile.TemporaryDirectory(prefix="palimpsest-warm-")
    path = f"{folder.name}/socket"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PALIMPSEST_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.warm_program", path],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    # It ends when this process does, however that ends: its pipe is closed.
    atexit.register(folder.cleanup)
    atexit.register(process.communicate)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n", process.wait()
    return path


# --- the process that forks -----------------------------------------------------------------


def _serve(path: str) -> None:
    for module in MODULES:
        importlib.import_module(module)
    # To make all commands of their functions takes longer than most of them run.
    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(sys.modules["palimpsest.ops.cli.main"].app)
    gc.collect()
    gc.freeze()
    woken, wake = socket.socketpair()
    for each in (woken, wake):
        each.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake.fileno())
    running: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(path)
        listener.listen(64)
        for source in (listener, woken, sys.stdin):
            selector.register(source, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is listener:
                    caller, _ = listener.accept()
                    process = os.fork() or _be_the_program(caller)
                    running[process] = caller
                    caller.sendall(f"{process}\n".encode())
                else:
                    woken.recv(4096)
                    _tell_ended(running)


def _tell_ended(running: dict[int, socket.socket]) -> None:
    for process in list(running):
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            with running.pop(process) as caller, contextlib.suppress(OSError):
                caller.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _be_the_program(caller: socket.socket) -> NoReturn:
    """The fork: what the starter of a process sets, then `main`."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(caller, 1, 3)
    start = json.loads(caller.makefile("r").readline())
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.closerange(3, 256)
    os.chdir(start["folder"])
    os.environ.clear()
    os.environ.update(start["environment"])
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = map(os.fdopen, range(3), "rww")
    program = sys.modules["__main__"] = sys.modules["palimpsest.ops.cli.main"]
    sys.argv = [str(program.__file__), *start["arguments"]]
    code = 1
    try:
        program.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        # As a process ends: threads of executors are awaited, what is left is written. The rest
        # is not undone: DuckDB would tell of all that the fork holds with the one it is from.
        threading._shutdown()
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
    os._exit(0)
