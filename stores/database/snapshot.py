"""Snapshots: stores of one or several partitions in one DuckDB file, or as Parquet.

The tables of partition 0 lie in the schema `shard_0`, as of one transaction; in `main` are the
views over all partitions, each with the column `partition`, and in `views_0` those of one.
`palimpsest_snapshot.shards` tells what is in it. As Parquet, a folder has a file a view, and the
tables below `shards/0`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
from numpy.typing import NDArray

from palimpsest.schemas.rows.memories import ArchiveRow
from palimpsest.schemas.rows.row_types import ROW_TYPES
from palimpsest.stores.database.archive import FILES_STATE, states_query
from palimpsest.stores.database.cursors import Readable, connected
from palimpsest.stores.database.damage import as_duckdb_error
from palimpsest.stores.database.durable_files import synced
from palimpsest.stores.database.migrations import migrate
from palimpsest.stores.database.view_columns import PARTITION, quoted
from palimpsest.stores.database.views import INTERNAL_VIEWS, VIEWS, VIEWS_STATE, explain

SCHEMA = "palimpsest_snapshot"
"""Unlike what anybody names a file: DuckDB takes the name of a file for that of a catalog."""
SOURCES: Mapping[str, str] = {each.TABLE: each.SOURCE for each in ROW_TYPES}
"""What has all rows of a table, where that is not the table itself."""
BATCH_ROWS = 10_000
WRITTEN_ROWS = 2_048
"""Of token vectors they take some 40 MB."""
WRITTEN: Mapping[str, int] = {
    "default_block_size": 64 * 1024,
    # The token vectors of a text would be compressed with those of 2,047 others, by a twelfth, and
    # to read one would take as long as to read them all.
    "zstd_min_string_length": 1 << 30,
}
"""How the files of stores and snapshots are written, which holds for those that are made now."""
SMALL: Mapping[str, int] = {**WRITTEN, "default_block_size": 16 * 1024}
"""How a store begins: each of some 30 tables takes a block or more. From 10 MB on the file would be
larger by a tenth than with `WRITTEN`."""
SMALL_BYTES = 16 * 1024 * 1024
"""A file of more is rewritten with the larger blocks."""
MEMORY_LIMIT_MIB = 512
TABLES = "SELECT table_name FROM duckdb_tables() WHERE schema_name = ? AND NOT internal ORDER BY 1"
_SHARDS_FILE = "snapshot.parquet"
_NAME = re.compile(r"[a-z_]+")


class SnapshotError(Exception):
    """A snapshot that cannot be used; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class SnapshotShard:
    """One partition of a snapshot, of `partitions` that there were."""

    partition: int
    partitions: int
    taken_at: datetime


@contextmanager
def opened(path: Path | str, **config: str | int) -> Iterator[duckdb.DuckDBPyConnection]:
    """A file that may attach others, for the length of a block."""
    with connected(path, MEMORY_LIMIT_MIB, 1, **{**WRITTEN, **config}) as connection:
        yield connection


def copy_shard(shard: Readable, partition: int, path: Path) -> None:
    """Write the tables of an open store to a new file, as of one transaction; the store may be
    written meanwhile. Raises StoreClosed."""
    with opened(path) as target, shard.reading() as reader:
        target.execute(f"CREATE SCHEMA shard_{partition}")
        reader.execute("BEGIN TRANSACTION READ ONLY")
        for (table,) in reader.execute(TABLES, ["internal"]).fetchall():
            rows = f"FROM internal.{SOURCES.get(table, table)}"
            if table == "shard_state":
                rows += f" WHERE name <> {quoted(FILES_STATE)}"  # the copy has no files
            target.register("batches", reader.sql(rows).to_arrow_reader(BATCH_ROWS))
            try:
                target.execute(f"CREATE TABLE shard_{partition}.{table} AS FROM batches")
            except duckdb.Error as error:
                raise as_duckdb_error(error) from error
            target.unregister("batches")
        states = states_query().replace("internal.", f"shard_{partition}.")
        target.execute(f"CREATE VIEW shard_{partition}.{ArchiveRow.SOURCE} AS {states}")


