"""The state that a re-extraction keeps in the branch's folder: an index of the live log, the turns
of the sample, the tokens that the models read and wrote, and the results of curation.

It is one SQLite file without any text of the memory. Only the process that has the branch's log
open writes it; any process may read it meanwhile.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Literal, Self

# --- curated --------------------------------------------------------------------------------------
# What people did to the live memory, and the result in a branch: a row for every memory that a
# command changed.
#
# The rows lie in the table `curated` of `reextraction.sqlite` in the branch's folder, with the
# columns of `Curated`. The table holds no texts, so nothing erased in a store remains here.

CURATION_FILE = "reextraction.sqlite"

MatchedBy = Literal["same id", "equal text", "embedding", "words", "erased"]
"""How a counterpart was found: by its id, which equals that of the live memory if it does not come
from a model's words; by its normalized text; by the cosine of the texts, or by their common words
where there is no vector. `erased`: the text is gone, and no other live fact of the turn accounts
for the branch's."""

Status = Literal[
    "fed",
    "re-applied",
    "refused",
    "suppressed",
    "no counterpart",
    "not carried out",
]
"""`fed`: the branch has the command, and its result is not known yet. `re-applied`: the branch
executed it. `refused`: the branch did not, and `detail` says why. `suppressed`: the branch said a
forgotten or corrected thing in other words and forgot that, too. `no counterpart`: nothing in the
branch corresponds. `not carried out`: the live memory refused the command, so the branch did not
get it."""


@dataclass(frozen=True, slots=True)
class Curated:
    """One memory that a command named or took along. `live_id` is its id in the live memory; for
    apply-proposals and dismiss-proposals it is the id of the pending fact, and `branch_id` that of
    the branch's pending fact. `partition` and `offset` locate the command in the live
    memory-writes. `similarity` is from 0 to 1, None if nothing was compared."""

    command_id: str
    command: str
    scope: str
    partition: int
    offset: int
    live_id: str
    branch_id: str | None
    matched_by: MatchedBy | None
    similarity: float | None
    status: Status
    detail: str = ""


# --- ledger ---------------------------------------------------------------------------------------

_TABLES = """
CREATE TABLE IF NOT EXISTS scanned (
    topic TEXT, partition INTEGER, next_offset INTEGER, PRIMARY KEY (topic, partition));
CREATE TABLE IF NOT EXISTS extracted (
    cause TEXT PRIMARY KEY, partition INTEGER, offset INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS told (
    partition INTEGER, offset INTEGER, scope TEXT, cause TEXT, event TEXT, memory_id TEXT,
    turn_id TEXT, item_id TEXT);
CREATE INDEX IF NOT EXISTS told_by_cause ON told (cause);
CREATE INDEX IF NOT EXISTS told_by_memory ON told (memory_id);
CREATE INDEX IF NOT EXISTS told_by_turn ON told (turn_id);
CREATE INDEX IF NOT EXISTS told_by_item ON told (item_id);
CREATE INDEX IF NOT EXISTS told_of_scope ON told (scope) WHERE memory_id IS NULL;
CREATE TABLE IF NOT EXISTS sampled (message_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spent (calls INTEGER, input_tokens INTEGER, output_tokens INTEGER);
CREATE TABLE IF NOT EXISTS curated (
    command_id TEXT, command TEXT, scope TEXT, partition INTEGER, offset INTEGER, live_id TEXT,
    branch_id TEXT, matched_by TEXT, similarity REAL, status TEXT, detail TEXT);
CREATE UNIQUE INDEX IF NOT EXISTS curated_once
    ON curated (command_id, live_id, coalesce(branch_id, ''));
CREATE INDEX IF NOT EXISTS curated_by_memory ON curated (live_id);
"""

_CURATED = tuple(field.name for field in fields(Curated))


@dataclass(frozen=True, slots=True)
class Told:
    """One outcome in the live memory-changes: its location, the message that caused it, and the
    memory, turn and fact that it names."""

    partition: int
    offset: int
    scope: str
    cause: str | None
    event: str
    memory_id: str | None
    turn_id: str | None
    item_id: str


