"""The vectors of the live stores for a branch: a text that the live memory has is not embedded
again. They are copied by the hashes of their texts, and without these."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import duckdb

from palimpsest.ops.errors import RequestError
from palimpsest.ops.log_folder import log_lock, worker_runs
from palimpsest.ops.parts import shard_folder
from palimpsest.ops.replay.branches import COPIES, Branch, branch_folder, branch_settings
from palimpsest.ops.replay.live_stores import attached
from palimpsest.ops.replay.stored_embeddings import table_in
from palimpsest.ops.service.queries import queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.stores.database.view_columns import quoted
from palimpsest.stores.lock import FolderInUse, FolderLock
from palimpsest.stores.shard import DATABASE_FILE
from palimpsest.streams.logs.base import LogReader

LEAST_RECORDS: Final = 100
"""Of fewer records it costs less to embed them than to copy."""


@contextlib.asynccontextmanager
async def live_embeddings(
    settings: Settings, branch: Branch, reader: LogReader
) -> AsyncIterator[Sequence[Path]]:
    """Files with the live vectors, for the length of a block: none where the branch embeds by
    another model, or where there is little to embed. A live store that cannot be read has none."""
    folder = branch_folder(settings, branch.name) / COPIES
    shutil.rmtree(folder, ignore_errors=True)
    own = branch_settings(settings, branch)
    if own.embedding_model != settings.embedding_model or _behind(branch, reader) < LEAST_RECORDS:
        yield ()
        return
    folder.mkdir(parents=True)
    try:
        yield await _copied(settings, range(branch.partitions), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _behind(branch: Branch, reader: LogReader) -> int:
    return sum(
        reader.end_offset(MEMORY_WRITES.name, number) - branch.read_through.get(number, 0)
        for number in range(branch.partitions)
    )


async def _copied(settings: Settings, partitions: Sequence[int], folder: Path) -> list[Path]:
    copies = []
    if settings.log.kind == "embedded" and not worker_runs(log_lock(settings)):
        for partition in partitions:
            with contextlib.suppress(FolderInUse, duckdb.Error, OSError):
                copies.append(_of_store(shard_folder(settings, partition), partition, folder))
        return copies
    async with queries(settings) as found:
        for partition in partitions:
            whole = folder / f"{partition}.whole.duckdb"
            with contextlib.suppress(RequestError, duckdb.Error, OSError):
                await found.copy_shard(partition, whole)
                copies.append(_vectors_of(whole, partition, folder))
            whole.unlink(missing_ok=True)
    return copies


def _of_store(store: Path, partition: int, folder: Path) -> Path:
    lock = FolderLock(store, "shard")
    try:
        return _vectors_of(store / DATABASE_FILE, partition, folder)
    finally:
        lock.release()


def _vectors_of(store: Path, partition: int, folder: Path) -> Path:
    path = folder / f"{partition}.duckdb"
    with attached({"live": store}) as connection:
        connection.execute(f"ATTACH {quoted(str(path))} AS vectors")
        table = table_in(connection, "embeddings")
        connection.execute(f"CREATE TABLE vectors.embeddings AS FROM live.{table}")
    return path
