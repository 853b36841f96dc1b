"""One way to ask the stores of a folder, whether directly or through the worker that has them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from palimpsest.ops.operations.operation import Json, Read
from palimpsest.ops.queries import exporting, sql
from palimpsest.ops.queries.errors import NotOpenError, RequestError
from palimpsest.ops.queries.requests import ExportRequest, SqlRequest
from palimpsest.ops.threads import in_thread_of
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.database.damage import StoreDamaged
from palimpsest.stores.database.snapshot import copy_shard
from palimpsest.streams.logs.base import LogError, LogUnavailable

if TYPE_CHECKING:
    from palimpsest.ops.queries.sources import Sources


class Queries(Protocol):
    """Answers to reads. All methods raise RequestError with what is wrong."""

    async def answer(self, operation: Read[Any]) -> Json: ...

    async def table(self, request: SqlRequest) -> pa.Table: ...

    async def copy_shard(self, partition: int, path: Path) -> None:
        """Write the tables of a partition's store to a new file, as of one moment."""
        ...

    async def export_scope(self, request: ExportRequest, path: Path) -> None:
        """Write a scope as lines to a new file, as of one moment."""
        ...


class DirectQueries:
    """Answers from open stores. Reads that block run in a thread, each with a cursor of its own."""

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
            return await sql.sql(self.sources, request)

    async def copy_shard(self, partition: int, path: Path) -> None:
        with _as_request_errors():
            shard = self.sources.shard(partition)
            await in_thread_of("export", copy_shard, shard, partition, path)

    async def export_scope(self, request: ExportRequest, path: Path) -> None:
        with _as_request_errors():
            await in_thread_of("export", exporting.export_scope, self.sources, request, path)


@contextmanager
def _as_request_errors() -> Iterator[None]:
    try:
        yield
    except (StoreClosed, LogUnavailable) as error:
        raise NotOpenError(str(error)) from error
    except (LogError, StoreDamaged) as error:
        raise RequestError(str(error)) from error
