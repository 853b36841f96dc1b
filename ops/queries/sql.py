"""Queries in SQL: of one partition, or of all together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa

from palimpsest.ops.queries.errors import (
    RequestError,
    SqlInvalidError,
    SqlRefusedError,
    SqlTooLargeError,
    SqlTooSlowError,
)
from palimpsest.ops.queries.requests import SqlRequest
from palimpsest.ops.queries.sources import Sources
from palimpsest.stores.database.sql import (
    QueryLimits,
    QueryTooLarge,
    QueryTooSlow,
    read_only_query,
)
from palimpsest.stores.database.sql_check import QueryInvalid, QueryRefused
from palimpsest.stores.database.sql_united import UnitedQuery
from palimpsest.streams.in_flight import items_in_flight

MAX_SECONDS = 3600.0
MAX_ROWS = 10_000_000
LEAST_SECONDS = 0.001
_KINDS = {
    QueryInvalid: SqlInvalidError,
    QueryTooSlow: SqlTooSlowError,
    QueryTooLarge: SqlTooLargeError,
}


def sql(sources: Sources, request: SqlRequest) -> pa.Table:
    """The result of the request's query; runs until it is there. Raises RequestError."""
    limits = limits_of(request)
    number = numbered(request, sources.partitions)
    with refusals_told():
        if number is not None:
            return _of_one(sources, number, request.query, limits)
        deadline = time.monotonic() + limits.seconds
        with UnitedQuery(request.query) as united:
            if united.part is None:
                return _of_one(sources, 0, request.query, limits)
            parts = [
                _of_one(sources, each, united.part, rest(limits, deadline))
                for each in range(sources.partitions)
            ]
            return united.answer(parts, rest(limits, deadline))


def numbered(request: SqlRequest, partitions: int) -> int | None:
    """The one partition to ask; None for all. Raises RequestError for one that there is not."""
    number = 0 if request.partition is None and partitions == 1 else request.partition
    if number is not None and not 0 <= number < partitions:
        raise RequestError(f"there is no partition {number}; there are {partitions}")
    return number


def limits_of(request: SqlRequest) -> QueryLimits:
    """The limits of a request. Raises RequestError for those that nobody may ask for."""
    if not 0 < request.seconds <= MAX_SECONDS:
        raise RequestError(f"a query may take up to {MAX_SECONDS:g} seconds, not {request.seconds}")
    if not 0 < request.rows <= MAX_ROWS:
        raise RequestError(f"a query may return up to {MAX_ROWS} rows, not {request.rows}")
    return QueryLimits(request.seconds, request.rows)


def rest(limits: QueryLimits, deadline: float) -> QueryLimits:
    """The limits with the time that is left."""
    return replace(limits, seconds=max(LEAST_SECONDS, deadline - time.monotonic()))


@contextmanager
def refusals_told() -> Iterator[None]:
    """Turns a refused query into a RequestError of its kind."""
    try:
        yield
    except QueryRefused as error:
        raise _KINDS.get(type(error), SqlRefusedError)(str(error)) from error


def _of_one(sources: Sources, number: int, query: str, limits: QueryLimits) -> pa.Table:
    find_items = partial(items_in_flight, sources.log, number, sources.admit)
    return read_only_query(sources.shard(number), find_items, query, limits, number)
