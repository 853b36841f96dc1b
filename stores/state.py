"""The open database of one partition, and its caches: shared by all users of a shard.

Written under `lock` and in one transaction per batch; read by any thread."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from palimpsest.schemas.rows.pipeline import EmbeddingRow, FlagsRow, PrivacyRow, SweepRow
from palimpsest.schemas.rows.sessions import ShortTermRow
from palimpsest.stores.database.cursors import Readers, Reading
from palimpsest.stores.database.membership import EMBEDDING_KEYS, SEEN, KnownKeys, joined
from palimpsest.stores.database.tables import Tables, parsed, select
from palimpsest.stores.index.cache import IndexCache, most_resident
from palimpsest.stores.index.passages import TurnText
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.token_reader import TokenReader
from palimpsest.stores.index.vector_space import EmbeddingProgress, VectorSpace
from palimpsest.stores.lock import StoreLock
from palimpsest.stores.settings import ShardOptions
from palimpsest.stores.writing.scope_caches import NameCache, NewestFacts
from palimpsest.streams.store_port import Outbound, Progress

if TYPE_CHECKING:
    from palimpsest.stores.index.lance import VectorTable


class ShortTermSweep:
    """Deletes expired short-term memories, without a query when there are none: tracks a time
    before which no stored row of a shard ends."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._earliest = self._read()

    def _read(self) -> datetime | None:
        with self._reading() as reader:
            row = reader.execute("SELECT min(expires_at) FROM short_term_rows").fetchone()
        assert row is not None
        earliest: datetime | None = row[0]
        return earliest

    def sweep(self, tables: Tables, at: datetime | None) -> None:
        """Deletes the rows that end by then, as part of the running transaction."""
        if self._is_due(at):
            tables.run("DELETE FROM short_term_rows WHERE expires_at <= ?", [at])

    def note(self, swept: datetime | None, written: Sequence[ShortTermRow]) -> None:
        """After a commit that swept through a time, and then wrote these."""
        if self._is_due(swept):
            self._earliest = self._read()
        ends = [row.expires_at for row in written]
        if self._earliest is not None:
            ends.append(self._earliest)
        self._earliest = min(ends, default=None)

    def _is_due(self, at: datetime | None) -> bool:
        return at is not None and self._earliest is not None and self._earliest <= at


