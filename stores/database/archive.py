"""The cold tier: old archived states of memories in Parquet files alongside the store's file.

The store names its files, in the same transaction that deletes their rows from `memory_archive` or
replaces a file by another one, so that a state counts once at any moment. A file never changes, and
no name is used twice. One that the store does not name is left over: `remove_unnamed` deletes it.
Everything reads the view `archived_states`, which has the rows of the table and of these files.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import duckdb

from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.normal_forms import content_hash
from palimpsest.schemas.rows.columns import columns_of
from palimpsest.schemas.rows.memories import ArchiveRow
from palimpsest.stores.database.durable_files import synced
from palimpsest.stores.database.view_columns import quoted

FOLDER: Final = "archive"
FILES_STATE: Final = "archive_files"
"""What a store remembers of the files that it has."""
GONE: Final = "archive_gone"
"""Table of memories whose states in files are dropped."""
FILE_ROWS: Final = 20_000
"""Maximum number of states in a file: sorting them takes less than the 64 MiB of the smallest
database."""
GROUP_ROWS: Final = 4_000
"""Maximum number of states that are read at once, where the first and last ids tell which."""
MERGED_FILES: Final = 4
"""Minimum number of small files that are merged into one."""
IN_USE_SECONDS: Final = 3_600.0
"""How long a file that was merged is kept for those who began to read it before."""

_COLUMNS: Final = ", ".join(columns_of(ArchiveRow))
_IN_TABLE: Final = f"SELECT {_COLUMNS} FROM internal.{ArchiveRow.TABLE}"
_SORTED: Final = "ORDER BY scope, memory_id, version"
_OLDEST: Final = f"""
WITH chosen AS (SELECT memory_id, version FROM {ArchiveRow.TABLE}
    WHERE archived_at < $before {_SORTED} LIMIT {FILE_ROWS})
SELECT {_COLUMNS} FROM {ArchiveRow.TABLE} JOIN chosen USING (memory_id, version)"""


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file of the cold tier: its name in the folder, its states and its size. `newest` is when
    the newest of its states was archived, in seconds since 1970."""

    name: str
    rows: int
    bytes: int
    newest: float


def files_of(connection: duckdb.DuckDBPyConnection) -> tuple[ArchiveFile, ...]:
    """Returns the files that the store names."""
    row = connection.execute(
        "SELECT value FROM internal.shard_state WHERE name = ?", [FILES_STATE]
    ).fetchone()
    return tuple(ArchiveFile(**each) for each in json.loads(row[0])) if row else ()


def path_of(folder: Path, file: ArchiveFile) -> Path:
    """Returns the whole path of a file of the shard in `folder`."""
    return (folder / FOLDER / file.name).absolute()


def paths_of(folder: Path, files: Iterable[ArchiveFile]) -> list[str]:
    return [str(path_of(folder, each)) for each in files]


def states_query(folder: Path | None = None, files: Sequence[ArchiveFile] = ()) -> str:
    """Returns the query of the view `archived_states`."""
    if folder is None or not files:
        return _IN_TABLE
    return (
        f"{_IN_TABLE} UNION ALL"
        f" {_in_files(paths_of(folder, files))} ANTI JOIN internal.{GONE} USING (memory_id)"
    )


def _in_files(paths: Sequence[str]) -> str:
    return f"SELECT {_COLUMNS} FROM read_parquet([{', '.join(map(quoted, paths))}])"


def name_files(
    connection: duckdb.DuckDBPyConnection, folder: Path, files: Sequence[ArchiveFile]
) -> None:
    """Makes these the files of the store, in the running transaction."""
    connection.execute(
        "INSERT OR REPLACE INTO internal.shard_state VALUES (?, ?)",
        [FILES_STATE, json.dumps([asdict(each) for each in files])],
    )
    query = states_query(folder, files)
    connection.execute(f"CREATE OR REPLACE VIEW internal.{ArchiveRow.SOURCE} AS {query}")


def missing_files(folder: Path, files: Iterable[ArchiveFile]) -> list[str]:
    """Returns the names of those files that are not there."""
    return [each.name for each in files if not path_of(folder, each).exists()]