@dataclass(frozen=True, slots=True)
class Spent:
    """The usage of the language model for a branch, over all runs."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Ledger:
    """Opened with `Ledger.opened`; usable from any thread, by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    @contextlib.contextmanager
    def opened(cls, folder: Path) -> Iterator[Self]:
        """Yields the ledger of a branch's folder and creates it if there is none."""
        connection = sqlite3.connect(
            folder / CURATION_FILE, isolation_level=None, check_same_thread=False
        )
        try:
            # Each model call is recorded immediately: a kill loses none, without an fsync per call.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(_TABLES)
            connection.execute(
                "INSERT INTO spent SELECT 0, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM spent)"
            )
            yield cls(connection)
        finally:
            connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    # --- where things lie in the live log ----------------------------------------------------

    def scanned(self, topic: str, partition: int) -> int:
        """Returns the next offset to scan."""
        row = self._connection.execute(
            "SELECT next_offset FROM scanned WHERE topic = ? AND partition = ?", (topic, partition)
        ).fetchone()
        return 0 if row is None else int(row[0])

    def note_extracted(
        self, topic: str, partition: int, found: Iterable[tuple[str, int]], next_offset: int
    ) -> None:
        """Stores extractions by the message that caused them, with their offsets; the first one
        stays."""
        with self._transaction() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO extracted VALUES (?, ?, ?)",
                [(cause, partition, offset) for cause, offset in found],
            )
            _note_scanned(connection, topic, partition, next_offset)

    def note_told(
        self, topic: str, partition: int, found: Iterable[Told], next_offset: int
    ) -> None:
        with self._transaction() as connection:
            connection.executemany(
                "INSERT INTO told VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [astuple(each) for each in found],
            )
            _note_scanned(connection, topic, partition, next_offset)

    def extracted(self, cause: str) -> tuple[int, int] | None:
        """Returns the partition and offset of the extraction that a message caused."""
        row: tuple[int, int] | None = self._connection.execute(
            "SELECT partition, offset FROM extracted WHERE cause = ?", (cause,)
        ).fetchone()
        return row

    def told_by(self, cause: str) -> list[Told]:
        return self._told("cause = ?", cause)

    def told_of_memory(self, memory_id: str, before: int | None = None) -> list[Told]:
        """Returns the outcomes of a memory in order: all, or those before an offset of
        memory-changes."""
        if before is None:
            return self._told("memory_id = ?", memory_id)
        return self._told("memory_id = ? AND offset < ?", memory_id, before)

    def told_of_scope(self, scope: str) -> list[Told]:
        """Returns the outcomes of a scope as a whole, in order."""
        return self._told("memory_id IS NULL AND scope = ?", scope)

    def told_of_turn(self, turn_id: str, before: int) -> list[Told]:
        """Returns the outcomes of a turn's facts before an offset of memory-changes, in order."""
        return self._told("turn_id = ? AND offset < ?", turn_id, before)

    def told_of_item(self, item_id: str, before: int) -> list[Told]:
        """Returns the outcomes of a fact before an offset of memory-changes, in order."""
        return self._told("item_id = ? AND offset < ?", item_id, before)

    def _told(self, condition: str, *values: object) -> list[Told]:
        rows = self._connection.execute(
            f"SELECT * FROM told WHERE {condition} ORDER BY offset, rowid", values
        )
        return [Told(*row) for row in rows]

    # --- the sample and the usage ------------------------------------------------------------

    def note_sampled(self, message_ids: Iterable[str]) -> None:
        with self._transaction() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO sampled VALUES (?)", [(each,) for each in message_ids]
            )

    @property
    def has_sample(self) -> bool:
        return self._connection.execute("SELECT 1 FROM sampled LIMIT 1").fetchone() is not None

    def is_sampled(self, message_id: str) -> bool:
        found = self._connection.execute(
            "SELECT 1 FROM sampled WHERE message_id = ?", (message_id,)
        ).fetchone()
        return found is not None

    def note_spent(self, input_tokens: int, output_tokens: int) -> None:
        """Adds one call."""
        self._connection.execute(
            "UPDATE spent SET calls = calls + 1, input_tokens = input_tokens + ?,"
            " output_tokens = output_tokens + ?",
            (input_tokens, output_tokens),
        )

    def spent(self) -> Spent:
        return Spent(*self._connection.execute("SELECT * FROM spent").fetchone())

    # --- curation ----------------------------------------------------------------------------

    def note_curated(self, rows: Sequence[Curated]) -> None:
        """Stores the whole translation of one command in one transaction."""
        with self._transaction() as connection:
            connection.executemany(
                f"INSERT OR IGNORE INTO curated ({', '.join(_CURATED)})"
                f" VALUES ({', '.join('?' * len(_CURATED))})",
                [astuple(row) for row in rows],
            )

    def settle_curated(self, rows: Iterable[Curated]) -> None:
        """Replaces the status and detail of these rows."""
        with self._transaction() as connection:
            connection.executemany(
                "UPDATE curated SET status = ?, detail = ? WHERE command_id = ? AND live_id = ?"
                " AND coalesce(branch_id, '') = ?",
                [
                    (row.status, row.detail, row.command_id, row.live_id, row.branch_id or "")
                    for row in rows
                ],
            )

    def curated(self, condition: str = "true", *values: object) -> list[Curated]:
        """Returns the matching rows in the order of the live log."""
        rows = self._connection.execute(
            f"SELECT {', '.join(_CURATED)} FROM curated WHERE {condition}"
            " ORDER BY partition, offset, rowid",
            values,
        )
        return [Curated(*row) for row in rows]


def _note_scanned(
    connection: sqlite3.Connection, topic: str, partition: int, next_offset: int
) -> None:
    connection.execute(
        "INSERT INTO scanned VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET next_offset ="
        " excluded.next_offset",
        (topic, partition, next_offset),
    )
