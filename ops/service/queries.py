"""Answers reads for a folder: from its stores, from the worker that has them open, or from the
workers of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from palimpsest.ops import exporting
from palimpsest.ops.errors import NotOpenError, RequestError
from palimpsest.ops.operations.operation import Json, Read
from palimpsest.ops.requests import ExportRequest, SqlRequest
from palimpsest.ops.sql.queries import sql
from palimpsest.ops.threads import in_thread_of
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.database.damage import StoreDamaged
from palimpsest.stores.database.snapshot import copy_shard
from palimpsest.stores.lock import FolderInUse
from palimpsest.streams.logs.base import LogError, LogUnavailable

if TYPE_CHECKING:
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.ops.sources import Sources
    from palimpsest.streams.logs.base import Outgoing


class Queries(Protocol):
    """Answers reads. All methods raise RequestError."""

    async def answer(self, operation: Read[Any]) -> Json: ...

    async def table(self, request: SqlRequest) -> pa.Table: ...

    async def copy_shard(self, partition: int, path: Path) -> None:
        """Writes a consistent snapshot of a partition's tables to a new file."""
        ...

    async def export_scope(self, request: ExportRequest, path: Path) -> None:
        """Writes a consistent snapshot of a scope to a new file, as lines."""
        ...


class DirectQueries:
    """Answers from open stores. Blocking reads run in threads, each with its own cursor."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    async def answer(self, operation: Read[Any]) -> Json:
        with _as_request_errors():
            if operation.surface.routing == "folder":
                return await asyncio.to_thread(operation.read_folder, self.sources.settings)
            if inspect.iscoroutinefunction(operation.read):
                return await operation.read(self.sources)
            if operation.surface.overview:
                return await in_thread_of("overview", operation.read, self.sources)
            return await asyncio.to_thread(operation.read, self.sources)

    async def table(self, request: SqlRequest) -> pa.Table:
        with _as_request_errors():
            return await sql(self.sources, request)

    async def copy_shard(self, partition: int, path: Path) -> None:
        with _as_request_errors():
            shard = self.sources.shard(partition)
            await in_thread_of("export", copy_shard, shard, partition, path)

    async def export_scope(self, request: ExportRequest, path: Path) -> None:
        with _as_request_errors():
            await in_thread_of("export", exporting.export_scope, self.sources, request, path)


@contextlib.contextmanager
def _as_request_errors() -> Iterator[None]:
    try:
        yield
    except (StoreClosed, LogUnavailable) as error:
        raise NotOpenError(str(error)) from error
    except (LogError, StoreDamaged) as error:
        raise RequestError(str(error)) from error


# ---- opening it ----
PATIENCE_SECONDS = 10.0
"""Maximum wait of a reader for a starting worker, or for another reader to finish."""
LOOK_AGAIN_SECONDS = 0.05


@contextlib.asynccontextmanager
async def queries(settings: Settings) -> AsyncIterator[Queries]:
    """Opens the current owner of the folder for queries. Raises RequestError if there is nothing to
    read, and the errors of opening log and stores."""
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
    from palimpsest.ops.opening import open_log, readers
    from palimpsest.ops.sources import Sources

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