def join_copies(copies: dict[int, Path], path: Path, partitions: int, taken_at: datetime) -> None:
    """Make a snapshot of what `copy_shard` wrote, by partition."""
    with opened(path) as target:
        for partition, copy in copies.items():
            schema = f"shard_{partition}"
            target.execute(f"ATTACH {quoted(str(copy))} AS one (READ_ONLY)")
            target.execute(f"CREATE SCHEMA {schema}")
            for (table,) in target.execute(f"{TABLES}", [schema]).fetchall():
                target.execute(f"CREATE TABLE {schema}.{table} AS FROM one.{schema}.{table}")
            target.execute("DETACH one")
            shown = f"views_{partition}"  # the views as the store of the partition has them
            target.execute(f"CREATE SCHEMA {shown}")
            views = {f"{schema}.{name}": query for name, query in INTERNAL_VIEWS.items()}
            views |= {f"{shown}.{name}": view.query for name, view in VIEWS.items()}
            for name, query in views.items():
                placed = query.replace("internal.", f"{schema}.").replace("main.", f"{shown}.")
                target.execute(f"CREATE VIEW {name} AS {placed}")
        for name in VIEWS:
            union = " UNION ALL BY NAME ".join(
                f"SELECT {number}::BIGINT AS {PARTITION}, COLUMNS(lambda c: c <> '{PARTITION}')"
                f" FROM views_{number}.{name}"
                for number in copies
            )
            target.execute(f"CREATE VIEW main.{name} AS {union}")
        explain(target)
        target.execute(f"CREATE SCHEMA {SCHEMA}")
        target.execute(
            f"CREATE TABLE {SCHEMA}.shards (partition BIGINT, partitions BIGINT,"
            " taken_at TIMESTAMPTZ)"
        )
        for partition in copies:
            target.execute(
                f"INSERT INTO {SCHEMA}.shards VALUES (?, ?, ?)", [partition, partitions, taken_at]
            )
        target.execute("CHECKPOINT")


def export_parquet(snapshot: Path, folder: Path) -> None:
    """Write a snapshot as a folder of Parquet files."""
    with opened(snapshot, access_mode="READ_ONLY") as source:

        def write(table: str, file: Path) -> None:
            source.execute(f"COPY (FROM {table}) TO {quoted(str(file))} (FORMAT parquet)")

        folder.mkdir()
        for shard in shards_of(snapshot):
            tables = folder / "shards" / str(shard.partition)
            tables.mkdir(parents=True)
            schema = f"shard_{shard.partition}"
            for (name,) in source.execute(TABLES, [schema]).fetchall():
                write(f"{schema}.{name}", tables / f"{name}.parquet")
        for name in VIEWS:
            write(f"main.{name}", folder / f"{name}.parquet")
        write(f"{SCHEMA}.shards", folder / _SHARDS_FILE)


def shards_of(snapshot: Path) -> list[SnapshotShard]:
    """What is in a snapshot, a file or a folder of Parquet. Raises SnapshotError."""
    try:
        with _source(snapshot) as source:
            rows = source.execute(f"FROM {_table(snapshot, None, 'shards')} ORDER BY 1").fetchall()
    except duckdb.Error as error:
        raise SnapshotError(f"{snapshot} is no snapshot: {error}") from error
    return [SnapshotShard(*row) for row in rows]


def cursors_of(snapshot: Path, partition: int) -> list[tuple[str, str, int]]:
    """Stage, topic and next offset of a partition of a snapshot."""
    with _source(snapshot) as source:
        table = _table(snapshot, partition, "cursors")
        return source.execute(f"SELECT stage, topic, next_offset FROM {table}").fetchall()


