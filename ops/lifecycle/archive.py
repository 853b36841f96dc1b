"""Moves old archived states of memories to the cold tier.

What moves is where a state lies, not what is remembered, so no command says it: a store that is
rebuilt from the log has all states in its table, and the same state hash."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar

import duckdb

from palimpsest.ops.scheduling.jobs import JobContext
from palimpsest.stores.database.archive import (
    IN_USE_SECONDS,
    ArchiveFile,
    files_of,
    path_of,
    remove_unnamed,
    take,
    take_rewritten,
    write_merged,
    write_oldest,
    write_purged,
)
from palimpsest.stores.shard import Shard
from palimpsest.streams.runtime.offload import in_thread

T = TypeVar("T")

TRIES: Final = 5
"""How often a file may be written for nothing because its states were erased meanwhile."""


@dataclass(slots=True)
class Moved:
    """`states` that moved to so many new `files`; small files that were `merged`; memories whose
    states in files were `dropped`: an erasure or the retention sweep had removed them."""

    states: int = 0
    files: int = 0
    merged: int = 0
    dropped: int = 0


async def archive(context: JobContext) -> str:
    """Runs as a scheduled job."""
    before = context.at - timedelta(days=context.settings.archive.after_days)
    moved = await move_states(context.shard, before)
    told = f"{moved.states} states to {moved.files} files, {moved.merged} small files merged"
    return told if moved != Moved() else "no archived state is old enough"


async def move_states(shard: Shard, before: datetime) -> Moved:
    """Moves what was archived `before` to files, a bounded number at a time, and merges small
    files. Stages wait only for the end of each. Raises duckdb.Error, OSError and StoreClosed; what
    has moved until then stays."""
    moved = Moved()
    async with shard.archiving:
        files = await _read(shard, files_of)
        await asyncio.to_thread(remove_unnamed, shard.folder, files, IN_USE_SECONDS)
        failed = 0
        while True:
            purged = await _read(shard, partial(write_purged, folder=shard.folder))
            if purged and await _named(
                shard, partial(take_rewritten, rewritten=purged), purged.new
            ):
                moved.dropped += len(purged.dropped)
            file = await _read(shard, partial(write_oldest, folder=shard.folder, before=before))
            if file is None:
                break
            if await _named(shard, partial(take, file=file), [file]):
                moved.states += file.rows
                moved.files += 1
            elif (failed := failed + 1) == TRIES:
                raise RuntimeError(f"{shard.folder}: archived states changed in {TRIES} moves")
        while merged := await _read(shard, partial(write_merged, folder=shard.folder)):
            if not await _named(shard, partial(take_rewritten, rewritten=merged), merged.new):
                break  # an erasure has replaced one: the next run merges
            moved.merged += len(merged.old)
    return moved


async def _read(shard: Shard, call: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
    def run() -> T:
        with shard.reading() as reader:
            return call(reader)

    return await asyncio.to_thread(run)


async def _named(shard: Shard, step: Callable[..., bool], files: Sequence[ArchiveFile]) -> bool:
    """Commits a step that names the files. Removes them if the step says no."""
    async with shard.lock:
        done = await in_thread(_committed, shard, step)
    for file in () if done else files:
        path_of(shard.folder, file).unlink(missing_ok=True)
    return done


def _committed(shard: Shard, step: Callable[..., bool]) -> bool:
    with shard.writing() as connection:
        connection.execute("BEGIN")
        try:
            done = step(connection, shard.folder)
            connection.execute("COMMIT" if done else "ROLLBACK")
        except BaseException:
            with contextlib.suppress(duckdb.Error):  # a commit that failed has ended it already
                connection.execute("ROLLBACK")
            raise
    return done
