"""One way to ask the stores of a folder, whether directly or through the worker that has them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
from pydantic import JsonValue

from palimpsest.ops.queries import (
    agreement,
    command_results,
    dead_letters,
    diagnostics,
    documents,
    embeddings,
    entities,
    exporting,
    forgetting,
    held_proposals,
    memories,
    privacy,
    provenance,
    scopes,
    sessions,
    sql,
    stats,
)
from palimpsest.ops.queries import (
    recall as recalling,
)
from palimpsest.ops.queries.errors import NotOpenError, RequestError
from palimpsest.ops.queries.replay_requests import AboutReplays
from palimpsest.ops.queries.requests import (
    AgreementRequest,
    CommandRequest,
    ContextRequest,
    DeadLetterRequest,
    DeadLettersRequest,
    DiagnosticsRequest,
    DiscardRequest,
    DocumentChunksRequest,
    DocumentRequest,
    DocumentsRequest,
    EmbeddingsRequest,
    EntitiesRequest,
    EntityRequest,
    ExplainRequest,
    ExportRequest,
    FlagsRequest,
    ForgetPreviewRequest,
    GetRequest,
    HeldProposalsRequest,
    HistoryRequest,
    ListRequest,
    PrivacyRequest,
    RecallRequest,
    RedriveRequest,
    Request,
    ScopeRequest,
    ScopesRequest,
    SearchRequest,
    SessionMemoryRequest,
    SessionsRequest,
    SqlRequest,
    StatsRequest,
    StatusRequest,
    WeakRequest,
)
from palimpsest.ops.queries.sources import Sources
from palimpsest.ops.queries.status import status
from palimpsest.ops.threads import in_thread_of
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.database.damage import StoreDamaged
from palimpsest.stores.database.snapshot import copy_shard
from palimpsest.streams.logs.base import LogError, LogUnavailable

WAITED: Final[Mapping[type[Request], Callable[[Sources, Any], Awaitable[JsonValue]]]] = {
    RecallRequest: recalling.recall,
    SearchRequest: recalling.search,
    ContextRequest: recalling.context,
    ForgetPreviewRequest: forgetting.preview,
    RedriveRequest: dead_letters.redrive,
    DiscardRequest: dead_letters.discard,
    StatusRequest: lambda sources, _: status(sources),
}
READS: Final[Mapping[type[Request], Callable[[Sources, Any], JsonValue]]] = {
    GetRequest: memories.get,
    ListRequest: memories.list_memories,
    ScopeRequest: memories.scope_of,
    CommandRequest: command_results.command_result,
    HistoryRequest: provenance.history,
    ExplainRequest: provenance.explain,
    EmbeddingsRequest: embeddings.embeddings,
    EntitiesRequest: entities.entities,
    EntityRequest: entities.entity,
    WeakRequest: memories.weak,
    StatsRequest: stats.stats,
    AgreementRequest: agreement.agreement,
    DiagnosticsRequest: diagnostics.diagnostics,
    DeadLettersRequest: dead_letters.list_dead_letters,
    DeadLetterRequest: dead_letters.show,
    HeldProposalsRequest: held_proposals.list_held,
    ScopesRequest: lambda sources, _: scopes.scopes(sources),
    FlagsRequest: scopes.flags,
    PrivacyRequest: privacy.levels,
    DocumentRequest: documents.document,
    DocumentsRequest: documents.list_documents,
    DocumentChunksRequest: documents.chunks,
    SessionsRequest: sessions.sessions,
    SessionMemoryRequest: sessions.session_memory,
}
"""What blocks: run in a thread."""
OVERVIEWS: Final = (
    *(AgreementRequest, DiagnosticsRequest, EmbeddingsRequest, ScopesRequest, StatsRequest),
)
"""Those that read all there is."""


class Queries(Protocol):
    """Answers to requests. All methods raise RequestError with what is wrong."""

    async def answer(self, request: Request) -> JsonValue: ...

    async def table(self, request: SqlRequest) -> pa.Table: ...

    async def copy_shard(self, partition: int, path: Path) -> None:
        """Write the tables of a partition's store to a new file, as of one moment."""
        ...

    async def export_scope(self, request: ExportRequest, path: Path) -> None:
        """Write a scope as lines to a new file, as of one moment."""
        ...


class DirectQueries:
    """Answers from open stores. Store reads run in a thread, each with a cursor of its own."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    async def answer(self, request: Request) -> JsonValue:
        with _errors_told():
            return await self._answer(request)

    async def _answer(self, request: Request) -> JsonValue:
        waited = WAITED.get(type(request))
        if waited is not None:
            return await waited(self.sources, request)
        if isinstance(request, AboutReplays):
            # With all of replaying: only when it is asked about.
            from palimpsest.ops.queries.replays import ABOUT_REPLAYS

            about = ABOUT_REPLAYS[type(request)]
            return await asyncio.to_thread(about, self.sources.settings, request)
        read = READS[type(request)]
        if isinstance(request, OVERVIEWS):
            return await in_thread_of("overview", read, self.sources, request)
        return await asyncio.to_thread(read, self.sources, request)

    async def table(self, request: SqlRequest) -> pa.Table:
        with _errors_told():
            return await sql.sql(self.sources, request)

    async def copy_shard(self, partition: int, path: Path) -> None:
        with _errors_told():
            shard = self.sources.shard(partition)
            await in_thread_of("export", copy_shard, shard, partition, path)

    async def export_scope(self, request: ExportRequest, path: Path) -> None:
        with _errors_told():
            await in_thread_of("export", exporting.export_scope, self.sources, request, path)


@contextmanager
def _errors_told() -> Iterator[None]:
    try:
        yield
    except (StoreClosed, LogUnavailable) as error:
        raise NotOpenError(str(error)) from error
    except (LogError, StoreDamaged) as error:
        raise RequestError(str(error)) from error
