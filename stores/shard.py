"""One partition's stores: opened, migrated, locked against a second owner, and closed.

A shard folder holds `memory.duckdb` (rows, full text, graph, history, the runner's cursors) and
`vectors.lance` (LanceDB, derived). Exactly one process has it open.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import NamedTuple

import duckdb
import pyarrow as pa

from palimpsest.stores.database.archive import (
    FOLDER,
    files_of,
    missing_files,
    remove_unnamed,
    states_query,
    take_rewritten,
    write_purged,
)
from palimpsest.stores.database.cursors import connected
from palimpsest.stores.database.damage import REBUILD, StoreDamaged
from palimpsest.stores.database.durable_files import write_whole
from palimpsest.stores.database.migrations import migrate
from palimpsest.stores.database.snapshot import (
    SMALL,
    SUFFIX,
    Rows,
    bring_up_to_date,
    discard_half,
    rewrite,
    rows_written,
    take_written,
    write_again,
)
from palimpsest.stores.database.sql import MATCH_BM25, install_terms
from palimpsest.stores.database.tables import Tables
from palimpsest.stores.database.view_columns import quoted
from palimpsest.stores.database.views import install_views
from palimpsest.stores.index.language import index_again, keep_language, language_of
from palimpsest.stores.lock import FolderLock
from palimpsest.stores.settings import SearchSettings, ShardOptions
from palimpsest.stores.state import ShardState
from palimpsest.stores.writing.unit_of_work import UnitOfWork

logger = logging.getLogger(__name__)

DATABASE_FILE = "memory.duckdb"
VECTORS_FOLDER = "vectors.lance"
NO_ROOM = (
    *(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE)),
    *("failed to allocate", "could not allocate", "failed to pin block"),
)
"""The database's messages for a failed write or lack of memory, including those of a failed
commit."""
COMPACTED_BYTES = range(2 * 1024 * 1024, 64 * 1024 * 1024)
"""Sizes in use of a file that is compacted when it is closed: this takes a second for 30 MB, so
that a stop takes no more than two."""
FREE_SHARE = 0.25
"""The minimum share of free blocks of a file that is compacted."""
GROWTH = 1.25
"""The minimum growth of the used size since the last compaction: this keeps the cost of one more
memory independent of the size."""
COMPACTED = "compacted_bytes"
RESTING_MIB = 16
"""What the database of a store at rest keeps."""
READERS_SECONDS = 2.0
"""The time that queries get to end when the shard is closed: most take milliseconds."""


class AsOf(NamedTuple):
    """What the state of a store counted when its file was written again."""

    written: int
    late_in_graph: int
    spaces: frozenset[str] = frozenset()
    """The vector spaces whose copies were written again, too."""
    rows: Mapping[str, Rows] = MappingProxyType({})
    """What is in the file by table, as far as that was read."""


class StoreError(Exception):
    """A store that cannot be used; the text says what is wrong and how to fix it."""


class Shard(ShardState):
    """An open shard."""

    def __init__(self, folder: Path, options: ShardOptions) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder_lock = FolderLock(folder, "shard")
        try:
            connection, self.migrated = _ready(folder / DATABASE_FILE, options)
        except duckdb.Error as error:
            self._folder_lock.release()
            raise StoreError(
                f"the store {folder} cannot be brought up to date: {error}\nIf its file is damaged,"
                f" {REBUILD}."
            ) from error
        except BaseException:
            self._folder_lock.release()
            raise
        remove_unnamed(folder, files_of(connection))
        try:
            language = language_of(connection, options.search.language)
            self.is_analysed_otherwise = language != options.search.language
            super().__init__(connection, folder, _in_language(options, language))
        except (duckdb.Error, StoreDamaged) as error:
            connection.close()
            self._folder_lock.release()
            raise StoreError(f"cannot read the store {folder}: {error}; {REBUILD}") from error

    def close(self) -> None:
        """Checkpoints and closes; another process may then open the folder. A file with many free
        blocks is rewritten without them.

        Waits for readers and writers. Interrupts readers after `READERS_SECONDS`; they, and all
        later ones, get StoreClosed."""
        for table in self._vector_tables.values():
            table.close()
        self.readers.end(READERS_SECONDS)
        try:
            grown = self._is_worth_compacting()
            self._connection.close()
            if grown:
                path = self.folder / DATABASE_FILE
                try:
                    rewrite(path, _empty_file(self.options.search.language))
                    connection, _ = _ready(path, self.options)  # whose views may be others
                    connection.close()
                except (duckdb.Error, OSError, StoreError) as error:
                    # Without room for another file the closed one stays unchanged.
                    logger.info("the store %s is not compacted: %s", self.folder, error)
                    discard_half(path)
        finally:
            self._folder_lock.release()

    def _is_worth_compacting(self) -> bool:
        """Returns whether much of the file is free, and its used size has grown since it was
        compacted.

        A checkpoint writes a table's newest 122,880 rows again, if others are free, with all their
        wide columns: the file of a growing store is twice as large as its content."""
        try:
            files = self.folder.glob(f"{DATABASE_FILE}*")
            if sum(file.stat().st_size for file in files) < COMPACTED_BYTES.start:
                return False  # closing it is then the only checkpoint, and none if nothing changed
            self._connection.execute("FORCE CHECKPOINT")
            used, free = self._connection.execute(
                "SELECT used_blocks * block_size, free_blocks * block_size"
                " FROM pragma_database_size() WHERE database_name = current_database()"
            ).fetchall()[0]
            before = int(self.state(COMPACTED) or 0)
            grown = used in COMPACTED_BYTES and used > GROWTH * before
            if not grown or free < FREE_SHARE * (used + free):
                return False
            self.set_state(COMPACTED, str(used))
        except (duckdb.Error, OSError) as error:
            logger.info("the store %s is closed as it is: %s", self.folder, error)
            return False
        return True

    def index_in(self, language: str) -> int:
        """Analyses the full text in this language, which questions are analysed in from then on.
        Returns how many memories there are. Right after opening. Blocks. Raises StoreError."""
        try:
            count = index_again(self._connection, self.tables, language)
            self._connection.remove_function("bm25_terms")
            install_terms(self._connection, language)
        except duckdb.Error as error:
            raise StoreError(f"cannot index {self.folder} in {language}: {error}") from error
        super().__init__(self._connection, self.folder, _in_language(self.options, language))
        self.is_analysed_otherwise = False
        return count

    def copy_file(self, path: Path) -> None:
        """Copies the store's present file to another one. Under `lock`; blocks. Raises duckdb.Error
        and OSError."""
        with self.writing() as connection:
            connection.execute("FORCE CHECKPOINT")
        shutil.copyfile(self.folder / DATABASE_FILE, path)

    def rewrite(self) -> None:
        """Rewrites the store's files, so that no byte remains of what was erased from its tables.
        Under `lock`. Blocks. Raises what its two steps raise."""
        self.take_written(self.write_again())

    def write_again(self, beside: bool = False) -> AsOf:
        """Writes the store's file again, beside the present one; the store may be read and written
        meanwhile. If it is (`beside`), also the files of vectors, and reads what it wrote: this
        shortens `take_written`. Blocks. Raises StoreClosed, StoreError, OSError and
        duckdb.Error."""
        tables = dict(self._vector_tables) if beside else {}
        for table in tables.values():
            table.write_again()
        as_of = AsOf(self.written, self.late_in_graph, frozenset(tables))
        path = self.folder / DATABASE_FILE
        with self.reading() as reader:
            write_again(reader, path, _empty_file(self.options.search.language))
        if beside:
            # As whoever opens it does: it is given the views then, too.
            target, _ = _ready(path.with_name(path.name + SUFFIX), self.options)
            with target:
                as_of = as_of._replace(rows=rows_written(target))
        return as_of

    def take_written(self, as_of: AsOf) -> None:
        """Puts the file that was written again, with what was stored since, in the place of the
        present one, and removes all other files that hold what was erased. Under `lock`, readers
        wait for the exchange. Blocks. Raises StoreError, OSError and duckdb.Error; unless the
        process ends, the old file is then still there and in use."""
        if as_of.late_in_graph != self.late_in_graph:
            # The new file would have in freed bytes what the graph has lost since.
            self.write_again()
        elif as_of.written != self.written:
            with self.reading() as reader:
                bring_up_to_date(reader, self.folder / DATABASE_FILE, as_of.rows)
        path = self.folder / DATABASE_FILE
        with suppress(duckdb.Error):  # leaves less to do while readers wait
            self._connection.execute("CHECKPOINT")
        with self.readers.replacing(READERS_SECONDS):
            self._connection.execute("FORCE CHECKPOINT")
            self._connection.close()
            try:
                take_written(path)
            finally:
                connection, _ = _ready(path, self.options)
                self._connection = connection
                self.tables = Tables(connection)
                self.readers.use(connection)
            purged = write_purged(connection, self.folder)
            if purged is not None:
                connection.execute("BEGIN")
                take_rewritten(connection, self.folder, purged)
                connection.execute("COMMIT")
            remove_unnamed(self.folder, files_of(connection))
        kept = set()
        for space, table in [*self._vector_tables.items()]:
            if space in as_of.spaces:
                kept.add(table.folder)
            else:
                table.remove()
        for left in {*(self.folder / VECTORS_FOLDER).glob("*")} - kept:
            shutil.rmtree(left, ignore_errors=True)

    def rest(self) -> bool:
        """Gives back the memory in which the database keeps what it read of its file, unless
        someone reads now; returns whether it did. Under `lock`. Blocks for milliseconds."""
        with self.readers.while_no_one_reads() as is_free:
            if is_free:
                for limit in (RESTING_MIB, self.options.store.memory_limit):
                    with suppress(duckdb.OutOfMemoryException):
                        self._connection.execute(f"SET GLOBAL memory_limit = '{limit}MiB'")
        return is_free

    def unit(self, space: str = "") -> UnitOfWork:
        """Returns a new unit of work that searches this vector space (see `space_named`); use it
        under `lock` from its first read that a write depends on."""
        return UnitOfWork(self, space)

    def refuses_data(self, error: Exception) -> bool:
        """Returns whether an error is about the values to store, not about the store."""
        return isinstance(
            error,
            duckdb.DataError
            | duckdb.IntegrityError
            | duckdb.InvalidInputException
            | pa.ArrowInvalid
            | pa.ArrowTypeError,
        ) and not isinstance(error, duckdb.OperationalError)

    def lacks_room(self, error: Exception) -> bool:
        """Returns whether an error is a lack of memory or of disk space."""
        if isinstance(error, duckdb.OutOfMemoryException):
            return True
        text = str(error)
        is_storage_error = isinstance(error, duckdb.IOException | duckdb.TransactionException)
        return is_storage_error and any(each in text for each in NO_ROOM)


def _ready(path: Path, options: ShardOptions) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    """The open database, up to date, and the migrations that this took."""
    if not path.exists() and not path.with_name(f"{path.name}.wal").exists():
        write_whole(path, _empty_file(options.search.language))
    return _up_to_date(path, options)


@cache
def _empty_file(language: str) -> bytes:
    """Returns the file of an empty store: writing it takes a fifth of the time of creating the
    tables."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / DATABASE_FILE
        connection, _ = _up_to_date(
            path, ShardOptions("", 0, search=SearchSettings(language=language))
        )
        connection.close()
        return path.read_bytes()


