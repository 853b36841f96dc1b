"""Processes that run SQL queries, a few at a time: they share no thread, memory or lock with this
process, and each is killed at its timeout."""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

import pyarrow as pa
from pyarrow import ipc

from palimpsest.ops.errors import RequestError, UnavailableError
from palimpsest.stores.database.query_process import IDLE_SECONDS
from palimpsest.stores.database.sql import QueryInvalid, QueryRefused, QueryTooLarge, QueryTooSlow
from palimpsest.stores.settings import StoreSettings

P = ParamSpec("P")
T = TypeVar("T")

PLACE_SECONDS: Final = 2.0
"""How long a query waits for a free slot."""
GRACE_SECONDS: Final = 1.0
"""Time that a process has, after the query's timeout, to end the query by itself."""
START_SECONDS: Final = 30.0
"""Time that a process has to start, which does not count as the query's time."""
MOST_QUERIES: Final = 100
"""Maximum number of queries of one process: memory that its libraries leak goes with it."""
RAISED: Final = {
    **{kind.__name__: kind for kind in (QueryRefused, QueryInvalid, QueryTooLarge, QueryTooSlow)},
    **{"CopyOutdated": UnavailableError, "StoreDamaged": RequestError},
}
"""Errors that a process reports by name."""


class QueryProcess:
    """One process. Methods block, and raise the error that refuses the query."""

    def __init__(self, memory_mib: int) -> None:
        program = "palimpsest.stores.database.query_process"
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, our own arguments
            [sys.executable, "-m", program, str(memory_mib)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is meant for the parent process
        )
        self._late = False
        self.answered = 0
        self.idle_since = time.monotonic()

    @property
    def is_there(self) -> bool:
        """Whether the process is still running."""
        assert self._process.stdout is not None
        return not select.select([self._process.stdout], [], [], 0.0)[0]

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self._process.wait()

    @contextlib.contextmanager
    def killed_after(self, seconds: float) -> Iterator[None]:
        """Kills the process if the block takes longer; raises QueryTooSlow then."""

        def late() -> None:
            self._late = True
            self.kill()

        timer = threading.Timer(seconds + GRACE_SECONDS, late)
        timer.daemon = True
        timer.start()
        try:
            yield
        except _GoneError:
            if self._late:
                raise QueryTooSlow(f"the query took longer than {seconds:g} s") from None
            raise QueryTooLarge(
                "the query ended its process: it needs more memory than it may have"
            ) from None
        finally:
            timer.cancel()

    def exchange(self, command: dict[str, Any], parts: Sequence[pa.Table] = ()) -> dict[str, Any]:
        """Sends a command and returns its reply, without its table. Raises OSError for a full
        disk."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(command).encode() + b"\n")
            for part in parts:
                with ipc.new_stream(stdin, part.schema) as stream:
                    stream.write_table(part)
            stdin.flush()
            line = stdout.readline()
        except (OSError, ValueError, pa.ArrowException):
            raise _GoneError from None
        if not line.endswith(b"\n"):
            raise _GoneError
        told: dict[str, Any] = json.loads(line)
        if "raised" in told:
            raise RAISED[told["raised"]](told["text"])
        if "errno" in told:
            raise OSError(told["errno"], told["text"])
        if "failed" in told:
            raise RuntimeError(f"a query in SQL failed with {told['failed']}")
        return told

    def table(self, command: dict[str, Any], parts: Sequence[pa.Table] = ()) -> pa.Table:
        self.exchange(command, parts)
        try:
            with ipc.open_stream(self._process.stdout) as stream:
                table = stream.read_all()
        except (OSError, ValueError, pa.ArrowException):
            raise _GoneError from None
        self.answered += 1
        return table


class _GoneError(Exception):
    """The process has ended."""


class QueryProcesses:
    """The configured number of processes, started when first needed. For one event loop; `close`
    may be called from any thread."""

    def __init__(self, settings: StoreSettings) -> None:
        self._memory_mib = settings.sql_memory_limit
        self._count = settings.sql_processes
        self._places = asyncio.Semaphore(self._count)
        self._shares: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(max(1, self._count - 1))
        )
        self._threads: ThreadPoolExecutor | None = None
        self._idle: list[QueryProcess] = []
        self._at_work: set[QueryProcess] = set()
        self._closed = False

    @contextlib.asynccontextmanager
    async def place(self, caller: str = "") -> AsyncIterator[None]:
        """Takes one of the slots for queries; a caller with a name leaves one slot to others.
        Raises UnavailableError if no slot becomes free."""
        async with contextlib.AsyncExitStack() as taken:
            try:
                async with asyncio.timeout(PLACE_SECONDS):
                    if caller:
                        await taken.enter_async_context(self._shares[caller])
                    await taken.enter_async_context(self._places)
            except TimeoutError:
                raise UnavailableError(
                    f"{self._count} queries may run at once, and all but one of the same token"
                    " (setting store.sql_processes); try again"
                ) from None
            yield

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a query's blocking work in a thread that only queries use."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._count, "sql")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: call(*args, **kwargs))

    @contextlib.asynccontextmanager
    async def process(self, seconds: float) -> AsyncIterator[QueryProcess]:
        """Yields a process for the block and kills it after `seconds`. Use it within `place`."""
        process = await self.in_thread(self._taken)
        self._at_work.add(process)
        usable = False
        try:
            with process.killed_after(seconds):
                yield process
            usable = True
        except QueryRefused as error:
            usable = type(error) in (QueryRefused, QueryInvalid)
            raise
        finally:
            self._at_work.discard(process)
            if usable and process.answered < MOST_QUERIES and not self._closed:
                process.idle_since = time.monotonic()
                self._idle.append(process)
            else:
                process.end()

    def _taken(self) -> QueryProcess:
        while self._idle:
            found = self._idle.pop()
            if found.is_there and time.monotonic() - found.idle_since < IDLE_SECONDS / 2:
                return found
            found.end()
        begun = QueryProcess(self._memory_mib)
        with begun.killed_after(START_SECONDS):
            begun.exchange({"do": "begin"})
        return begun

    def close(self) -> None:
        """Ends all processes, also busy ones."""
        self._closed = True
        for process in [*self._at_work]:
            process.kill()
        while self._idle:
            self._idle.pop().end()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
