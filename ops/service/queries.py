"""Opens what answers reads for a folder: its stores, the worker that has them open, or the workers
of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from palimpsest.ops.errors import RequestError, UnavailableError
from palimpsest.ops.operations.operation import Json, Read
from palimpsest.ops.requests import FileRequest, JsonObject, SqlRequest
from palimpsest.stores.lock import FolderInUse

if TYPE_CHECKING:
    import pyarrow as pa

    from palimpsest.ops.settings.sections import Settings
    from palimpsest.streams.logs.base import Outgoing


class Queries(Protocol):
    """Answers reads. All methods raise RequestError."""

    async def answer(self, operation: Read[Any]) -> Json: ...

    async def result(self, command_id: str, scope: str, seconds: float) -> JsonObject | None:
        """Waits for the stored result of a scope's command; None if there is none by then."""
        ...

    async def table(self, request: SqlRequest) -> pa.Table: ...

    async def write_file(self, request: FileRequest, path: Path) -> None:
        """Writes a consistent snapshot to a new file."""
        ...


PATIENCE_SECONDS = 10.0
"""Maximum wait of a reader for a starting worker, or for another reader to finish."""
LOOK_AGAIN_SECONDS = 0.05


@contextlib.asynccontextmanager
async def queries(settings: Settings) -> AsyncIterator[Queries]:
    """Opens the current owner of the folder for queries. Raises RequestError if there is nothing to
    read, and the errors of opening log and stores."""
    from palimpsest.ops.log_folder import has_log, log_lock, lost_log
    from palimpsest.streams.logs.file_lock import is_held

    async with contextlib.AsyncExitStack() as undo:
        if settings.log.kind == "kafka":
            from palimpsest.ops.service.routing import RoutedQueries

            routed = RoutedQueries(settings, settings.cluster.partitions)
            undo.push_async_callback(routed.close)
            yield routed
            return
        if (lost := lost_log(settings)) is not None:
            raise RequestError(": ".join(lost))
        if not has_log(settings):
            raise RequestError(_without_log(settings.data_dir))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            late = time.monotonic() > deadline
            found = (
                await _of_worker(settings, undo, late)
                if is_held(log_lock(settings))
                else await _of_folder(settings, undo, late)
            )
            if found is not None:
                break
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        yield found


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
        raise UnavailableError(
            f"a process works on {settings.data_dir} but does not answer; if it is busy, try again;"
            " stop it, or ask from where it runs (its local interface listens on this machine only)"
        )
    return None


async def _of_folder(
    settings: Settings, undo: contextlib.AsyncExitStack, late: bool
) -> Queries | None:
    from palimpsest.ops.opening import open_log, readers
    from palimpsest.ops.reading.sources import Sources
    from palimpsest.ops.service.direct_queries import DirectQueries

    try:
        opened = await undo.enter_async_context(readers(settings))
    except FolderInUse:
        if late:
            raise
        return None

    def append(outgoing: Sequence[Outgoing]) -> object:
        with open_log(settings, "publish") as log:
            return log.append(outgoing)

    shards = opened.shards
    sources = Sources(settings, opened.log, shards, len(shards), opened.embedding, append)
    undo.push_async_callback(sources.embeddings.close)
    undo.callback(sources.sql.close)
    return DirectQueries(sources)


def _without_log(folder: Path) -> str:
    """What to say of a data folder without a log."""
    if folder.is_file():
        return f"{folder} is a file, not a folder; name the data folder with --data-dir"
    return (
        f"there is no memory in {folder} yet; publish turns with `palimpsest ingest FILE`, or name"
        " another folder with --data-dir"
    )