def _up_to_date(path: Path, options: ShardOptions) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    connection = _connect(path, options)
    migrated = migrate(connection)
    wanted = options.search.language
    language = language_of(connection, wanted)
    if language == wanted:
        keep_language(connection, wanted)
    install_terms(connection, language or wanted)
    files = files_of(connection)
    missing = missing_files(path.parent, files)
    if missing:
        connection.close()
        raise StoreError(
            f"the store {path.parent} lacks files of its archive: {', '.join(missing)}; put them"
            f" back into {path.parent / FOLDER}, or {REBUILD}"
        )
    install_views(connection, MATCH_BM25, states_query(path.parent, files))
    return connection, migrated


def _in_language(options: ShardOptions, language: str | None) -> ShardOptions:
    if language in (None, options.search.language):
        return options
    search = options.search.model_copy(update={"language": language})
    return replace(options, search=search)


def _connect(path: Path, options: ShardOptions) -> duckdb.DuckDBPyConnection:
    try:
        connection = connected(
            path,
            options.store.memory_limit,
            options.store.threads,
            # It else keeps the memory of its largest query so far.
            allocator_flush_threshold="1MB",
            allocator_bulk_deallocation_flush_threshold="1MB",
            **SMALL,
        )
        # Its own files of archived states, and no others.
        own = quoted(f"{(path.parent / FOLDER).absolute()}/")
        connection.execute(f"SET GLOBAL allowed_directories = [{own}]")
        connection.execute("SET GLOBAL enable_external_access = false")
    except duckdb.Error as error:
        raise StoreError(
            f"cannot open the store {path}: {error}\nIf it is open in another program, close it"
            f" there; if the file is damaged, {REBUILD}."
        ) from error
    return connection
