"""SQL queries over copies of the stores of one partition or of all.

A query never touches the store that the stages write: it runs in a separate process
(`sql_processes`), which first copies the store's file. Commits wait only for the last, small part
of the copy, which this process makes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from palimpsest.ops.errors import (
    RequestError,
    SqlInvalidError,
    SqlRefusedError,
    SqlTooLargeError,
    SqlTooSlowError,
    UnavailableError,
)
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.sql.processes import QueryProcess, QueryProcesses
from palimpsest.stores.database.balance import progress_of
from palimpsest.stores.database.query_process import complete
from palimpsest.stores.database.sql import (
    AS_OF_NOW,
    MAX_CHARACTERS,
    QueryInvalid,
    QueryLimits,
    QueryRefused,
    QueryTooLarge,
    QueryTooSlow,
)
from palimpsest.stores.shard import DATABASE_FILE, Shard
from palimpsest.streams.in_flight import items_in_flight

MAX_SECONDS = 3600.0
MAX_ROWS = 10_000_000
LEAST_SECONDS = 0.001
COPY_TRIES: Final = 3
"""Attempts to copy a file between two checkpoints; in the last one commits wait for the copy."""
NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES}
_KINDS = {QueryInvalid: SqlInvalidError, QueryTooLarge: SqlTooLargeError}


async def sql(sources: Sources, request: SqlRequest) -> pa.Table:
    """Runs the request's query and returns its result. Raises RequestError."""
    limits = limits_of(request)
    number = numbered(request, sources.partitions)
    if len(request.query) > MAX_CHARACTERS:
        raise SqlRefusedError(f"a query may have {MAX_CHARACTERS} characters")
    numbers = range(sources.partitions) if number is None else [number]
    shards = {each: sources.shard(each) for each in numbers}
    with refusals_told(limits.seconds):
        async with (
            sources.sql.place(request.caller),
            sources.sql.process(limits.seconds) as process,
        ):
            deadline = time.monotonic() + limits.seconds
            async with _copied(sources, process, shards, request.query) as copies:
                command = {
                    "do": "query",
                    "query": request.query,
                    "rows": limits.rows,
                    "seconds": rest(limits, deadline).seconds,
                    "all": number is None,
                    "copies": copies,
                    "language": sources.settings.search.language,
                }
                return await sources.sql.in_thread(process.table, command)


async def joined(
    processes: QueryProcesses, request: SqlRequest, parts: Sequence[pa.Table], limits: QueryLimits
) -> pa.Table:
    """Runs a request's query over the parts of all partitions. Raises RequestError."""
    command = {
        "do": "join",
        "query": request.query,
        "rows": limits.rows,
        "seconds": limits.seconds,
        "parts": len(parts),
    }
    with refusals_told(limits.seconds):
        async with processes.place(request.caller), processes.process(limits.seconds) as process:
            return await processes.in_thread(process.table, command, parts)


def numbered(request: SqlRequest, partitions: int) -> int | None:
    """Returns the partition to query, None for all. Raises RequestError if it does not exist."""
    number = 0 if request.partition is None and partitions == 1 else request.partition
    if number is not None and not 0 <= number < partitions:
        raise RequestError(f"there is no partition {number}; there are {partitions}")
    return number


def limits_of(request: SqlRequest) -> QueryLimits:
    """Returns the limits of a request. Raises RequestError for limits out of range."""
    if not 0 < request.seconds <= MAX_SECONDS:
        raise RequestError(f"a query may take up to {MAX_SECONDS:g} seconds, not {request.seconds}")
    if not 0 < request.rows <= MAX_ROWS:
        raise RequestError(f"a query may return up to {MAX_ROWS} rows, not {request.rows}")
    return QueryLimits(request.seconds, request.rows)


def rest(limits: QueryLimits, deadline: float) -> QueryLimits:
    """Returns the limits with the remaining time."""
    return replace(limits, seconds=max(LEAST_SECONDS, deadline - time.monotonic()))


@contextlib.contextmanager
def refusals_told(seconds: float) -> Iterator[None]:
    """Turns a refused query into the matching RequestError; `seconds` is the query's timeout."""
    try:
        yield
    except QueryTooSlow as error:
        raise SqlTooSlowError(f"the query took longer than {seconds:g} s") from error
    except QueryRefused as error:
        raise _KINDS.get(type(error), SqlRefusedError)(str(error)) from error