def newest_turn_of(snapshot: Path, partition: int) -> tuple[str, int] | None:
    """Id of the newest turn that was accepted, and its offset in the log."""
    with _source(snapshot) as source:
        found = source.execute(
            f"SELECT item_id, log_offset FROM {_table(snapshot, partition, 'accepted_turns')}"
            " ORDER BY log_offset DESC LIMIT 1"
        ).fetchall()
    return found[0] if found else None


def restore_shard(snapshot: Path, partition: int, path: Path) -> None:
    """Make a store of a partition of a snapshot: a new file, of the version that the snapshot has.
    Raises SnapshotError."""
    with opened(path) as target:
        _attach(target, snapshot)
        if snapshot.is_dir():
            found = [file.stem for file in (snapshot / "shards" / str(partition)).glob("*.parquet")]
        else:
            rows = target.execute(TABLES, [f"shard_{partition}"]).fetchall()
            found = [name for (name,) in rows]
        odd = [name for name in found if not _NAME.fullmatch(name)]
        if odd:
            raise SnapshotError(f"{snapshot} has tables that no store has: {', '.join(odd)}")
        tables = sorted(found)
        known = target.execute(
            f"SELECT name FROM {_table(snapshot, partition, 'migrations')}"
        ).fetchall()
        try:
            migrate(target, [name for (name,) in known])
        except ValueError as error:
            raise SnapshotError(f"{snapshot}: {error}") from error
        fill(target, tables, lambda table: _table(snapshot, partition, table))


def fill(
    target: duckdb.DuckDBPyConnection, tables: Iterable[str], rows_of: Callable[[str], str]
) -> None:
    """Fill the tables of a migrated store, each from where its rows are; the views stay as they
    are, or are left to whoever opens it."""
    views = target.execute("FROM internal.shard_state WHERE name = ?", [VIEWS_STATE]).fetchall()
    target.execute("DELETE FROM internal.shard_state")
    for table in tables:
        if table != "migrations":
            target.execute(f"INSERT INTO internal.{table} BY NAME FROM {rows_of(table)}")
    target.execute("DELETE FROM internal.shard_state WHERE name = ?", [VIEWS_STATE])
    for row in views:
        target.execute("INSERT INTO internal.shard_state VALUES (?, ?)", row)
    target.execute("CHECKPOINT")


