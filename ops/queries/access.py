"""Reaching a folder's memory for reading: the stores themselves, or the worker that holds them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from palimpsest.ops.queries.errors import RequestError
from palimpsest.stores.lock import FolderInUse

if TYPE_CHECKING:
    from palimpsest.ops.queries.dispatch import Queries
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.streams.logs.base import Outgoing

PATIENCE_SECONDS = 10.0
"""How long a reader waits for a worker that is starting, or for another reader to finish."""
LOOK_AGAIN_SECONDS = 0.05


@contextlib.asynccontextmanager
async def queries(settings: Settings) -> AsyncIterator[Queries]:
    """Whoever can answer for the folder now. Raises RequestError when there is nothing to read,
    and what opening log and stores raises."""
    from palimpsest.ops.log_folder import has_log, log_lock, worker_runs

    if settings.log.kind == "kafka":
        async with _of_cluster(settings) as routed:
            yield routed
        return
    if not has_log(settings):
        raise RequestError(
            f"there is no memory in {settings.data_dir} yet; publish turns with `palimpsest"
            " ingest FILE`, or name another folder with --data-dir"
        )
    deadline = time.monotonic() + PATIENCE_SECONDS
    async with contextlib.AsyncExitStack() as undo:
        while True:
            late = time.monotonic() > deadline
            found = (
                await _of_worker(settings, undo, late)
                if worker_runs(log_lock(settings))
                else await _of_folder(settings, undo, late)
            )
            if found is not None:
                break
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        yield found


@contextlib.asynccontextmanager
async def _of_cluster(settings: Settings) -> AsyncIterator[Queries]:
    from palimpsest.ops.service.routing import RoutedQueries

    routed = RoutedQueries(settings, settings.cluster.partitions)
    try:
        yield routed
    finally:
        await routed.close()


async def _of_worker(
    settings: Settings, undo: contextlib.AsyncExitStack, late: bool
) -> Queries | None:
    from palimpsest.ops.service.announcement import announced
    from palimpsest.ops.service.client import NotThereError, RemoteQueries

    announcement = announced(settings.data_dir)
    if announcement is not None:
        remote = RemoteQueries.announced(announcement)
        try:
            await remote.ping()
        except NotThereError:
            await remote.close()
        else:
            undo.push_async_callback(remote.close)
            return remote
    if late:
        raise RequestError(
            f"a process works on {settings.data_dir} but does not answer; stop it, or ask from"
            " where it runs (its local interface listens on this machine only)"
        )
    return None


async def _of_folder(
    settings: Settings, undo: contextlib.AsyncExitStack, late: bool
) -> Queries | None:
    from palimpsest.ops.embedded import open_log, readers
    from palimpsest.ops.queries.dispatch import DirectQueries
    from palimpsest.ops.queries.sources import Sources

    try:
        opened = await undo.enter_async_context(readers(settings))
    except FolderInUse:
        if late:
            raise
        return None

    def append(outgoing: Sequence[Outgoing]) -> object:
        with open_log(settings, "publish") as log:
            return log.append(outgoing)

    shards = dict(enumerate(opened.shards))
    sources = Sources(settings, opened.log, shards, len(shards), opened.embedding, append)
    undo.callback(sources.sql.close)
    return DirectQueries(sources)
