"""One partition's stores: opened, migrated, locked against a second owner, and committed to.

A shard folder holds `memory.duckdb` (rows, full text, graph, history, the runner's cursors) and
`vectors.lance` (LanceDB, derived). Exactly one process has it open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.rows import FlagsRow
from stores.hashes import KnownKeys
from stores.index_cache import IndexCache
from stores.lock import FolderLock
from stores.migrations import migrate
from stores.names import NameCache
from stores.readers import Readers
from stores.seen import SeenMessages
from stores.sql import MATCH_BM25, install_terms
from stores.tables import Tables, select
from stores.unit import UnitOfWork
from stores.views import install_views
from streams.store_port import Outbound, Progress

if TYPE_CHECKING:
    from stores.vectors import VectorTable

DATABASE_FILE = "memory.duckdb"
BLOCK_BYTES = 16 * 1024
READERS_SECONDS = 2.0
"""What queries get to end when the shard is closed: most take milliseconds."""


class StoreError(Exception):
    """A store that cannot be used; the text says what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """How a shard is opened. `memory_limit` is DuckDB's, in MiB; `index_bytes` bounds the resident
    indexes of hot scopes; `language` is that of the stemmer."""

    embedding_model: str
    dimensions: int
    language: str = "english"
    memory_limit: int = 256
    threads: int = 1
    index_bytes: int = 512 * 1024 * 1024
    candidate_alpha: float = 0.5
    min_score: float = 0.1


@dataclass(slots=True)
class _StageState:
    """`kept_from`: nothing before this number is left in the outbox."""

    cursors: dict[str, int] = field(default_factory=dict)
    next_seq: int = 0
    kept_from: int = 0


