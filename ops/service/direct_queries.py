"""Answers reads from the stores that are open in this process."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from palimpsest.ops.errors import NotOpenError, RequestError
from palimpsest.ops.operations.awaited_results import awaited_commands
from palimpsest.ops.operations.operation import Json, Read
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.requests import ExportRequest, FileRequest, JsonObject, SqlRequest
from palimpsest.ops.service.exporting import export_scope
from palimpsest.ops.service.sql_queries import sql
from palimpsest.ops.threads import in_thread_of
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.database.damage import StoreDamaged
from palimpsest.stores.database.snapshot import copy_shard
from palimpsest.streams.logs.base import LogError, LogUnavailable


class DirectQueries:
    """Answers from open stores. Blocking reads run in threads, each with its own cursor."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self._results = awaited_commands(sources)

    async def answer(self, operation: Read[Any]) -> Json:
        with _as_request_errors():
            if operation.surface.routing == "folder":
                answer = await asyncio.to_thread(operation.read_folder, self.sources.settings)
            elif inspect.iscoroutinefunction(operation.read):
                answer = await operation.read(self.sources)
            elif operation.surface.overview:
                answer = await in_thread_of("overview", operation.read, self.sources)
            else:
                answer = await asyncio.to_thread(operation.read, self.sources)
        self.sources.accesses.note(operation.accessed(answer), self.sources.now())
        return answer

    async def result(self, command_id: str, scope: str, seconds: float) -> JsonObject | None:
        with _as_request_errors():
            self.sources.shard_of(scope)
            return (await self._results.within([command_id], seconds)).get(command_id)

    async def table(self, request: SqlRequest) -> pa.Table:
        with _as_request_errors():
            return await sql(self.sources, request)

    async def write_file(self, request: FileRequest, path: Path) -> None:
        with _as_request_errors():
            if isinstance(request, ExportRequest):
                await in_thread_of("export", export_scope, self.sources, request, path)
            else:
                shard = self.sources.shard(request.partition)
                await in_thread_of("export", copy_shard, shard, request.partition, path)


@contextlib.contextmanager
def _as_request_errors() -> Iterator[None]:
    try:
        yield
    except (StoreClosed, LogUnavailable) as error:
        raise NotOpenError(str(error)) from error
    except (LogError, StoreDamaged) as error:
        raise RequestError(str(error)) from error