def remove_unnamed(folder: Path, files: Iterable[ArchiveFile], unused_for: float = 0.0) -> None:
    """Deletes what lies in the folder and the store does not name: what a crash, an erasure or a
    merge left. With `unused_for`, only what has not changed for so many seconds."""
    named = {each.name for each in files}
    for path in (folder / FOLDER).glob("*"):
        if path.name not in named and time.time() - path.stat().st_mtime >= unused_for:
            path.unlink(missing_ok=True)


def write_oldest(
    connection: duckdb.DuckDBPyConnection, folder: Path, before: datetime
) -> ArchiveFile | None:
    """Writes the first states that were archived `before` to a file that no one names yet; None if
    there are none. Raises duckdb.Error and OSError."""
    return _write(connection, folder, _OLDEST, {"before": before})


def take(connection: duckdb.DuckDBPyConnection, folder: Path, file: ArchiveFile) -> bool:
    """Deletes the file's states from the table and names the file, in the running transaction.
    Returns False if any has gone since the file was written, as by an erasure: roll back then, and
    write another file."""
    states = _in_files(paths_of(folder, [file]))
    deleted = connection.execute(
        f"DELETE FROM {ArchiveRow.TABLE} WHERE (memory_id, version) IN"
        f" (SELECT (memory_id, version) FROM ({states}))"
        f" AND memory_id NOT IN (FROM {GONE})"
    ).fetchall()
    if deleted != [(file.rows,)]:
        return False
    name_files(connection, folder, (*files_of(connection), file))
    return True


def drop_states(
    connection: duckdb.DuckDBPyConnection, scope: str, memory_ids: Sequence[str]
) -> None:
    """Deletes all archived states of memories of a scope, in the running transaction. Those in
    files are left out from then on, until a purge replaces the files."""
    given = {"scope": scope, "ids": [*memory_ids]}
    connection.execute(
        f"DELETE FROM {ArchiveRow.TABLE}"
        " WHERE scope = $scope AND memory_id IN (SELECT unnest($ids))",
        given,
    )
    if files_of(connection):
        connection.execute(
            f"INSERT OR IGNORE INTO {GONE} SELECT DISTINCT unnest(?::VARCHAR[])", [given["ids"]]
        )


def redact_states(
    connection: duckdb.DuckDBPyConnection, scope: str, marks: Mapping[tuple[str, str], str]
) -> list[tuple[str, str]]:
    """Replaces texts by marks in the archived states of memories, in the running transaction;
    `marks` are by memory and text. Returns the memories with the keys of the texts' vectors."""
    ids = sorted({memory_id for memory_id, _ in marks})
    states = connection.execute(
        f"SELECT {_COLUMNS} FROM {ArchiveRow.SOURCE}"
        " WHERE scope = ? AND memory_id IN (SELECT unnest(?)) ORDER BY memory_id, version",
        [scope, ids],
    ).fetchall()
    names = [*columns_of(ArchiveRow)]
    rows = [dict(zip(names, state, strict=True)) for state in states]
    keys = []
    for row in rows:
        mark = marks.get((row["memory_id"], row["content"]))
        if mark is not None:
            state = json.loads(row["state"])
            keys.append((row["memory_id"], str(state["embedding_key"])))
            state |= {"content": mark, "normalized_content": mark, "dedup_key": None}
            state |= {"content_hash": content_hash(mark), "embedding_key": embedding_key(mark)}
            state["categories"] = []
            row["content"] = mark
            row["state"] = json.dumps(state, sort_keys=True, ensure_ascii=False)
    # Those in files can only be dropped with all others of the memory.
    drop_states(connection, scope, ids)
    places = ", ".join("?" for _ in names)
    for row in rows:
        connection.execute(
            f"INSERT INTO {ArchiveRow.TABLE} ({_COLUMNS}) VALUES ({places})", [*row.values()]
        )
    return keys


@dataclass(frozen=True, slots=True)
class Rewritten:
    """`new` files, which no one names yet, that take the place of `old` ones; they lack the states
    of the `dropped` memories."""

    old: tuple[ArchiveFile, ...]
    new: tuple[ArchiveFile, ...]
    dropped: tuple[str, ...] = ()