class SeenMessages:
    """The messages that each stage of a shard has processed, used from one thread at a time.

    The table has no index, which for so many short rows would take more memory than all else; in
    its place their hashes are cached, as of other keys."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._known = KnownKeys(reading)

    def among(self, stage: str, message_ids: Sequence[str]) -> set[str]:
        """Those of the messages that the stage has processed."""
        keys = {joined((stage, message_id)): message_id for message_id in message_ids}
        maybe = self._known.among(SEEN, [*keys])
        if not maybe:
            return set()
        with self._reading() as reader:
            rows = reader.execute(
                "SELECT message_id FROM seen_messages WHERE stage = ? AND message_id IN"
                " (SELECT unnest(?))",
                [stage, sorted(keys[key] for key in maybe)],
            ).fetchall()
        return {row[0] for row in rows}

    def add(self, stage: str, message_ids: Sequence[str]) -> None:
        """After these were committed to the table."""
        self._known.add(SEEN, [joined((stage, message_id)) for message_id in message_ids])


@dataclass(slots=True)
class _StageState:
    """`kept_from`: the outbox's table holds nothing before this number. `unsent_from`: what is
    before this number is known to be in the log."""

    cursors: dict[str, int] = field(default_factory=dict)
    next_seq: int = 0
    kept_from: int = 0
    unsent_from: int = 0


class Commits:
    """Wakes those who wait for something that the stages store."""

    def __init__(self) -> None:
        self._wakes: list[Callable[[], object]] = []

    @contextmanager
    def setting(self, event: asyncio.Event) -> Iterator[None]:
        """Sets the event, for the running event loop, whenever a commit is shown."""
        wake = partial(asyncio.get_running_loop().call_soon_threadsafe, event.set)
        self._wakes.append(wake)
        try:
            yield
        finally:
            self._wakes.remove(wake)

    def announce(self) -> None:
        """Called in any thread."""
        for wake in [*self._wakes]:
            with suppress(RuntimeError):  # that event loop has ended
                wake()


class ShardState:
    """`lock` serialises reads followed by writes; others read by `reading()`."""

    written = 0
    """Grows when writing begins and when it ends: while it is the same, nothing is written."""
    redacts_names_at_once = False
    """Whether an erasure removes names from messages in its own batch, by what graph-persist has
    come to; otherwise the log and the tables lose them together, so that both lose the same."""
    is_searched = True
    """Whether searches are to be expected: the indexes of new scopes are then kept from their first
    record on. Not while a store is made from the log."""
    late_in_graph = 0
    """Grows when what was erased has left the graph after its files were, or began to be, written
    again."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, folder: Path, options: ShardOptions
    ) -> None:
        self._connection = connection
        self.folder = folder
        self.readers = Readers(connection)
        self.tables = Tables(connection)
        self.lock = StoreLock()
        self.archiving = asyncio.Lock()
        """Held while states move to the cold tier: one move at a time."""
        self.unshown = threading.RLock()
        """Held from a commit until the indexes in memory have what it stored."""
        self.commits = Commits()
        self._stages: dict[str, _StageState] = {}
        self.write_seq = int(self.state("write_seq") or 0)
        self._vector_tables: dict[str, VectorTable] = {}
        self.embedding: EmbeddingRow | None = None
        """The models that a command has named; None: that of the options is in use."""
        self.progress: dict[str, EmbeddingProgress] = {}
        """What was done for missing vectors, by vector space."""
        self.vectors_changed = 0
        """Counts batches of vectors that were added or removed without a change of a row."""
        self.space = self._space(options)
        """What searches by vectors; a search takes it once."""
        self._former = self.space
        with self.reading() as reader:
            for row in select(reader, EmbeddingRow, "true ORDER BY recorded_at", []):
                self.use(row)
        self.names = NameCache(self.reading)
        self.known = KnownKeys(self.reading)
        self.newest_facts = NewestFacts(self.reading)
        self.short_term = ShortTermSweep(self.reading)
        self.flags: dict[str, FlagsRow] = {}
        """The flags of scopes that have any, by scope; changed only by commits."""
        self.privacy: dict[str, dict[str, PrivacyRow]] = {}
        """The privacy levels by scope and person key; changed only by commits."""
        self.swept: dict[tuple[str, str], SweepRow] = {}
        """How far sweeps have come, by scope and step; changed only by commits."""
        self._seen = SeenMessages(self.reading)
        self.may_lack_vectors = self.may_lack_passages = True
        """Whether there may be memories without a vector, or turns without passages: true until
        a count finds none."""
        self.has_erasures = bool(
            self._connection.execute("SELECT 1 FROM erasures WHERE phase <> 'done'").fetchall()
        )
        """Whether texts were erased from the tables that files may still contain."""
        self._load()

    def reading(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """A cursor of its own to read with, for the length of a block, also while a commit is under
        way. Raises StoreClosed."""
        return self.readers.reading()

    def fetch(self, query: str, parameters: object = ()) -> list[tuple[Any, ...]]:
        """Returns the rows of a query. Raises StoreClosed."""
        with self.reading() as reader:
            return reader.execute(query, parameters).fetchall()

    def wait_until_shown(self) -> None:
        """Waits until searches find what was read from the tables before."""
        with self.unshown:
            pass

    @property
    def options(self) -> ShardOptions:
        return self.space.options

    @property
    def indexes(self) -> IndexCache:
        return self.space.indexes

    @property
    def tokens(self) -> TokenReader:
        return self.space.tokens

    @property
    def embedding_space(self) -> str:
        """The vector space that all searches use now."""
        return self.space.options.embedding_model

    def use(self, row: EmbeddingRow) -> None:
        """Takes over the models that a committed command has named. Searches that began before go
        on with the former one; all later ones use the new one. Until the first switch the store
        keeps the model that it was opened with."""
        self.embedding = row
        self.may_lack_vectors = self.may_lack_passages = True
        if not row.switched_seq:
            return
        live = json.loads(row.live)
        options = replace(
            self.options, embedding_model=live["space"], dimensions=live["dimensions"]
        )
        if options != self.options or row.switched_seq > self.space.began:
            self._former, self.space = self.space, self._space(options, row.switched_seq)
            self._former.indexes.clear()  # no change reaches them any more

    def space_named(self, space: str) -> VectorSpace:
        """The vector space of a batch that began when this was its name; "": the present one."""
        is_former = space not in ("", self.embedding_space)
        return self._former if is_former else self.space

    def _space(self, options: ShardOptions, began: int = 0) -> VectorSpace:
        return VectorSpace(self.reading, self.folder, options, self._vector_tables.get, began)

    def vector_table(self, space: str = "", dimensions: int = 0) -> VectorTable:
        """The vectors of a space in LanceDB, by default of that in use; not yet opened: the first
        sync does that."""
        options = self.options
        space, dimensions = space or options.embedding_model, dimensions or options.dimensions
        if space not in self._vector_tables:
            from palimpsest.stores.index.lance import VectorTable

            most = most_resident(replace(options, dimensions=dimensions))
            self._vector_tables[space] = VectorTable(
                self.folder, space, dimensions, self.reading, most
            )
        return self._vector_tables[space]

    def drop_vector_table(self, space: str) -> None:
        """Closes the copy of a space in LanceDB and removes its files. Blocks."""
        self.vector_table(space, 8).remove()
        del self._vector_tables[space]

    @contextmanager
    def writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """The connection of `tables`, for the length of a block; only under `lock`. Raises
        StoreClosed."""
        with self.reading():  # so that closing waits for the end of the block
            self.written += 1
            try:
                yield self._connection
            finally:
                self.written += 1

    def state(self, name: str) -> str | None:
        row = self._connection.execute(
            "SELECT value FROM shard_state WHERE name = ?", [name]
        ).fetchone()
        return None if row is None else str(row[0])

    def set_state(self, name: str, value: str) -> None:
        """Part of the running transaction, or one of its own."""
        # INSERT OR REPLACE takes DuckDB three times as long.
        set_it = parsed(self._connection, "UPDATE shard_state SET value = ? WHERE name = ?")
        [[known]] = self._connection.execute(set_it, [value, name]).fetchall()
        if not known:
            self._connection.execute("INSERT INTO shard_state VALUES (?, ?)", [name, value])

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

    def unsent_count(self, stage: str) -> int:
        """Returns how many entries of the outbox are not known to be in the log. Only after
        `cursor_of`: a batch counts here before it moves the cursor."""
        state = self._state_of(stage)
        return max(0, state.next_seq - state.unsent_from)

    def note_sent(self, stage: str, seq: int) -> None:
        """Notes that the log has the stage's outbox up to this entry."""
        state = self._state_of(stage)
        state.unsent_from = max(state.unsent_from, seq + 1)

    def packed_tokens(self, memory_ids: Sequence[str]) -> dict[str, bytes]:
        """As `VectorSpace.packed_tokens`, of the space in use."""
        return self.space.packed_tokens(memory_ids)

    def packed_turns(self, texts: Sequence[TurnText]) -> dict[TurnText, bytes]:
        """As `VectorSpace.packed_turns`, of the space in use."""
        return self.space.packed_turns(texts)

    def read_passages(self, index: ScopeIndex) -> None:
        """As `VectorSpace.read_passages`, of the space in use."""
        self.space.read_passages(index)

    def stored_keys(self, embedding_keys: Sequence[str]) -> set[str]:
        """Returns those texts of which a vector by the model in use is stored."""
        maybe = self.known.among(EMBEDDING_KEYS, embedding_keys)
        return self.space.stored_keys([*maybe]) if maybe else set()

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
        """Updates the caches, after the commit, with what `write_progress` wrote."""
        state = self._state_of(progress.stage)
        state.kept_from = max(state.kept_from, progress.sent_through + 1)
        # Before the cursors: nobody may see the records processed and their output not yet unsent.
        if progress.outbox:
            state.next_seq = progress.outbox[-1].seq + 1
        state.cursors.update(progress.cursors)
        self._seen.add(progress.stage, [message_id for message_id, _ in progress.seen])

    def _state_of(self, stage: str) -> _StageState:
        return self._stages.setdefault(stage, _StageState())

    def note_settings(
        self, flags: list[FlagsRow], privacy: list[PrivacyRow], swept: list[SweepRow]
    ) -> None:
        """Caches settings of scopes, after the commit."""
        self.swept.update(((row.scope, row.step), row) for row in swept)
        self.flags.update((row.scope, row) for row in flags)
        for row in privacy:
            self.privacy[row.scope] = {**self.privacy.get(row.scope, {}), row.person_key: row}

    def _load(self) -> None:
        with self.reading() as reader:
            self.note_settings(
                select(reader, FlagsRow, "true", []),
                select(reader, PrivacyRow, "true", []),
                select(reader, SweepRow, "true", []),
            )
        for stage, topic, offset in self._connection.execute(
            "SELECT stage, topic, next_offset FROM cursors"
        ).fetchall():
            self._state_of(stage).cursors[topic] = offset
        for stage, first, last in self._connection.execute(
            "SELECT stage, min(seq), max(seq) FROM outbox GROUP BY stage"
        ).fetchall():
            self._state_of(stage).next_seq = last + 1
            self._state_of(stage).unsent_from = first
