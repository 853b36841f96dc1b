"""Copies of live stores, each as of one moment, whether a worker has them open or no one.

A copy says how far the store is, what it holds, and which vectors there are.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from palimpsest.ops.errors import RequestError, UnavailableError
from palimpsest.ops.log_folder import log_lock, worker_runs
from palimpsest.ops.parts import embedding_model, open_shard, shard_folder, shard_options
from palimpsest.ops.replay.offsets import Offsets
from palimpsest.ops.service.queries import queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import MEMORY_CHANGES
from palimpsest.stores.database.damage import StoreDamaged
from palimpsest.stores.database.snapshot import opened
from palimpsest.stores.database.view_columns import quoted
from palimpsest.stores.lock import FolderInUse
from palimpsest.stores.shard import DATABASE_FILE, StoreError
from palimpsest.streams.logs.base import LogReader
from palimpsest.streams.runtime.output import missing
from palimpsest.streams.store_port import Outbound

SENT_SECONDS = 10.0
"""How long what a running worker has committed may take to come into the log."""
LOOK_AGAIN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class LiveCopy:
    """The copy of one partition's store in a file, its tables in `schema`."""

    partition: int
    path: Path
    schema: str

    def cursors(self) -> Offsets:
        with attached({"live": self.path}) as connection:
            return _cursors(connection, f"live.{self.schema}")

    def outbox(self, connection: duckdb.DuckDBPyConnection) -> list[Outbound]:
        """What the store has committed and may not have sent."""
        return [
            Outbound(*row)
            for row in connection.execute(
                "SELECT seq, topic, scope, record_key, value FROM"
                f" live.{self.schema}.outbox ORDER BY stage, seq"
            ).fetchall()
        ]


@dataclass(frozen=True, slots=True)
class NoLiveStore:
    """There is nothing to compare with, and why."""

    partition: int
    reason: str


async def copy_live(
    settings: Settings,
    log: LogReader,
    partitions: Sequence[int],
    folder: Path,
    alone: bool = False,
) -> list[LiveCopy | NoLiveStore]:
    """A copy of each of these partitions in `folder`, with all that it tells of in the log.
    `alone`: the process has the log locked itself. Raises RequestError, also where the log lacks
    what a store has committed."""
    _emptied(folder)
    if settings.log.kind == "embedded" and (alone or not worker_runs(log_lock(settings))):
        copies = [_of_folder(settings, each, folder) for each in partitions]
    else:
        copies = await _of_worker(settings, partitions, folder)
    for number, copy in enumerate(copies):
        if not isinstance(copy, LiveCopy):
            continue
        if not any(copy.cursors().values()):
            has_more = log.end_offset(MEMORY_CHANGES.name, copy.partition) > 0
            copies[number] = NoLiveStore(copy.partition, "it is empty") if has_more else copy
            continue
        await _until_sent(log, copy)
    return copies


def _emptied(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.duckdb*"):
        old.unlink()


def live_cursors(settings: Settings, partition: int) -> Offsets | None:
    """How far the live store of a partition is that no one has open; None where it cannot be
    read."""
    if not (shard_folder(settings, partition) / DATABASE_FILE).exists():
        return None
    try:
        return cursors_in(shard_folder(settings, partition) / DATABASE_FILE)
    except duckdb.Error:
        return None


def cursors_in(file: Path) -> Offsets:
    """How far a store is that no one has open. Raises duckdb.Error."""
    with attached({"live": file}) as connection:
        return _cursors(connection, "live.internal")


def _cursors(connection: duckdb.DuckDBPyConnection, schema: str) -> Offsets:
    found: Offsets = {}
    rows = connection.execute(f"SELECT stage, topic, next_offset FROM {schema}.cursors")
    for stage, topic, offset in rows.fetchall():
        found.setdefault(stage, {})[topic] = offset
    return found


def _of_folder(settings: Settings, partition: int, folder: Path) -> LiveCopy | NoLiveStore:
    if not (shard_folder(settings, partition) / DATABASE_FILE).exists():
        return NoLiveStore(partition, "there is none")
    path = folder / f"{partition}.duckdb"
    copy = LiveCopy(partition, path, "internal")
    try:
        # No model is called here.
        shard = open_shard(settings, partition, shard_options(settings, embedding_model(settings)))
        try:
            shard.copy_file(path)
        finally:
            with contextlib.suppress(duckdb.Error):
                shard.close()
        # A damaged file is copied like any other: what is asked first must be there.
        copy.cursors()
        with attached({"live": path}) as connection:
            copy.outbox(connection)
    except (StoreError, StoreDamaged, duckdb.Error, OSError) as error:
        for left in folder.glob(f"{path.name}*"):
            left.unlink()
        return NoLiveStore(partition, unreadable(error))
    return copy


def unreadable(error: Exception) -> str:
    """Why nothing is compared with a store, in a line."""
    return f"it cannot be read: {str(error).partition(chr(10))[0]}"


async def _of_worker(
    settings: Settings, partitions: Sequence[int], folder: Path
) -> list[LiveCopy | NoLiveStore]:
    """By the workers that have the partitions; on Kafka by the folder where none has."""
    copies: list[LiveCopy | NoLiveStore] = []
    async with queries(settings) as found:
        for partition in partitions:
            path = folder / f"{partition}.duckdb"
            if settings.log.kind == "kafka":
                with contextlib.suppress(FolderInUse):
                    copies.append(_of_folder(settings, partition, folder))
                    continue
            try:
                await found.copy_shard(partition, path)
            except UnavailableError as error:
                copies.append(NoLiveStore(partition, str(error)))
            except RequestError as error:
                path.unlink(missing_ok=True)
                copies.append(NoLiveStore(partition, f"it cannot be read: {error}"))
            else:
                copies.append(LiveCopy(partition, path, f"shard_{partition}"))
    return copies


async def _until_sent(log: LogReader, copy: LiveCopy) -> None:
    with attached({"live": copy.path}) as connection:
        committed = copy.outbox(connection)
    waited = 0.0
    while missing(committed, log, copy.partition):
        if waited >= SENT_SECONDS:
            raise RequestError(
                f"the store of partition {copy.partition} has committed what the log does not have"
                " yet: a worker ended in between. Run `palimpsest run --once`, then this again"
            )
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
        waited += LOOK_AGAIN_SECONDS


@contextlib.contextmanager
def attached(files: dict[str, Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Files of stores that no one writes, by the names under which they are read."""
    with opened(":memory:") as connection:
        for name, path in files.items():
            connection.execute(f"ATTACH {quoted(str(path))} AS {name} (READ_ONLY)")
        yield connection
