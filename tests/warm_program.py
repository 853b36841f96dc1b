"""The program in processes of its own that need not import it: forked from one that did.

A start of the program is a second of processor, nearly all of it imports; hundreds of tests start
it. Here one process a test session imports it (and nothing that runs threads), and forks for every
start: the fork has arguments, folder, environment, streams and exit code of its own and calls the
same `main`. What is tried of the start itself starts the program afresh (`Program.command`).
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
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NoReturn

from tests.made_once import (
    load_commands,
    load_messages,
    load_models,
    load_routes,
    load_rules,
    load_tools,
    share_routes,
    share_sessions,
    share_tools,
)

ROOT = Path(__file__).parents[1]
MODULES = (
    "palimpsest.ops.cli.main",
    "palimpsest.ops.terminal.tables",
    "palimpsest.ops.worker.bootstrap",
    "palimpsest.ops.terminal.printing",
    "palimpsest.ops.terminal.progress",
    "palimpsest.ops.service.commanding",
    "palimpsest.ops.server.serving",
    "palimpsest.ops.library",
    "palimpsest.ops.cli.doctor",
    "palimpsest.ops.service.executing",
    "palimpsest.ops.service.direct_queries",
    "palimpsest.ops.operations.recalling",
    "palimpsest.ops.replay.jobs",
    "palimpsest.ops.replay.promotion",
    "palimpsest.ops.replay.repartition",
    "palimpsest.ops.service.client",
    "palimpsest.ops.worker.local",
    "palimpsest.ops.settings.sources",
    "palimpsest.stores.index.lance",
    "palimpsest.stores.recall.retriever",
    "palimpsest.stores.recall.strategies",
    "palimpsest.streams.rules.model",
    "pyarrow.dataset",
    "pytz",
    "rich._emoji_codes",
    "typer.rich_utils",
)
"""What most commands import."""


class WarmProcess:
    """A started program, of the command line or (`code`) of Python: what tests use of
    `subprocess.Popen`. What it prints goes to `output`, or is answered by `communicate`. `patched`
    are other values of constants by their whole names."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        stdin: bytes = b"",
        output: IO[bytes] | None = None,
        patched: Mapping[str, float] | None = None,
        code: str | None = None,
    ) -> None:
        self.args = list(arguments)
        self.returncode: int | None = None
        self._out, self._err = (output or tempfile.TemporaryFile() for _ in "oe")  # noqa: SIM115
        self._caller = socket.socket(socket.AF_UNIX)
        self._caller.connect(warm())
        source, sink = os.pipe()
        streams = [source, self._out.fileno(), self._err.fileno()]
        start = {
            "arguments": self.args,
            "folder": str(folder),
            "environment": dict(environment),
            "patched": dict(patched or {}),
            "code": code,
        }
        socket.send_fds(self._caller, [b"f"], streams)
        os.close(source)
        self._caller.sendall(json.dumps(start).encode() + b"\n")
        threading.Thread(target=_feed, args=(sink, stdin)).start()
        self._answers = self._caller.makefile("r")
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal. Raises TimeoutExpired after `timeout` seconds."""
        if self.returncode is None:
            if not select.select([self._caller], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._caller.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        # As `subprocess.Popen` does: it may end between the two, before its end is told.
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def errors(self) -> str:
        """What it has told so far."""
        return os.pread(self._err.fileno(), 1 << 20, 0).decode()

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        self.wait(timeout)
        for each in (self._out, self._err):
            each.seek(0)
        with self._out, self._err:
            return self._out.read(), self._err.read()


def fork_processes(address: Callable[[], str]) -> None:
    """From now on the processes for SQL and for replays are forked, too: to import what they need
    takes up to a second of processor. `address` gives that of the process that forks."""
    for name in ("palimpsest.ops.sql.processes", "palimpsest.ops.replay.jobs"):
        module: Any = importlib.import_module(name)
        module.subprocess = SimpleNamespace(
            PIPE=subprocess.PIPE, Popen=lambda *given, **named: _Piped(address(), *given, **named)
        )


class _Piped:
    """What the product uses of a `python -m MODULE` that it starts with pipes."""

    def __init__(self, warm: str, given: Sequence[str], stderr: Any = None, **_: object) -> None:
        _, _, module, *arguments = given
        source, into = os.pipe()
        told, sink = os.pipe()
        start = {
            "arguments": arguments,
            "folder": os.getcwd(),
            "environment": dict(os.environ),
            "code": f"from {module} import main; main()",
        }
        self._caller = socket.socket(socket.AF_UNIX)
        self._caller.connect(warm)
        errors = 2 if stderr is None else stderr.fileno()
        socket.send_fds(self._caller, [b"f"], [source, sink, errors])
        os.close(source)
        os.close(sink)
        self.stdin, self.stdout = os.fdopen(into, "wb"), os.fdopen(told, "rb")
        self._caller.sendall(json.dumps(start).encode() + b"\n")
        self._answers = self._caller.makefile("r")
        self.pid = int(self._answers.readline())

    def kill(self) -> None:
        if not self._answers.closed:  # until then no other process has its number
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        if not self._answers.closed:
            self._answers.readline()
            self._answers.close()
            self._caller.close()


def run_warm(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    stdin: bytes | None,
    timeout: float,
    patched: Mapping[str, float] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """As `subprocess.run` of the program; raises TimeoutExpired after `timeout` seconds."""
    process = WarmProcess(arguments, folder, environment, stdin or b"", patched=patched)
    try:
        out, err = process.communicate(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(process.args, process.wait(), out, err)


def warm_command(path: Path) -> None:
    """Write an executable file that is the program, for what starts it by its name."""
    path.write_text(f"#!{sys.executable} -IS\nWARM = {warm()!r}\n{_COMMAND}")
    path.chmod(0o755)


_COMMAND = """
import json, os, socket, sys
start = {"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}
with socket.socket(socket.AF_UNIX) as caller:
    caller.connect(WARM)
    socket.send_fds(caller, [b"f"], [0, 1, 2])
    caller.sendall(json.dumps(start).encode() + b"\\n")
    answers = caller.makefile("r")
    answers.readline()
    sys.exit(int(answers.readline()))
"""


def _feed(sink: int, text: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(sink, "wb") as stream:
        stream.write(text)


_starting = threading.Lock()


def warm() -> str:
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
    for module in ("palimpsest.ops.mcp.server", "palimpsest.ops.kafka.application"):
        with contextlib.suppress(ImportError):  # an extra
            importlib.import_module(module)
    for share in (share_sessions, share_routes, share_tools):
        share()
    for load in (load_models, load_routes, load_tools, load_rules, load_messages, load_commands):
        load()
    # To make a store's tables takes longer than most commands run, too.
    sys.modules["palimpsest.stores.shard"]._empty_file("english")
    # Its thread is each fork's own. It would also warn of every fork.
    lance: Any = sys.modules["lancedb.background_loop"]
    lance._FORK_WARNED = True
    lance.LOOP.loop.call_soon_threadsafe(lance.LOOP.loop.stop)
    lance.LOOP.thread.join()
    lance.LOOP.loop.close()
    lance.LOOP._start = lambda: None  # which the fork does before it has closed what it inherits
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
    loop: Any = sys.modules["lancedb.background_loop"].LOOP
    del loop._start
    loop._start()
    os.chdir(start["folder"])
    os.environ.clear()
    os.environ.update(start["environment"])
    time.tzset()
    for name, value in start.get("patched", {}).items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(module), constant, value)
    sys.stdin, sys.stdout, sys.stderr = map(os.fdopen, range(3), "rww")
    address = sys.argv[1]
    fork_processes(lambda: address)
    program = sys.modules["__main__"] = sys.modules["palimpsest.ops.cli.main"]
    sys.argv = [str(program.__file__), *start["arguments"]]
    code = 1
    try:
        if start.get("code") is None:
            program.main()
        else:
            exec(compile(start["code"], "<string>", "exec"), {"__name__": "__main__"})
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
