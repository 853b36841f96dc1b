"""The open database of one partition, and its caches: shared by all users of a shard.

Written under `lock` and in one transaction per batch; read by any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from palimpsest.schemas.privacy import PrivacyRow
from palimpsest.schemas.rows import FlagsRow
from palimpsest.stores.database.cursors import Readers
from palimpsest.stores.database.membership import KnownKeys
from palimpsest.stores.database.seen_messages import SeenMessages
from palimpsest.stores.database.tables import Tables, select
from palimpsest.stores.index.cache import IndexCache, most_resident
from palimpsest.stores.index.stored_scopes import StoredScopes
from palimpsest.stores.index.token_reader import CopiedTokens, TokenReader
from palimpsest.stores.lock import StoreLock
from palimpsest.stores.settings import ShardOptions
from palimpsest.stores.writing.known_names import NameCache
from palimpsest.stores.writing.newest_facts import NewestFacts
from palimpsest.stores.writing.short_term_sweep import ShortTermSweep
from palimpsest.streams.store_port import Outbound, Progress

if TYPE_CHECKING:
    from palimpsest.stores.index.lance import VectorTable


@dataclass(slots=True)
class _StageState:
    """`unsent_from`: the outbox holds nothing before this number."""

    cursors: dict[str, int] = field(default_factory=dict)
    next_seq: int = 0
    unsent_from: int = 0


class ShardState:
    """`lock` serialises reads followed by writes; others read by `reading()`."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, folder: Path, options: ShardOptions
    ) -> None:
        self._connection = connection
        self.folder = folder
        self.options = options
        self.readers = Readers(connection)
        self.tables = Tables(connection)
        self.lock = StoreLock()
        self.unshown = threading.RLock()
        """Held from a commit until the indexes in memory have what it stored."""
        self._stages: dict[str, _StageState] = {}
        if self.state("write_seq") is None:
            self.set_state("write_seq", "0")
        self.write_seq = int(self.state("write_seq") or 0)
        stored = StoredScopes(self.reading, options, lambda: self._vector_table)
        self.indexes = IndexCache(self.reading, options, folder, self._cached_vectors, stored)
        self.tokens = TokenReader(
            self.reading, options.embedding_model, self.indexes.texts_of, self._copied_tokens
        )
        self.names = NameCache(self.reading)
        self.known = KnownKeys(self.reading)
        self.newest_facts = NewestFacts(self.reading)
        self.short_term = ShortTermSweep(self.reading)
        self.flags = self._read_flags()
        """The flags of scopes that have any, by scope; changed only by commits."""
        self.privacy = self._read_privacy()
        """The privacy levels by scope and person key; changed only by commits."""
        self._seen = SeenMessages(self.reading)
        self.may_lack_vectors = True
        """Whether there may be memories without a vector: true until a count finds none."""
        self.has_erasures = bool(
            self._connection.execute("SELECT 1 FROM erasures WHERE phase <> 'done'").fetchall()
        )
        """Whether texts were erased from the tables that files may still contain."""
        self._vector_table: VectorTable | None = None
        self._load_progress()

    def reading(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """A cursor of its own to read with, for the length of a block, also while a commit is under
        way. Raises StoreClosed."""
        return self.readers.reading()

    def wait_until_shown(self) -> None:
        """Waits until searches find what was read from the tables before."""
        with self.unshown:
            pass

    def vector_table(self) -> VectorTable:
        """The shard's vectors in LanceDB, not yet opened: the first sync does that."""
        if self._vector_table is None:
            from palimpsest.stores.index.lance import (
                VectorTable,
            )

            self._vector_table = VectorTable(
                self.folder,
                self.options.embedding_model,
                self.options.dimensions,
                self.reading,
                most_resident(self.options),
            )
        return self._vector_table

    def _cached_vectors(self, scope: str) -> pa.Table | None:
        """As `stores.index.cache.CopiedVectors`: LanceDB's copy, once open and worth it."""
        table = self._vector_table
        return None if table is None else table.held(scope)

    def _copied_tokens(self, memory_ids: Sequence[str]) -> Mapping[str, CopiedTokens]:
        table = self._vector_table
        return {} if table is None else table.tokens(memory_ids)

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

    @property
    def is_untouched(self) -> bool:
        """Returns whether no stage has processed anything yet."""
        return not any(state.cursors for state in self._stages.values())

    def next_outbox_seq(self, stage: str) -> int:
        return self._state_of(stage).next_seq

    def unsent(self, stage: str) -> list[Outbound]:
        """Returns what the stage committed and is not known to have sent, in order."""
        with self.reading() as reader:
            rows = reader.execute(
                "SELECT seq, topic, scope, record_key, value FROM outbox WHERE stage = ?"
                " ORDER BY seq",
                [stage],
            ).fetchall()
        return [Outbound(*row) for row in rows]

    def stored_vector(self, embedding_key: str) -> NDArray[np.float32] | None:
        """The stored vector of a text by the model in use."""
        if not self.known.among("embedding_key", [embedding_key]):
            return None
        with self.reading() as reader:
            row = reader.execute(
                "SELECT vector FROM embeddings WHERE embedding_key = ? AND model = ?",
                [embedding_key, self.options.embedding_model],
            ).fetchone()
        return None if row is None else np.asarray(row[0], dtype=np.float32)

    def packed_tokens(self, memory_ids: Sequence[str]) -> dict[str, bytes]:
        """The packed token vectors of memories by id, of those that have any by the model in
        use."""
        return self.tokens.of(memory_ids)

    def stored_keys(self, embedding_keys: Sequence[str]) -> set[str]:
        """Returns those texts of which a vector by the model in use is stored."""
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
        """Returns which of these messages the stage has processed."""
        return self._seen.among(stage, message_ids)

    def write_progress(self, progress: Progress) -> None:
        """Writes cursors, seen ids and outbox of one stage, as part of the running transaction."""
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
        if state.unsent_from <= progress.sent_through:
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
        """Updates the caches, after the commit, with what `write_progress` wrote."""
        state = self._state_of(progress.stage)
        state.cursors.update(progress.cursors)
        state.unsent_from = max(state.unsent_from, progress.sent_through + 1)
        if progress.outbox:
            state.next_seq = progress.outbox[-1].seq + 1
        self._seen.add(progress.stage, [message_id for message_id, _ in progress.seen])

    def _state_of(self, stage: str) -> _StageState:
        return self._stages.setdefault(stage, _StageState())

    def _read_flags(self) -> dict[str, FlagsRow]:
        with self.reading() as reader:
            return {row.scope: row for row in select(reader, FlagsRow, "true", [])}

    def _read_privacy(self) -> dict[str, dict[str, PrivacyRow]]:
        levels: dict[str, dict[str, PrivacyRow]] = {}
        with self.reading() as reader:
            for row in select(reader, PrivacyRow, "true", []):
                levels.setdefault(row.scope, {})[row.person_key] = row
        return levels

    def note_settings(self, flags: Iterable[FlagsRow], privacy: Iterable[PrivacyRow]) -> None:
        """Updates the cached settings of scopes, after the commit."""
        self.flags.update((row.scope, row) for row in flags)
        for row in privacy:
            self.privacy[row.scope] = {**self.privacy.get(row.scope, {}), row.person_key: row}

    def _load_progress(self) -> None:
        for stage, topic, offset in self._connection.execute(
            "SELECT stage, topic, next_offset FROM cursors"
        ).fetchall():
            self._state_of(stage).cursors[topic] = offset
        for stage, last in self._connection.execute(
            "SELECT stage, max(seq) FROM outbox GROUP BY stage"
        ).fetchall():
            self._state_of(stage).next_seq = last + 1