def write_merged(connection: duckdb.DuckDBPyConnection, folder: Path) -> Rewritten | None:
    """Writes the states of small files, at least MERGED_FILES, to one; None if there are too
    few."""
    small: list[ArchiveFile] = []
    for each in sorted(files_of(connection), key=lambda file: (file.rows, file.name)):
        if sum(file.rows for file in small) + each.rows > FILE_ROWS:
            break
        small.append(each)
    if len(small) < MERGED_FILES:
        return None
    merged = _write(connection, folder, _in_files(paths_of(folder, small)))
    return Rewritten(tuple(small), (merged,) if merged else ())


def write_purged(connection: duckdb.DuckDBPyConnection, folder: Path) -> Rewritten | None:
    """Writes the files that have states of dropped memories again, without these; None if no
    memory was dropped."""
    ids = [key for (key,) in connection.execute(f"FROM {GONE}").fetchall()]
    if not ids:
        return None
    files = files_of(connection)
    held: set[str] = set()
    if files:
        found = connection.execute(
            "SELECT DISTINCT filename FROM read_parquet($paths, filename = true)"
            " WHERE memory_id IN (SELECT unnest($ids))",
            {"ids": ids, "paths": paths_of(folder, files)},
        )
        held = {Path(path).name for (path,) in found.fetchall()}
    old = tuple(file for file in files if file.name in held)
    left = "WHERE memory_id NOT IN (SELECT unnest($ids))"
    queries = [f"{_in_files(paths_of(folder, [file]))} {left}" for file in old]
    new = [_write(connection, folder, query, {"ids": ids}) for query in queries]
    return Rewritten(old, tuple(filter(None, new)), tuple(ids))


def take_rewritten(
    connection: duckdb.DuckDBPyConnection, folder: Path, rewritten: Rewritten
) -> bool:
    """Names the new files in the place of the old ones, in the running transaction. Returns False
    if the store has no longer all of the old ones."""
    known = files_of(connection)
    if not set(rewritten.old) <= set(known):
        return False
    for path in paths_of(folder, rewritten.old):
        os.utime(path)  # `remove_unnamed` counts from now
    left = [each for each in known if each not in rewritten.old]
    name_files(connection, folder, [*left, *rewritten.new])
    connection.execute(
        f"DELETE FROM {GONE} WHERE memory_id IN (SELECT unnest(?::VARCHAR[]))",
        [[*rewritten.dropped]],
    )
    return True


def drop_repeats(
    connection: duckdb.DuckDBPyConnection, folder: Path, staged: Collection[ArchiveRow]
) -> None:
    """Deletes from the table what was written now and is in a file already, as by a second import;
    in the running transaction."""
    files = [
        each
        for each in (files_of(connection) if staged else ())
        if any(row.archived_at.timestamp() <= each.newest for row in staged)
    ]
    if files:
        connection.execute(
            f"DELETE FROM {ArchiveRow.TABLE} WHERE memory_id IN (SELECT unnest($ids)) AND"
            " (memory_id, version) IN (SELECT (memory_id, version) FROM read_parquet($paths)"
            f" WHERE memory_id IN (SELECT unnest($ids)) AND memory_id NOT IN (FROM {GONE}))",
            {"ids": [row.memory_id for row in staged], "paths": paths_of(folder, files)},
        )


def _write(
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    query: str,
    given: Mapping[str, object] | None = None,
) -> ArchiveFile | None:
    """Writes the query's states to a new file, whole and on the disk; None if there are none."""
    (folder / FOLDER).mkdir(exist_ok=True)
    path = folder / FOLDER / f"{uuid.uuid4().hex}.parquet"
    partial = path.with_suffix(".partial")
    connection.execute(
        f"COPY ({query} {_SORTED}) TO {quoted(str(partial.absolute()))} (FORMAT parquet,"
        f" COMPRESSION zstd, ROW_GROUP_SIZE {GROUP_ROWS})",
        {**(given or {})},
    )
    [(rows, newest)] = connection.execute(
        "SELECT count(*), epoch(max(archived_at)) FROM read_parquet(?)", [str(partial.absolute())]
    ).fetchall()
    if not rows:
        partial.unlink()
        return None
    synced(partial)
    partial.replace(path)
    synced(path.parent)
    synced(folder)
    return ArchiveFile(path.name, rows, path.stat().st_size, newest)
