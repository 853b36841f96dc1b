"""One way to ask the stores of a folder, whether directly or through the worker that has them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import pyarrow as pa
from pydantic import JsonValue

from palimpsest.ops.queries import (
    dead_letters,
    held_proposals,
    memories,
    provenance,
    scopes,
)
from palimpsest.ops.queries import (
    recall as recalling,
)
from palimpsest.ops.queries.requests import (
    CommandRequest,
    ContextRequest,
    DeadLetterRequest,
    DeadLettersRequest,
    DiscardRequest,
    ExplainRequest,
    FlagsRequest,
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
    SqlRequest,
    StatusRequest,
)
from palimpsest.ops.queries.sources import Sources
from palimpsest.ops.queries.status import status
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.database.sql import QueryLimits, QueryRefused, read_only_query
from palimpsest.streams.in_flight import items_in_flight
from palimpsest.streams.logs.base import LogError, LogUnavailable


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
        match request:
            case RecallRequest():
                return await recalling.recall(self.sources, request)
            case ContextRequest():
                return await recalling.context(self.sources, request)
            case RedriveRequest():
                return await dead_letters.redrive(self.sources, request)
            case DiscardRequest():
                return await dead_letters.discard(self.sources, request)
            case StatusRequest():
                return await status(self.sources)
        return await asyncio.to_thread(self._read, request)

    def _read(self, request: Request) -> JsonValue:
        match request:
            case GetRequest():
                return memories.get(self.sources, request)
            case ListRequest():
                return memories.list_memories(self.sources, request)
            case ScopeRequest():
                return memories.scope_of(self.sources, request)
            case HistoryRequest():
                return provenance.history(self.sources, request)
            case ExplainRequest():
                return provenance.explain(self.sources, request)
            case DeadLettersRequest():
                return dead_letters.list_dead_letters(self.sources, request)
            case DeadLetterRequest():
                return dead_letters.show(self.sources, request)
            case HeldProposalsRequest():
                return held_proposals.list_held(self.sources, request)
            case CommandRequest():
                return memories.command_result(self.sources, request)
            case ScopesRequest():
                return scopes.scopes(self.sources)
            case FlagsRequest():
                return scopes.flags(self.sources, request)
        raise TypeError(f"no query answers {type(request).__name__}")

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
