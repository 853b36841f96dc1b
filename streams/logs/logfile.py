"""The SQLite file of the embedded log: its tables, how it is opened, and its errors.

One table per topic, `"conversation-turns"` and so on; a record's `id` is its partition and offset
in one integer, so that a partition is contiguous and a read is one range of the primary key."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from palimpsest.schemas.topics import ALL_TOPICS, Topic
from palimpsest.streams.logs.base import LogError, LogFull, LogInUse
from palimpsest.streams.logs.file_lock import locked, opened

FILE_NAME: Final = "log.sqlite"
APPEND_LOCK_NAME: Final = "log.turn"
FORMAT: Final = 2
"""Since 2 values may be compressed; a file of format 1 can be read, and becomes 2 when it is first
written."""
BUSY_TIMEOUT_SECONDS: Final = 30.0
"""How long an append waits for the append of another process."""
OFFSET_BITS: Final = 40
"""A partition holds up to 2^40 records, a topic up to 2^23 partitions."""
PAGE_BYTES: Final = 8 * 1024
WAL_LIMIT_BYTES: Final = 64 * 1024 * 1024
_WAL_ATTEMPTS: Final = 10

_TABLES: Final = """
CREATE TABLE settings(
    name TEXT PRIMARY KEY, value INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE partitions(
    topic TEXT NOT NULL, partition INTEGER NOT NULL,
    next_offset INTEGER NOT NULL, last_timestamp INTEGER NOT NULL,
    PRIMARY KEY(topic, partition)
) WITHOUT ROWID;
CREATE TABLE positions(
    consumer TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    next_offset INTEGER NOT NULL,
    PRIMARY KEY(consumer, topic, partition)
) WITHOUT ROWID;
-- What compaction may remove: superseded records (since 0), null values (since their append).
CREATE TABLE dead(
    topic TEXT NOT NULL, id INTEGER NOT NULL, since INTEGER NOT NULL,
    PRIMARY KEY(topic, id)
) WITHOUT ROWID;
CREATE INDEX dead_by_age ON dead(topic, since, id)
"""

_FULL: Final = "the disk is full; make room. This was not written, all before it is kept"
_NO_ROOM: Final = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_WRITE", "SQLITE_NOMEM")
_ADVICE: Final = {
    "SQLITE_FULL": _FULL,
    "SQLITE_IOERR_SHMSIZE": _FULL,
    "SQLITE_IOERR": "the disk refused to read or write (full, over a limit, or failing);"
    " nothing was noted; make room or check the disk",
    "SQLITE_READONLY": "the file or its folder is read-only; make both writable",
    "SQLITE_PERM": "no permission; make the file and its folder writable for this user",
    "SQLITE_AUTH": "no permission; make the file and its folder writable for this user",
    "SQLITE_CANTOPEN": "the file cannot be opened; the folder must exist and this user may need"
    " the right to write to it (or copy the folder to where that is so)",
    "SQLITE_NOTADB": "the file is no log (or damaged at its start);"
    " restore it from a copy or use another data folder",
    "SQLITE_CORRUPT": "the file is damaged; restore it from a copy and run `palimpsest doctor`",
    "SQLITE_BUSY": f"another process kept the file locked for {BUSY_TIMEOUT_SECONDS:.0f} s;"
    " try again, and look for a process that hangs",
    "SQLITE_NOMEM": "out of memory",
}


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns SQLite's errors inside into a LogError with the path and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        kind = LogFull if _code(error).startswith(_NO_ROOM) else LogError
        raise kind(explain(error, path)) from error


def _code(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", None) or ""


def explain(error: sqlite3.Error, path: Path) -> str:
    """Returns one line for a person: the file, the remedy, and SQLite's own text."""
    code = _code(error)
    for prefix, advice in _ADVICE.items():
        if code.startswith(prefix):
            return f"log {path}: {advice} ({error}, {code})"
    return f"log {path}: {error}"


@contextlib.contextmanager
def transaction(
    connection: sqlite3.Connection, turn: contextlib.AbstractContextManager[None]
) -> Iterator[None]:
    """A transaction: all or nothing, durable when it ends. Rolls back on any error inside or in the
    commit.

    `turn` is held while waiting for other processes' transactions, not during this one."""
    if connection.in_transaction:  # an earlier rollback failed too, for lack of disk space
        connection.execute("ROLLBACK")
    with turn:
        connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise


def is_alone(path: Path) -> bool:
    """Returns whether no one has the log open, to write or to read. Leaves all of it in the one
    file. Raises LogError."""
    with explained(path), contextlib.closing(sqlite3.connect(path, isolation_level=None)) as found:
        found.execute("PRAGMA busy_timeout=0")
        try:
            # Refused while any other connection is open: each holds the file while it exists.
            found.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname.startswith("SQLITE_BUSY"):
                return False
            raise
        return True


def _use_wal(connection: sqlite3.Connection) -> None:
    # Changing the mode of a new file does not wait for a process that does the same: an empty
    # write transaction does, and afterwards the mode is set already.
    for attempt in range(_WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or attempt == _WAL_ATTEMPTS - 1:
                raise
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")


def prepare(connection: sqlite3.Connection, path: Path, partitions: int | None) -> int:
    """Creates missing tables; returns the file's partition count.

    Raises LogError if the file has another count or is of a newer program."""
    if _format(connection) < FORMAT or not _up_to_date(connection):
        with transaction(connection, contextlib.nullcontext()):
            if _format(connection) == 0:
                if partitions is None:
                    raise LogError(f"{path} is new: say how many partitions it shall have")
                for statement in _TABLES.split(";"):  # executescript would commit
                    connection.execute(statement)
                connection.execute("INSERT INTO settings VALUES ('partitions', ?)", (partitions,))
                connection.execute(f"PRAGMA user_version={FORMAT}")
            elif _format(connection) < FORMAT:
                connection.execute(f"PRAGMA user_version={FORMAT}")
            for topic in ALL_TOPICS:
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {table(topic)}(id INTEGER PRIMARY KEY,"
                    " timestamp INTEGER NOT NULL, key BLOB, value BLOB, headers TEXT)"
                )
                if topic.cleanup == "compact":
                    connection.execute(
                        f'CREATE INDEX IF NOT EXISTS "{topic.name}-by-key" ON {table(topic)}(key)'
                    )
                count = connection.execute("SELECT value FROM settings WHERE name='partitions'")
                connection.executemany(
                    "INSERT OR IGNORE INTO partitions VALUES (?, ?, 0, 0)",
                    [(topic.name, partition) for partition in range(count.fetchone()[0])],
                )
    return verify(connection, path, partitions)


def verify(connection: sqlite3.Connection, path: Path, partitions: int | None) -> int:
    """Returns the file's partition count. Raises LogError as `prepare` does, and for a missing
    log."""
    found = _format(connection)
    if found == 0:
        raise LogError(f"{path} holds no log yet; start `palimpsest run` or publish first")
    if found > FORMAT:
        raise LogError(
            f"{path} has format {found}, written by a newer program (this one knows {FORMAT});"
            " use that program"
        )
    stored = int(
        connection.execute("SELECT value FROM settings WHERE name='partitions'").fetchone()[0]
    )
    if partitions is not None and partitions != stored:
        raise LogError(
            f"{path} was made with {stored} partitions and cannot be used with {partitions}:"
            f" scopes would change their partition. Set log.partitions to {stored}, or deal the"
            f" log out anew with `palimpsest replay rebuild --shards {partitions} --swap`"
        )
    if not _up_to_date(connection):
        raise LogError(
            f"{path} is from before this program and lacks topics;"
            " start `palimpsest run` once to bring it up to date"
        )
    return stored


def _format(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _up_to_date(connection: sqlite3.Connection) -> bool:
    if _format(connection) == 0:
        return False
    known = {row[0] for row in connection.execute("SELECT DISTINCT topic FROM partitions")}
    return all(topic.name in known for topic in ALL_TOPICS)


def table(topic: Topic) -> str:
    """The topic's table, quoted. Topic names come from the code only, never from a user."""
    return f'"{topic.name}"'


def id_range(partition: int, offset: int = 0) -> tuple[int, int]:
    """Returns the ids of a partition from `offset` on: first and last, both included."""
    low = partition << OFFSET_BITS
    return low + offset, low + (1 << OFFSET_BITS) - 1


class Writer:
    """The connection that appends: one transaction at a time, from any thread."""

    def __init__(self, path: Path, partitions: int | None) -> None:
        """Creates a missing file. Raises LogError like `prepare`."""
        self.path = path
        self._lock = threading.Lock()
        self._appending = AppendLock(path.with_name(APPEND_LOCK_NAME))
        with contextlib.ExitStack() as undo, explained(path):
            undo.callback(self._appending.close)
            self._connection = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
            )
            undo.callback(self._connection.close)
            # For a file created now. Most records have half a kilobyte to three, of which pages of
            # 4 KiB leave a quarter unused.
            self._connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
            _use_wal(self._connection)
            # One fsync per commit.
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.execute(f"PRAGMA journal_size_limit={WAL_LIMIT_BYTES}")
            # Deleted content is overwritten: an erased text must not remain in free pages.
            self._connection.execute("PRAGMA secure_delete=ON")
            prepare(self._connection, path, partitions)
            undo.pop_all()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """See `transaction` of this module. Raises LogError."""
        with (
            self._lock,
            explained(self.path),
            transaction(self._connection, self._appending.held()),
        ):
            yield self._connection

    def empty_wal(self) -> bool:
        """Moves the whole WAL into the file and empties it. Returns whether that was possible,
        which a reader may prevent."""
        with self._lock, explained(self.path):
            found = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not found[0]

    def close(self) -> None:
        """Waits for the current transaction. A second call does nothing."""
        with self._lock:
            self._connection.close()
            self._appending.close()


class Reader:
    """A read-only connection, usable from any thread, that follows the appends of others."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._generation = 0
        self._connection, self._immutable = _connect_reader(path)

    @contextlib.contextmanager
    def query(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[sqlite3.Cursor]:
        """The rows of `sql`, fetched as they are iterated. Raises LogError."""
        with self._lock, explained(self.path):
            cursor = self._current().execute(sql, tuple(parameters))
            try:
                yield cursor
            finally:
                cursor.close()  # a half-read cursor would hold back the checkpoints

    def version(self) -> tuple[int, int]:
        """A value that changes after every commit of any other connection or process."""
        with self.query("PRAGMA data_version") as rows:
            return self._generation, int(rows.fetchone()[0])

    def verify(self, partitions: int | None) -> int:
        """See `verify` of this module."""
        with self._lock, explained(self.path):
            return verify(self._current(), self.path, partitions)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _current(self) -> sqlite3.Connection:
        if self._immutable and _has_wal(self.path):
            # A writer (another user, who may write) has begun: its records are in the WAL.
            self._connection.close()
            self._connection, self._immutable = _connect_reader(self.path)
            self._generation += 1
        return self._connection


def _connect_reader(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Returns a connection, and whether it treats the file as immutable."""
    if not path.exists():
        raise LogError(
            f"there is no log at {path}; check the data folder, or start `palimpsest run`"
        )
    with explained(path):
        try:
            return _open_uri(path, "mode=ro"), False
        except sqlite3.OperationalError:
            # SQLite tries to create its shared-memory file, which fails in a read-only folder or on
            # a full disk. With an empty WAL the file is complete and no one writes it.
            if _has_wal(path):
                raise
            return _open_uri(path, "mode=ro&immutable=1"), True


def _open_uri(path: Path, options: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{options}",
        uri=True,
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _has_wal(path: Path) -> bool:
    wal = path.with_name(path.name + "-wal")
    return wal.exists() and wal.stat().st_size > 0


# --- locks: one process at a time -----------------------------------------------------------------

# OS locks on files in the log's folder. The kernel releases a lock when its holder ends, however it
# ends, so a lock never has to be removed by hand; the files stay and only name the holder.

LOCK_NAME: Final = "log.lock"
APPEND_TIMEOUT_SECONDS: Final = 30.0
"""How long an append waits for the appends of other processes."""
_APPEND_POLL_SECONDS: Final = 0.001


class LogLock:
    """The right to process the log of a folder; held from `acquire` to `release`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, path: Path, since: datetime) -> LogLock:
        """Takes the lock at once, never waiting.

        Raises LogError naming the holder's process id if another process (or another open log of
        this one) has it, and if the file cannot be written."""
        descriptor = locked(path, _open)
        if descriptor is None:
            raise LogInUse(
                f"the log in {path.parent} is being processed by {holder(path)};"
                " stop that process first, or only publish to the log or read it"
            )
        tag = json.dumps({"pid": os.getpid(), "since": since.isoformat(timespec="seconds")})
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, tag.encode(), 0)
        except OSError as error:
            os.close(descriptor)
            raise LogError(f"cannot write the lock file {path}: {error.strerror}") from error
        return cls(path, descriptor)

    def release(self) -> None:
        """Releases the lock; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def holder(path: Path) -> str:
    """Returns who signed the lock file, as text for a person: process id and start time."""
    try:
        tag = json.loads(path.read_text())
        return f"process {int(tag['pid'])}, since {tag['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        # The holder has the lock but has not signed yet.
        return "another process"


class AppendLock:
    """Lets the appending processes begin one after another.

    Without it a process that appends without a pause starves the others: SQLite's busy wait sleeps
    up to 100 ms between attempts, while the file is free for parts of a millisecond."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = _open(path)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Held while the context lasts. Raises LogError when another process keeps it too long."""
        deadline = time.monotonic() + APPEND_TIMEOUT_SECONDS
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LogError(
                        f"another process kept {self.path} locked for"
                        f" {APPEND_TIMEOUT_SECONDS:.0f} s; look for a process that hangs"
                    ) from None
                time.sleep(_APPEND_POLL_SECONDS)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _open(path: Path) -> int:
    try:
        return opened(path)
    except OSError as error:
        raise LogError(
            f"cannot write the lock file {path}: {error.strerror};"
            " make the folder writable or open the log for reading only"
        ) from error