# ---- copies ----
# The process that uses a folder of copies holds its lock, so a free lock identifies the folder of
# a killed process.
PREFIX: Final = "sql-"
"""Prefix of folders in a data folder."""
TEMPORARY_PREFIX: Final = "palimpsest-sql-"
"""Prefix of folders in the system's temporary folder, which other programs share."""


class CopyFolder:
    """A new folder in the data folder, or for None in the system's temporary folder, until
    `cleanup`. Raises OSError."""

    def __init__(self, data_dir: Path | None) -> None:
        while True:
            prefix = TEMPORARY_PREFIX if data_dir is None else PREFIX
            self._folder = tempfile.TemporaryDirectory(prefix=prefix, dir=data_dir)
            self.path = Path(self._folder.name)
            with contextlib.suppress(FileNotFoundError):
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                _lock(self._lock)
                if self.path.exists():
                    return
                os.close(self._lock)  # another process removed it before it was locked

    def cleanup(self) -> None:
        self._folder.cleanup()
        os.close(self._lock)


def remove_abandoned(data_dir: Path) -> None:
    """Removes the folders of processes that have ended."""
    temporary = Path(tempfile.gettempdir()).glob(f"{TEMPORARY_PREFIX}*")
    for folder in (*data_dir.glob(f"{PREFIX}*"), *temporary):
        with contextlib.suppress(OSError):
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(held).st_uid == os.getuid() and _lock(held):
                    shutil.rmtree(folder)
            finally:
                os.close(held)


def _lock(descriptor: int) -> bool:
    """Takes the lock; returns whether it was free. On a file system without locks none is."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextlib.asynccontextmanager
async def _copied(
    sources: Sources, process: QueryProcess, shards: dict[int, Shard], query: str
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yields a copy of each store for the block: in the data folder, where copies can share blocks
    with the stores, or in the system's temporary folder if the disk is full. Raises
    UnavailableError if that is full, too."""
    for folder in (sources.settings.data_dir, None):
        made = None
        try:
            made = CopyFolder(folder)
            copies = [
                await _copy(sources, process, number, shard, made.path, query)
                for number, shard in shards.items()
            ]
        except OSError as error:
            if made is not None:
                made.cleanup()
            if error.errno not in NO_ROOM:
                raise
            continue
        except BaseException:
            if made is not None:
                made.cleanup()
            raise
        try:
            yield copies
        finally:
            await sources.sql.in_thread(made.cleanup)
        return
    raise UnavailableError("there is no room on the disk for a copy of the store, which SQL reads")


async def _copy(
    sources: Sources, process: QueryProcess, number: int, shard: Shard, folder: Path, query: str
) -> dict[str, Any]:
    source, target = shard.folder / DATABASE_FILE, folder / str(number) / DATABASE_FILE
    target.parent.mkdir()
    place = {"from": str(source.absolute()), "to": str(target.absolute())}
    whole, tries = False, 0
    while not whole:
        tries += 1
        seen = await sources.sql.in_thread(_first, shard, process, place)
        async with shard.lock:
            last = partial(complete, source, target, seen, tries == COPY_TRIES)
            whole, known = await sources.sql.in_thread(_last, shard, last)
    items: list[dict[str, Any]] = []
    if any(view in query.lower() for view in AS_OF_NOW):
        find = partial(items_in_flight, sources.log, number, sources.admit)
        items = await sources.sql.in_thread(lambda: [asdict(each) for each in find(*known)])
    own = str(shard.folder.absolute())
    return {"partition": number, "path": place["to"], "shard": own, "items": items}


def _first(shard: Shard, process: QueryProcess, place: dict[str, str]) -> list[int]:
    with shard.reading():  # so that the file is not replaced meanwhile
        seen: list[int] = process.exchange({**place, "do": "copy"})["seen"]
        return seen


def _last(
    shard: Shard, completed: Callable[[], bool]
) -> tuple[bool, tuple[dict[tuple[str, str], int], list[tuple[str, bytes]]]]:
    """Returns whether the copy is whole, and the progress of the stages. Call it under the store's
    lock."""
    with shard.reading() as reader:
        return completed(), progress_of(reader)