class Shard:
    """An open shard. `lock` serialises what reads and then writes; others read by `reading()`."""

    def __init__(self, folder: Path, options: ShardOptions) -> None:
        self.folder = folder
        self.options = options
        folder.mkdir(parents=True, exist_ok=True)
        self._folder_lock = FolderLock(folder, "shard")
        try:
            self._connection = _connect(folder / DATABASE_FILE, options)
            self.migrated = migrate(self._connection)
            install_terms(self._connection, options.language)
            install_views(self._connection, MATCH_BM25)
        except duckdb.Error as error:
            self._folder_lock.release()
            raise StoreError(f"the store {folder} cannot be brought up to date: {error}") from error
        except BaseException:
            self._folder_lock.release()
            raise
        self._readers = Readers(self._connection)
        self.tables = Tables(self._connection)
        self.lock = asyncio.Lock()
        self._stages: dict[str, _StageState] = {}
        if self.state("write_seq") is None:
            self.set_state("write_seq", "0")
        self.write_seq = int(self.state("write_seq") or 0)
        self.indexes = IndexCache(self.reading, options, folder, self._held_vectors)
        self.names = NameCache(self.reading)
        self.known = KnownKeys(self.reading)
        self.flags = self._read_flags()
        """The flags of scopes that have any, by scope; changed only by commits."""
        self._seen = SeenMessages(self.reading)
        self.may_lack_vectors = True
        """Whether there may be memories without a vector: true until a count finds none."""
        self._vector_table: VectorTable | None = None
        self._load_progress()

    def close(self) -> None:
        """Checkpoint and close; the folder may then be opened by another process.

        Who reads or writes is waited for. Who still reads after `READERS_SECONDS` is interrupted;
        they, and who comes later, get StoreClosed.
        """
        if self._vector_table is not None:
            self._vector_table.close()
        self._readers.end(READERS_SECONDS)
        self._connection.close()
        self._folder_lock.release()

    def unit(self) -> UnitOfWork:
        """A new unit of work; under `lock` from its first read that a write depends on."""
        return UnitOfWork(self)

    def refuses_data(self, error: Exception) -> bool:
        """Whether an error is about the values that were to be stored, not about the store."""
        return isinstance(
            error,
            duckdb.DataError
            | duckdb.IntegrityError
            | duckdb.InvalidInputException
            | pa.ArrowInvalid
            | pa.ArrowTypeError,
        ) and not isinstance(error, duckdb.OperationalError)

    def reading(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """A cursor of its own to read with, for the length of a block, also while a commit is under
        way. Raises StoreClosed."""
        return self._readers.reading()

    def vector_table(self) -> VectorTable:
        """The shard's vectors in LanceDB, not yet opened: the first sync does that."""
        if self._vector_table is None:
            from stores.vectors import VectorTable  # takes a second: only when it is used

            self._vector_table = VectorTable(
                self.folder, self.options.embedding_model, self.options.dimensions, self.reading
            )
        return self._vector_table

    def _held_vectors(self, scope: str) -> pa.Table | None:
        """As `stores.index_load.Held`: LanceDB's copy, once it is open and worth the asking."""
        table = self._vector_table
        return None if table is None else table.held(scope)

    @contextmanager
    def writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """The connection of `tables`, for the length of a block; only under `lock`. Raises
        StoreClosed."""
        with self.reading():  # so that closing waits for the end of the block
            yield self._connection

    def state(self, name: str) -> str | None:
        row = self._connection.execute(
            "SELECT value FROM shard_state WHERE name = ?", [name]
        ).fetchone()
        return None if row is None else str(row[0])

    def set_state(self, name: str, value: str) -> None:
        """Part of the running transaction, or one of its own."""
        self._connection.execute("INSERT OR REPLACE INTO shard_state VALUES (?, ?)", [name, value])

    def keep_write_seq(self, write_seq: int) -> None:
        """Part of the running transaction."""
        # Much quicker than to replace what may be there: it is there.
        self.tables.run(
            "UPDATE shard_state SET value = ? WHERE name = 'write_seq'", [str(write_seq)]
        )

    def cursor_of(self, stage: str, topic: str) -> int:
        """The next offset that `stage` will process of this partition of `topic`."""
        return self._state_of(stage).cursors.get(topic, 0)

    def next_outbox_seq(self, stage: str) -> int:
        return self._state_of(stage).next_seq

    def unsent(self, stage: str) -> list[Outbound]:
        """What the stage committed and is not known to have sent, in order."""
        with self.reading() as reader:
            rows = reader.execute(
                "SELECT seq, topic, scope, record_key, value FROM outbox WHERE stage = ?"
                " ORDER BY seq",
                [stage],
            ).fetchall()
        return [Outbound(*row) for row in rows]

    def kept_vector(self, embedding_key: str) -> NDArray[np.float32] | None:
        """The stored vector of a text by the model in use."""
        if not self.known.among("embedding_key", [embedding_key]):
            return None
        with self.reading() as reader:
            row = reader.execute(
                "SELECT vector FROM embeddings WHERE embedding_key = ? AND model = ?",
                [embedding_key, self.options.embedding_model],
            ).fetchone()
        return None if row is None else np.asarray(row[0], dtype=np.float32)

    def kept_keys(self, embedding_keys: Sequence[str]) -> set[str]:
        """Those texts of which a vector by the model in use is stored."""
        maybe = self.known.among("embedding_key", embedding_keys)
        if not maybe:
            return set()
        with self.reading() as reader:
            rows = reader.execute(
                "SELECT embedding_key FROM embeddings WHERE model = ? AND embedding_key IN"
                " (SELECT unnest(?))",
                [self.options.embedding_model, sorted(maybe)],
            ).fetchall()
        return {row[0] for row in rows}

    def seen(self, stage: str, message_ids: Sequence[str]) -> set[str]:
        """Which of these messages the stage has processed."""
        return self._seen.among(stage, message_ids)

    def write_progress(self, progress: Progress) -> None:
        """Cursors, seen ids and outbox of one stage, as part of the running transaction."""
        state = self._state_of(progress.stage)
        for topic, next_offset in progress.cursors.items():
            statement = "INSERT INTO cursors (next_offset, stage, topic) VALUES (?, ?, ?)"
            if topic in state.cursors:
                statement = "UPDATE cursors SET next_offset = ? WHERE stage = ? AND topic = ?"
            self.tables.run(statement, [next_offset, progress.stage, topic])
        if progress.seen:
            self.tables.insert_columns(
                "seen_messages",
                {
                    "stage": [progress.stage] * len(progress.seen),
                    "message_id": [message_id for message_id, _ in progress.seen],
                    "seen_offset": [offset for _, offset in progress.seen],
                },
            )
        if state.kept_from <= progress.sent_through:
            self.tables.run(
                "DELETE FROM outbox WHERE stage = ? AND seq <= ?",
                [progress.stage, progress.sent_through],
            )
        if progress.outbox:
            self.tables.insert_columns(
                "outbox",
                {
                    "stage": [progress.stage] * len(progress.outbox),
                    "seq": [out.seq for out in progress.outbox],
                    "topic": [out.topic for out in progress.outbox],
                    "scope": [out.scope for out in progress.outbox],
                    "record_key": [out.key for out in progress.outbox],
                    "value": [out.value for out in progress.outbox],
                },
            )

    def note_progress(self, progress: Progress) -> None:
        """Remember, after the commit, what `write_progress` wrote."""
        state = self._state_of(progress.stage)
        state.cursors.update(progress.cursors)
        state.kept_from = max(state.kept_from, progress.sent_through + 1)
        if progress.outbox:
            state.next_seq = progress.outbox[-1].seq + 1
        self._seen.add(progress.stage, [message_id for message_id, _ in progress.seen])

    def _state_of(self, stage: str) -> _StageState:
        return self._stages.setdefault(stage, _StageState())

    def _read_flags(self) -> dict[str, FlagsRow]:
        with self.reading() as reader:
            return {row.scope: row for row in select(reader, FlagsRow, "true", [])}

    def _load_progress(self) -> None:
        for stage, topic, offset in self._connection.execute(
            "SELECT stage, topic, next_offset FROM cursors"
        ).fetchall():
            self._state_of(stage).cursors[topic] = offset
        for stage, last in self._connection.execute(
            "SELECT stage, max(seq) FROM outbox GROUP BY stage"
        ).fetchall():
            self._state_of(stage).next_seq = last + 1


def _connect(path: Path, options: ShardOptions) -> duckdb.DuckDBPyConnection:
    try:
        connection = duckdb.connect(
            str(path),
            config={
                "memory_limit": f"{options.memory_limit}MiB",
                "threads": options.threads,
                # Each of some 30 tables takes a block or more: of DuckDB's usual 256 KiB, ten
                # megabytes for an hour of talk. It holds for files that are made now.
                "default_block_size": BLOCK_BYTES,
                # It else keeps the memory of its largest query so far.
                "allocator_flush_threshold": "1MB",
                "allocator_bulk_deallocation_flush_threshold": "1MB",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "enable_external_access": "false",
            },
        )
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
    except duckdb.Error as error:
        raise StoreError(
            f"cannot open the store {path}: {error}\nIf it is open in another program, close it"
            " there; if the file is damaged, move it away and run"
            " `palimpsest run --once`: the log rebuilds it."
        ) from error
    return connection
