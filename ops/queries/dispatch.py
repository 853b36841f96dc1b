"""One way to ask the stores of a folder, whether directly or through the worker that has them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa
from pydantic import JsonValue

from palimpsest.ops.queries import (
    dead_letters,
    diagnostics,
    embeddings,
    entities,
    forgetting,
    held_proposals,
    memories,
    provenance,
    scopes,
    stats,
)
from palimpsest.ops.queries import (
    recall as recalling,
)
from palimpsest.ops.queries.requests import (
    CommandRequest,
    ContextRequest,
    DeadLetterRequest,
    DeadLettersRequest,
    DiagnosticsRequest,
    DiscardRequest,
    EmbeddingsRequest,
    EntitiesRequest,
    EntityRequest,
    ExplainRequest,
    FlagsRequest,
    ForgetPreviewRequest,
    GetRequest,
    HeldProposalsRequest,
    HistoryRequest,
    ListRequest,
    NotOpenError,
    RecallRequest,
    RedriveRequest,
    Request,
    RequestError,
    ScopeRequest,
    ScopesRequest,
    SearchRequest,
    SqlRequest,
    StatsRequest,
    StatusRequest,
    WeakRequest,
)
from palimpsest.ops.queries.sources import Sources
from palimpsest.ops.queries.status import status
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.database.sql import QueryLimits, QueryRefused, read_only_query
from palimpsest.streams.in_flight import items_in_flight
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
    CommandRequest: memories.command_result,
    HistoryRequest: provenance.history,
    ExplainRequest: provenance.explain,
    EmbeddingsRequest: embeddings.embeddings,
    EntitiesRequest: entities.entities,
    EntityRequest: entities.entity,
    WeakRequest: memories.weak,
    StatsRequest: stats.stats,
    DiagnosticsRequest: diagnostics.diagnostics,
    DeadLettersRequest: dead_letters.list_dead_letters,
    DeadLetterRequest: dead_letters.show,
    HeldProposalsRequest: held_proposals.list_held,
    ScopesRequest: lambda sources, _: scopes.scopes(sources),
    FlagsRequest: scopes.flags,
}
"""What blocks: run in a thread."""


class Queries(Protocol):
    """Answers to requests. Both methods raise RequestError with what is wrong."""

    async def answer(self, request: Request) -> JsonValue: ...

    async def table(self, request: SqlRequest) -> pa.Table: ...


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
        return await asyncio.to_thread(READS[type(request)], self.sources, request)

    async def table(self, request: SqlRequest) -> pa.Table:
        with _errors_told():
            return await asyncio.to_thread(self._table, request)

    def _table(self, request: SqlRequest) -> pa.Table:
        count = self.sources.partitions
        partition = request.partition
        if partition is None:
            if count > 1:
                raise RequestError(
                    f"the memory lies in {count} partitions, each with a database of its"
                    " own; name one with --partition"
                )
            partition = 0
        if not 0 <= partition < count:
            raise RequestError(f"there is no partition {partition}; there are {count}")
        try:
            return read_only_query(
                self.sources.shard(partition),
                partial(items_in_flight, self.sources.log, partition),
                request.query,
                QueryLimits(seconds=request.seconds),
            )
        except QueryRefused as error:
            raise RequestError(str(error)) from error


@contextmanager
def _errors_told() -> Iterator[None]:
    try:
        yield
    except (StoreClosed, LogUnavailable) as error:
        raise NotOpenError(str(error)) from error
    except LogError as error:
        raise RequestError(str(error)) from error