@contextmanager
def _source(snapshot: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with opened(":memory:") as connection:
        _attach(connection, snapshot)
        yield connection


def _attach(connection: duckdb.DuckDBPyConnection, snapshot: Path) -> None:
    if snapshot.is_file():
        connection.execute(f"ATTACH {quoted(str(snapshot))} AS source (READ_ONLY)")


def _table(snapshot: Path, partition: int | None, name: str) -> str:
    """Where a table of a snapshot is read from; without a partition, what is in the snapshot."""
    if snapshot.is_dir():
        file = _SHARDS_FILE if partition is None else f"shards/{partition}/{name}.parquet"
        return f"read_parquet({quoted(str(snapshot / file))})"
    return f"source.{SCHEMA if partition is None else f'shard_{partition}'}.{name}"


SUFFIX = ".new"
_STATE: Final = "shard_state"
"""The table from which `fill` deletes: the numbers of its rows may change."""


def rewrite(path: Path, empty: bytes) -> None:
    """Write a closed store's file again. `empty` as in `write_again`."""
    with opened(path, access_mode="READ_ONLY") as source:
        write_again(source, path, empty)
    take_written(path)


def write_again(reader: duckdb.DuckDBPyConnection, path: Path, empty: bytes) -> None:
    """Write the tables of a store, as of one transaction of its `reader`, to a new file beside its
    file, which `take_written` puts into its place; the store may be written meanwhile. Nothing is
    in it of what its tables do not hold any more: DuckDB keeps freed blocks, with what was in them,
    until it needs them. A half-made file is removed by the next call. `empty` is the file of an
    empty store of this version: a small one begins with it, as to make the tables and the views
    takes longer than to fill them."""
    new = path.with_name(path.name + SUFFIX)
    discard_half(path)
    small = path.stat().st_size < SMALL_BYTES
    if small:
        new.write_bytes(empty)
    with opened(new, **(SMALL if small else WRITTEN)) as target:
        reader.execute("BEGIN TRANSACTION READ ONLY")

        def rows_of(table: str) -> str:
            rows = reader.sql(f"FROM internal.{table}").to_arrow_reader(WRITTEN_ROWS)
            target.register("batches", rows)
            return "batches"

        known = reader.execute("SELECT name FROM internal.migrations").fetchall()
        tables = reader.execute(TABLES, ["internal"]).fetchall()
        migrate(target, [name for (name,) in known])
        fill(target, [name for (name,) in tables], rows_of)
        target.unregister("batches")
        reader.execute("COMMIT")
    synced(new)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a table: their hashes in order, and their numbers in its file."""

    digests: NDArray[np.uint64]
    places: NDArray[np.int64]

    def among(self, digests: NDArray[np.uint64]) -> list[int]:
        """The numbers of the rows that have one of these hashes."""
        first, last = (np.searchsorted(self.digests, digests, side) for side in ("left", "right"))
        return [
            place
            for begin, end in zip(first.tolist(), last.tolist(), strict=True)
            for place in self.places[begin:end].tolist()
        ]


def _rows(connection: duckdb.DuckDBPyConnection, query: str) -> Rows:
    """The rows of a query of `_hashes`."""
    found = connection.sql(query).fetchnumpy()
    order = np.argsort(found["digest"])
    return Rows(found["digest"][order], found["place"][order])


def _hashes(target: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Queries of the hashes of all rows of each table of a store, and of their numbers; of its
    state without that of its views, as `fill` has it."""
    found = target.execute(
        "SELECT table_name, string_agg(column_name, ', ' ORDER BY column_name)"
        " FROM duckdb_columns() JOIN duckdb_tables() USING (database_oid, schema_name, table_name)"
        " WHERE schema_name = 'internal' GROUP BY table_name ORDER BY table_name"
    ).fetchall()
    queries = {
        table: f"SELECT hash({columns}) AS digest, rowid AS place FROM internal.{table}"
        for table, columns in found
    }
    queries[_STATE] += f" WHERE name <> {quoted(VIEWS_STATE)}"
    return queries


def rows_written(target: duckdb.DuckDBPyConnection) -> dict[str, Rows]:
    """The rows of the file that `write_again` wrote beside a store's file, by table."""
    queries = _hashes(target)
    return {table: _rows(target, query) for table, query in queries.items() if table != _STATE}


def bring_up_to_date(
    reader: duckdb.DuckDBPyConnection, path: Path, written: Mapping[str, Rows]
) -> None:
    """Give the file that `write_again` wrote beside a store's file what was stored since. No one
    may write meanwhile. Rows are compared by their hashes, which takes a fifth of the time of
    writing all of them where those of the new file are known (`rows_written`)."""
    new = path.with_name(path.name + SUFFIX)
    with opened(new) as target:
        for table, query in _hashes(target).items():
            present = _rows(reader, query)
            held = written.get(table) or _rows(target, query)
            differing = _differing(present.digests, held.digests)
            gone, added = held.among(differing), present.among(differing)
            if gone:
                target.execute(
                    f"DELETE FROM internal.{table} WHERE rowid IN (SELECT unnest(?))", [gone]
                )
            if added:
                stored = reader.sql(
                    f"FROM internal.{table} WHERE rowid IN (SELECT unnest(?)) ORDER BY rowid",
                    params=[added],
                )
                target.register("batches", stored.to_arrow_reader(WRITTEN_ROWS))
                target.execute(f"INSERT INTO internal.{table} BY NAME FROM batches")
                target.unregister("batches")
        target.execute("CHECKPOINT")
    synced(new)


def _differing(present: NDArray[np.uint64], held: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The digests of which one side, each in order, has more than the other."""
    if np.array_equal(present, held):
        return present[:0]
    both = np.concatenate((present, held))
    order = np.argsort(both, kind="stable")  # joins what is in order in linear time
    digests = both[order]
    begins = np.flatnonzero(np.r_[True, digests[1:] != digests[:-1]])
    more = np.add.reduceat(np.where(order < len(present), 1, -1), begins)
    differing: NDArray[np.uint64] = digests[begins[more != 0]]
    return differing


def take_written(path: Path) -> None:
    """Put what `write_again` wrote in the place of a closed store's file, at once."""
    new = path.with_name(path.name + SUFFIX)
    for left in _logs(path):
        left.unlink(missing_ok=True)
    os.replace(new, path)
    synced(path.parent)


def discard_half(path: Path) -> None:
    """Remove what an interrupted `write_again` left alongside the store's file."""
    new = path.with_name(path.name + SUFFIX)
    for left in (new, *_logs(new)):
        left.unlink(missing_ok=True)


def _logs(path: Path) -> tuple[Path, ...]:
    """DuckDB's write-ahead logs of a file: that in use, and that of a checkpoint under way."""
    return tuple(path.with_name(path.name + end) for end in (".wal", ".wal.checkpoint"))


_SCOPED: Final = """
SELECT t.table_name FROM duckdb_tables() t JOIN duckdb_columns() c USING (database_name, table_oid)
WHERE t.database_name = 'source_0' AND t.schema_name = 'internal' AND c.column_name = 'scope'
    AND t.table_name <> 'outbox' ORDER BY 1"""


def scopes_in(sources: Sequence[Path]) -> set[str]:
    """All scopes that stores which no one has open have rows of."""
    with _attached(":memory:", sources) as connection:
        return {
            scope
            for _, source in _scoped(connection, len(sources))
            for (scope,) in connection.execute(f"SELECT DISTINCT scope FROM {source}").fetchall()
        }


def gather_store(path: Path, sources: Sequence[Path], scopes: Collection[str]) -> None:
    """Make a new store of what these stores have of these scopes. It has gone through no log: no
    cursor, nothing to be sent."""
    with _attached(path, sources) as target:
        migrate(target)
        target.execute("CREATE TEMP TABLE wanted AS SELECT unnest(?::VARCHAR[])", [[*scopes]])
        for table, source in _scoped(target, len(sources)):
            target.execute(
                f"INSERT INTO internal.{table} BY NAME FROM {source}"
                " WHERE scope IN (FROM temp.wanted)"
            )
        for number in range(len(sources)):
            target.execute(
                "INSERT OR IGNORE INTO internal.embeddings BY NAME"
                f" FROM source_{number}.internal.embeddings WHERE embedding_key IN"
                " (SELECT embedding_key FROM internal.memory_rows)"
            )
            target.execute(
                "INSERT OR IGNORE INTO internal.turn_passages BY NAME"
                f" FROM source_{number}.internal.turn_passages WHERE memory_id IN"
                " (SELECT memory_id FROM internal.memory_rows)"
            )
        target.execute(
            "INSERT INTO internal.shard_state SELECT 'write_seq',"
            " CAST(coalesce(max(write_seq), 0) AS VARCHAR) FROM internal.memory_rows"
        )
        target.execute("CHECKPOINT")


@contextmanager
def _attached(path: Path | str, sources: Sequence[Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    with opened(path) as connection:
        for number, source in enumerate(sources):
            connection.execute(f"ATTACH {quoted(str(source))} AS source_{number} (READ_ONLY)")
        yield connection


def _scoped(connection: duckdb.DuckDBPyConnection, sources: int) -> Iterator[tuple[str, str]]:
    """The tables whose rows belong to a scope, each with what has all of its rows in a source;
    without outboxes, which belong to a log."""
    for (table,) in connection.execute(_SCOPED).fetchall():
        for number in range(sources):
            yield table, f"source_{number}.internal.{SOURCES.get(table, table)}"
