"""Takes snapshots of the stores, also alongside a running worker, and restores them."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from palimpsest.ops.errors import RequestError
from palimpsest.ops.log_folder import has_log
from palimpsest.ops.opening import open_log
from palimpsest.ops.parts import SetupError, shard_folder, utc_now
from palimpsest.ops.requests import CopyRequest
from palimpsest.ops.service.queries import Queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.identity import items_of
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.stores.database.durable_files import synced
from palimpsest.stores.database.snapshot import (
    SnapshotShard,
    cursors_of,
    export_parquet,
    join_copies,
    newest_turn_of,
    restore_shard,
    shards_of,
)
from palimpsest.stores.lock import FolderLock
from palimpsest.stores.shard import DATABASE_FILE
from palimpsest.streams.logs.base import LogReader
from palimpsest.streams.sensitive.policy import Policy


def partitions_of(settings: Settings) -> int:
    """Returns the number of partitions. Raises LogError and SetupError."""
    if settings.log.kind == "kafka":
        return settings.cluster.partitions
    with open_log(settings, "read") as log:
        return log.partitions(CONVERSATION_TURNS.name)


async def take_snapshot(
    queries: Queries, numbers: Sequence[int], partitions: int, out: Path, as_parquet: bool
) -> None:
    """Writes a snapshot of the partitions `numbers`. `out` appears whole or not at all. Raises
    RequestError, also if `out` exists."""
    _check_new(out)
    with tempfile.TemporaryDirectory(
        prefix=f".{out.name}.", suffix=".partial", dir=out.parent
    ) as partial:
        folder = Path(partial)
        taken_at = utc_now()
        copies = {number: folder / f"{number}.duckdb" for number in numbers}
        for number, copy in copies.items():
            await queries.write_file(CopyRequest(number), copy)
        made = folder / "made.duckdb"
        await asyncio.to_thread(join_copies, copies, made, partitions, taken_at)
        if as_parquet:
            await asyncio.to_thread(export_parquet, made, folder / "parquet")
            made = folder / "parquet"
        for path in made.rglob("*") if as_parquet else [made]:
            synced(path)
        _check_new(out)
        made.rename(out)
        synced(out.parent)


def _check_new(out: Path) -> None:
    if out.exists():
        raise RequestError(f"{out} is there already; name another file, or remove it")
    if not out.parent.is_dir():
        raise RequestError(f"there is no folder {out.parent}; make it first")


def restore_snapshot(settings: Settings, snapshot: Path) -> list[SnapshotShard]:
    """Restores the stores of a snapshot into a data folder that has the log they were built from
    and no stores of these partitions. Each store appears whole or not at all.

    Raises RequestError, SnapshotError, SetupError, LogError and FolderInUse.
    """
    if settings.log.kind == "kafka":
        raise SetupError("on Kafka a worker makes its stores again from the topics; nothing to do")
    if not has_log(settings):
        raise RequestError(
            f"there is no log in {settings.data_dir}, and the stores go on from the log: copy it"
            " there first, as `log/log.sqlite`"
        )
    shards = shards_of(snapshot)
    with open_log(settings, "process") as log:
        for shard in shards:
            folder = shard_folder(settings, shard.partition)
            if folder.exists():
                FolderLock(folder, "shard").release()  # raises FolderInUse
                raise RequestError(f"there is a store in {folder}; move it away first")
            _check_log(log, snapshot, shard, Policy.of(settings.pii))
        for shard in shards:
            folder = shard_folder(settings, shard.partition)
            partial = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            try:
                restore_shard(snapshot, shard.partition, partial / DATABASE_FILE)
                synced(partial / DATABASE_FILE)
                partial.rename(folder)
                synced(folder.parent)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return shards


def _check_log(log: LogReader, snapshot: Path, shard: SnapshotShard, policy: Policy) -> None:
    turns = CONVERSATION_TURNS.name
    if log.partitions(turns) != shard.partitions:
        raise RequestError(
            f"the log has {log.partitions(turns)} partitions, {snapshot} is of {shard.partitions}"
        )
    number = shard.partition
    other = f"the log is not the one that {snapshot} was made from"
    for stage, topic, offset in cursors_of(snapshot, number):
        if log.end_offset(topic, number) < offset:
            raise RequestError(
                f"{other}, or a copy from before: it ends at"
                f" {topic}[{number}]@{log.end_offset(topic, number)}, and {stage} was at {offset}"
            )
    newest = newest_turn_of(snapshot, number)
    if newest is None:
        return
    item_id, offset = newest
    for record in log.read(turns, number, offset, 1):
        if record.offset != offset:
            continue  # it has expired
        try:
            # As this version reads it, and as an earlier version read it.
            taken = (policy.record(record).value, record.value)
            messages = [decode(value, CONVERSATION_TURNS, record.timestamp) for value in taken]
            found = tuple(key for message in messages for key in items_of(message).item_ids)
        except InvalidRecord:
            found = ()
        if item_id not in found:
            raise RequestError(f"{other}: another turn is at {turns}[{number}]@{offset}")
