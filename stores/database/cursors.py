"""Connections to files, and cursors to read a store with, which may be closed at any moment.

DuckDB may refuse to close a connection while one of its cursors is at work, or close it and let the
query go on without an owner; and it forgets an interrupt that comes just before a query begins. So
readers are counted, closing waits for them, and an interrupt is repeated until the query has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import duckdb

from palimpsest.stores.database.damage import StoreDamaged, is_damage
from palimpsest.stores.database.migrations import use_tables

AGAIN_SECONDS = 0.01
"""Interval between repeated interrupts."""


class Readable(Protocol):
    """A store that is read like this."""

    def reading(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]: ...


Reading = Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]]
"""A cursor of its own for the length of a block. Raises StoreClosed."""


def connected(
    path: Path | str, memory_mib: int, threads: int = 1, **config: str | int
) -> duckdb.DuckDBPyConnection:
    """Opens a database file. No query loads an extension, times are in UTC, and nothing is printed:
    in a process that another one started, DuckDB draws progress bars on the standard output."""
    given: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{memory_mib}MiB",
        "threads": threads,
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        **config,
    }
    connection = duckdb.connect(str(path), config=given)
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")
    return connection


def cursor_of(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """A cursor that names the tables without their schema, as the connection does."""
    cursor = connection.cursor()
    use_tables(cursor)
    return cursor


class StoreClosed(Exception):
    """The store was closed before it was read, or meanwhile."""

    def __init__(self) -> None:
        super().__init__(
            "the store was closed while it was read: the worker stops, or the partition moves to"
            " another one; try again"
        )


class Readers:
    """The present readers of one connection's database. Usable from any thread."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        self._at_work: list[duckdb.DuckDBPyConnection] = []
        self._closed = False
        self._paused = False
        self.count = 0
        """How many there were so far."""

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor of its own, also while a commit is under way; closed at the end of the block.

        Raises StoreClosed, within the block too where `end` did not wait for its query, and
        StoreDamaged for what the file does not hold any more.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._paused)
            if self._closed:
                raise StoreClosed
            cursor = cursor_of(self._connection)
            self._at_work.append(cursor)
            self.count += 1
        try:
            yield cursor
        except duckdb.InterruptException as error:
            if self._closed or self._paused:
                raise StoreClosed from error
            raise
        except duckdb.Error as error:
            if is_damage(error):
                raise StoreDamaged(error) from error
            raise
        finally:
            with self._changed:
                self._at_work = [other for other in self._at_work if other is not cursor]
                cursor.close()
                self._changed.notify_all()

    def end(self, patience: float) -> None:
        """Admits no new reader, and returns when no one reads; interrupts readers after `patience`
        seconds."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._until_idle(patience)

    @contextmanager
    def replacing(self, patience: float) -> Iterator[None]:
        """Excludes readers from the block; those who want to read wait for its end. Present readers
        are interrupted after `patience` seconds."""
        with self._changed:
            self._paused = True
            self._until_idle(patience)
        try:
            yield
        finally:
            with self._changed:
                self._paused = False
                self._changed.notify_all()

    @contextmanager
    def while_no_one_reads(self) -> Iterator[bool]:
        """Excludes readers from the block, if no one reads now; gives whether that is so."""
        with self._changed:
            is_free = not (self._at_work or self._closed or self._paused)
            self._paused |= is_free
        try:
            yield is_free
        finally:
            if is_free:
                with self._changed:
                    self._paused = False
                    self._changed.notify_all()

    def use(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Read by this connection from now on; within `replacing`."""
        self._connection = connection

    def _until_idle(self, patience: float) -> None:
        if self._changed.wait_for(lambda: not self._at_work, patience):
            return
        while self._at_work:
            for cursor in self._at_work:
                cursor.interrupt()
            self._changed.wait(AGAIN_SECONDS)


@contextmanager
def interrupted_after(
    seconds: float, connection: duckdb.DuckDBPyConnection
) -> Iterator[threading.Event]:
    """Interrupt what the connection runs within the block and after so many seconds; gives the
    event that tells that they have passed."""
    ended, late = threading.Event(), threading.Event()

    def watch() -> None:
        if ended.wait(seconds):
            return
        late.set()
        while not ended.is_set():
            connection.interrupt()
            ended.wait(AGAIN_SECONDS)

    watcher = threading.Thread(target=watch, name="query-limit", daemon=True)
    watcher.start()
    try:
        yield late
    finally:
        ended.set()
        watcher.join()  # the connection may be closed after this
