"""The process in which queries of analysts run: over copies of stores that it makes itself, with a
limit of memory that the kernel keeps, at a low priority, and to be killed at any moment.

It takes a line of JSON at a time from standard input and answers each on standard output: `begin`
tells that it is there, `copy` makes the first step of a copy, `query` is the query over the copies,
`join` one over what partitions of other processes gave, which follows as Arrow streams. An answer
with a result is followed by it as an Arrow stream.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import select
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final

import duckdb
import pyarrow as pa
from pyarrow import ipc

from palimpsest.stores.database.archive import files_of, paths_of
from palimpsest.stores.database.cursors import connected, cursor_of
from palimpsest.stores.database.damage import StoreDamaged, is_damage
from palimpsest.stores.database.sql import (
    QueryLimits,
    QueryRefused,
    UnitedQuery,
    install_terms,
    read_only_query,
)
from palimpsest.stores.database.view_columns import quoted
from palimpsest.streams.store_port import LogItem

MIB: Final = 2**20
IDLE_SECONDS: Final = 60.0
"""Idle time after which the process ends."""
NICE: Final = 10
STATUS: Final = Path("/proc/self/status")
PART_BYTES: Final = 64 * MIB
LEAST_SECONDS: Final = 0.001
NOT_BY_THE_KERNEL: Final = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
RESULT_MIB: Final = 512
"""Memory in addition to the database's own: for the result, and for libraries."""

Command = dict[str, Any]


class Copy:
    """A store's copy as `read_only_query` reads a store."""

    def __init__(self, path: Path, shard: Path, memory_mib: int, language: str) -> None:
        """`shard` is the folder of the store that it is a copy of: that of its archive's files."""
        self._connection = connected(
            path,
            memory_mib,
            access_mode="READ_ONLY",
            temp_directory=str(path.parent / "spilled"),
            max_temp_directory_size=f"{memory_mib}MiB",
        )
        self._archive = paths_of(shard, files_of(self._connection))
        allowed = ", ".join(map(quoted, self._archive))
        self._connection.execute(f"SET GLOBAL allowed_paths = [{allowed}]")
        # After the folder of what is spilled was named, which it else forbids.
        self._connection.execute("SET enable_external_access = false")
        install_terms(self._connection, language)
        # What was read of it stays readable; nothing is left if the machine stops now.
        for each in (path, _wal(path)):
            each.unlink(missing_ok=True)

    @contextlib.contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        cursor = cursor_of(self._connection)
        try:
            yield cursor
        finally:
            cursor.close()

    @property
    def is_outdated(self) -> bool:
        """Whether files have gone that it was to read, as when something was erased meanwhile."""
        return not all(map(os.path.exists, self._archive))

    def close(self) -> None:
        self._connection.close()


class CopyOutdated(Exception):
    """The copy cannot be read any more; another one can."""


def main() -> None:
    memory_mib = int(sys.argv[1])
    os.nice(NICE)
    # Output printed by a library must not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    source = sys.stdin.buffer
    # End at once, in the middle of a query too, when nobody holds the other end any more: a process
    # that was killed cannot tell this one. A pipe does it on every system.
    closed = select.poll()
    closed.register(source, 0)  # what is never left out: that the other end was closed

    def watch() -> None:
        closed.poll()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    most = None
    if STATUS.exists():  # else the kernel does not tell what is used
        # All memory that is not a file's: the database does not count each of its own.
        most = _data_bytes() + (memory_mib + RESULT_MIB) * MIB
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    while select.select([source], [], [], IDLE_SECONDS)[0]:
        line = source.readline()
        if not line:
            break
        _answer(json.loads(line), source, answers, memory_mib)
        if most is not None and _data_bytes() > most - memory_mib * MIB:
            break  # the allocators keep too much of this query's memory for another one
    os._exit(0)  # there is nothing to clean up


def _data_bytes() -> int:
    lines = STATUS.read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))


def _answer(command: Command, source: BinaryIO, answers: BinaryIO, memory_mib: int) -> None:
    table: pa.Table | None = None
    try:
        reply: Command = {}
        if command["do"] == "copy":
            reply = {"seen": copy(Path(command["from"]), Path(command["to"]))}
        elif command["do"] != "begin":
            table = _table(command, source, memory_mib)
            reply = {"table": True}
    except (QueryRefused, CopyOutdated, StoreDamaged) as error:
        reply = {"raised": type(error).__name__, "text": str(error)}
    except OSError as error:
        reply = {"errno": error.errno, "text": os.strerror(error.errno or errno.EIO)}
    except MemoryError:
        reply = {"raised": "QueryTooLarge", "text": "the query needs more memory than it may have"}
    except Exception as error:
        # Without the message, which may quote a person.
        sys.stderr.write("".join(traceback.format_tb(error.__traceback__)))
        reply = {"failed": type(error).__name__}
    answers.write(json.dumps(reply).encode() + b"\n")
    if table is not None:
        with ipc.new_stream(answers, table.schema) as stream:
            stream.write_table(table)
    answers.flush()


# --- copies -----------------------------------------------------------------------------------


def copy(source: Path, target: Path) -> list[int]:
    """The file as it is; what tells whether it was written meanwhile. Its blocks change by
    checkpoints only, so that most copies need no one to wait."""
    seen = _seen(source)
    _copy_bytes(source, target)
    return seen


def complete(source: Path, target: Path, seen: list[int], must: bool) -> bool:
    """While nothing is committed: the write-ahead log, to a copy of the file as it still is. False
    where the file was written meanwhile; with `must` it is then copied again. It is called by the
    process that holds the store's lock: one of low priority would keep it for long."""
    if _seen(source) != seen:
        if not must:
            return False
        _copy_bytes(source, target)
    with contextlib.suppress(FileNotFoundError):
        _copy_bytes(_wal(source), _wal(target))
    return True


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}.wal")


def _seen(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_ino, found.st_mtime_ns, found.st_size]


def _copy_bytes(source: Path, target: Path) -> None:
    """By the kernel, which shares the blocks where the file system can."""
    try:
        with source.open("rb") as given, target.open("wb") as made:
            while os.copy_file_range(given.fileno(), made.fileno(), PART_BYTES):
                pass
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in NOT_BY_THE_KERNEL:
            raise
        shutil.copyfile(source, target)


# --- queries ----------------------------------------------------------------------------------


def _table(command: Command, source: BinaryIO, memory_mib: int) -> pa.Table:
    limits = QueryLimits(command["seconds"], command["rows"])
    if command["do"] == "join":
        parts = [ipc.open_stream(source).read_all() for _ in range(command["parts"])]
        with UnitedQuery(command["query"], memory_mib) as united:
            return united.answer(parts, limits)
    return _over_copies(command, limits, memory_mib)


def _over_copies(command: Command, limits: QueryLimits, memory_mib: int) -> pa.Table:
    query, copies = command["query"], command["copies"]
    deadline = time.monotonic() + limits.seconds

    def of_one(number: int, part: str) -> pa.Table:
        given = copies[number]
        items = [LogItem(**item) for item in given["items"]]
        rest = max(LEAST_SECONDS, deadline - time.monotonic())
        within = replace(limits, seconds=rest) if part is not query else limits
        folder, shard = Path(given["path"]), Path(given["shard"])
        try:
            made = Copy(folder, shard, memory_mib, command["language"])
        except duckdb.Error as error:
            if is_damage(error):
                raise StoreDamaged(error) from error
            raise
        with contextlib.closing(made) as store:
            try:
                return read_only_query(store, lambda *_: items, part, within, given["partition"])
            except (QueryRefused, StoreDamaged) as error:
                if store.is_outdated:
                    raise CopyOutdated(
                        "something was erased while the query ran; try again"
                    ) from error
                raise

    if not command["all"]:
        return of_one(0, query)
    with UnitedQuery(query, memory_mib) as united:
        if united.part is None:
            return of_one(0, query)
        parts = [of_one(number, united.part) for number in range(len(copies))]
        rest = max(LEAST_SECONDS, deadline - time.monotonic())
        return united.answer(parts, replace(limits, seconds=rest))


if __name__ == "__main__":
    main()
