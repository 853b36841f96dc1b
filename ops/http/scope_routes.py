"""Routes that are not operations: export and import of a whole scope, export of vectors, events as
they happen, SQL."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Annotated, Any, Final, Literal

import pyarrow as pa
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field
from starlette.concurrency import iterate_in_threadpool

from palimpsest.ops.errors import RequestError
from palimpsest.ops.http import answers
from palimpsest.ops.http.problems import Problem
from palimpsest.ops.http.routing import (
    JSON_TYPE,
    NDJSON_TYPE,
    WITH_BODY,
    errors,
    media_type,
    router,
)
from palimpsest.ops.http.service import (
    ActorHeader,
    Administrator,
    Analyst,
    Recaller,
    Service,
    ServiceOf,
    WaitSeconds,
)
from palimpsest.ops.http.tokens import LOCAL, Caller, CallerAccess
from palimpsest.ops.operations.checking import Strict
from palimpsest.ops.operations.lifecycle.pipeline import Status
from palimpsest.ops.operations.memories import Embeddings, MemoryVector
from palimpsest.ops.operations.operation import Json
from palimpsest.ops.requests import ExportRequest, SqlRequest
from palimpsest.ops.service.importing import Importer
from palimpsest.ops.sql.output import FORMS, json_value
from palimpsest.ops.worker.local import read_parts, written
from palimpsest.schemas.codec import decode
from palimpsest.schemas.envelope import Scope
from palimpsest.schemas.messages import HistoryEvent
from palimpsest.schemas.topics import ALL_TOPICS, MEMORY_HISTORY
from palimpsest.stores.database.derivations import TOLD
from palimpsest.streams.logs.base import LogReader, Position, partition_for

routes: APIRouter = router("scopes")

_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            NDJSON_TYPE: {"schema": {"type": "string", "description": "what export wrote"}}
        },
    }
}


@routes.get(
    "/scopes/{scope:path}/export",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {NDJSON_TYPE: {"schema": {"type": "string"}}},
            "description": "A header, the lines of the scope, and a last line that counts them",
        },
        **errors("not_found"),
    },
)
async def export(
    service: ServiceOf,
    caller: Recaller,
    scope: Scope,
    deleted: Annotated[bool, Query(description="also what was forgotten")] = False,
) -> Response:
    """Export everything that a scope remembers, from a consistent snapshot."""
    request = ExportRequest(caller.scope(scope), deleted)
    folder = service.settings.data_dir
    service.streams.check(caller.id)
    file = await written(lambda path: service.queries.write_file(request, path), folder)
    size = os.fstat(file.fileno()).st_size
    # With a Content-Length, so that the client detects a truncated export.
    headers = {"Content-Length": str(size), "Cache-Control": "no-store"}
    sent = service.streams.counted(caller.id, iterate_in_threadpool(read_parts(file)))
    return StreamingResponse(sent, media_type=NDJSON_TYPE, headers=headers)


@routes.post(
    "/scopes/{scope:path}/import",
    response_model=answers.Imported,
    responses={
        202: {"model": answers.Imported, "description": "Not all applied yet"},
        **errors("too_large", "unsupported_media_type", "conflict", "not_found"),
    },
    openapi_extra=_BODY,
)
async def import_scope(
    service: ServiceOf,
    caller: Administrator,
    scope: Scope,
    request: Request,
    wait: WaitSeconds = None,
    actor_type: ActorHeader = None,
) -> Response:
    """Import an exported file into a scope, without calling a model.

    Existing memories stay unchanged, so a file may be sent again. Refused lines are listed by
    number, and the others are imported.
    """
    media_type(request, NDJSON_TYPE)
    await service.check_room(caller)
    importer = Importer(
        service.commands_of(partial(service.append_of, caller, begun=True)),
        caller.scope(scope),
        CallerAccess(caller, actor_type).actor,
        service.settings.http.wait_seconds if wait is None else wait,
        service.settings.log.max_record_bytes,
    )
    imported = await importer.take(request.stream())
    return JSONResponse(imported.as_json(), 202 if imported.pending else 200)


@routes.get(
    "/embeddings",
    response_class=StreamingResponse,
    responses={
        200: {
            "model": MemoryVector,
            "content": {NDJSON_TYPE: {"schema": {"type": "string"}}},
            "description": "One vector a line",
        },
        **errors("not_found"),
    },
)
async def embeddings(
    service: ServiceOf,
    caller: Recaller,
    scope: Annotated[Scope | None, Query(description="the memory space; else the caller's")] = None,
) -> Response:
    """Export the vectors of a scope's active memories, one per line."""
    request = Embeddings(caller.scope(scope))
    first = await service.execute(request, CallerAccess(caller))  # its errors have a status
    return StreamingResponse(_vectors(service, request, first), media_type=NDJSON_TYPE)


async def _vectors(service: Service, request: Embeddings, page: Json) -> AsyncIterator[str]:
    while True:
        for row in page["embeddings"]:
            yield json.dumps(row) + "\n"
        if page["next_cursor"] is None:
            return
        request = replace(request, cursor=page["next_cursor"])
        page = await service.queries.answer(request)


# ---- events ----
events_api: APIRouter = router("events")

NAMES: Final = {
    "created": "created",
    "modified": "changed",
    "recovered": "changed",
    "deleted": "forgotten",
    "purged": "forgotten",
    "session-ended": "session_ended",
}
"""The audit events that change the results of a recall or end a session, with their names here."""
LOOK_SECONDS: Final = 1.0
"""Maximum wait of a stream before it checks whether it may continue."""
SILENT_SECONDS: Final = 15.0
"""Interval without events after which a comment is sent, so that clients keep the connection."""
SHARE_OF_TIME: Final = 10
"""A stream pauses this many times as long as a status took."""
READ_RECORDS: Final = 500
KEPT_EVENTS: Final = 32
STREAM_TYPE: Final = "text/event-stream"
SSE_EVENT: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string"},
        "data": {"type": "string"},
    },
    "required": ["event", "data"],
}
"""One event of a stream; `data` is JSON."""


@events_api.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {STREAM_TYPE: {"schema": SSE_EVENT}},
            "description": "`created`, `changed`, `forgotten` and `session_ended`, as they happen",
        },
        **errors("not_found"),
    },
)
async def events(
    service: ServiceOf,
    caller: Recaller,
    scope: Annotated[Scope | None, Query(description="the memory space; else the caller's")] = None,
    last_event_id: Annotated[
        str | None, Header(pattern=r"^[0-9]{1,18}$", description="go on after this event")
    ] = None,
) -> Response:
    """Follow what happens in a scope: from now on, or after `Last-Event-ID` without a gap."""
    scope = caller.scope(scope)
    partition = partition_for(scope, service.log.partitions(MEMORY_HISTORY.name))
    end = await asyncio.to_thread(service.log.end_offset, MEMORY_HISTORY.name, partition)
    start = end if last_event_id is None else int(last_event_id) + 1
    if start > end:
        raise Problem("invalid", f"there was no event {last_event_id} in this scope")
    position = Position("events", MEMORY_HISTORY.name, partition, start)
    return _sent(service, caller, _stream(service, caller, scope, position))


@events_api.get(
    "/pipeline/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {STREAM_TYPE: {"schema": SSE_EVENT}},
            "description": "`status` with the answer of `/api/pipeline/status`, after changes",
        }
    },
)
async def pipeline_events(service: ServiceOf, caller: Administrator) -> Response:
    """Follow the state of the pipeline: its status now, and again after records were appended."""
    return _sent(service, caller, _statuses(service, caller))


def _sent(service: Service, caller: Caller, events: AsyncIterator[str | None]) -> Response:
    """Sends the events of a stream, and a comment where there was none, None, for a while."""

    async def lines() -> AsyncIterator[str]:
        sent_at = time.monotonic()
        async for event in events:
            if event is not None or time.monotonic() - sent_at >= SILENT_SECONDS:
                yield ": nothing happened\n\n" if event is None else event
                sent_at = time.monotonic()

    return StreamingResponse(
        service.streams.counted(caller.id, lines()),
        media_type=STREAM_TYPE,
        headers={"Cache-Control": "no-store"},
    )


async def _statuses(service: Service, caller: Caller) -> AsyncIterator[str | None]:
    shown: int | None = None
    settled = False
    access = CallerAccess(caller)
    while not service.stopping.is_set() and service.tokens.still(caller):
        appended = await asyncio.to_thread(_appended, service.log)
        pause = LOOK_SECONDS
        if appended != shown or not settled:
            began = time.monotonic()
            try:
                status = await service.execute(Status(), access)
            except RequestError:
                status = None  # a worker is away; the stream goes on when it is back
            if status is not None:
                settled = all(stage["lag"] == 0 for stage in status["stages"])
                shown = appended
                yield f"event: status\ndata: {json.dumps(status)}\n\n"
            # The balance counts all turns: following takes a small part of the machine.
            pause = max(pause, SHARE_OF_TIME * (time.monotonic() - began))
        yield None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(service.stopping.wait(), pause)


def _appended(log: LogReader) -> int:
    """Changes whenever something is appended to the log."""
    return sum(
        log.end_offset(topic.name, partition)
        for topic in ALL_TOPICS
        for partition in range(log.partitions(topic.name))
    )


async def _stream(
    service: Service, caller: Caller, scope: str, position: Position
) -> AsyncIterator[str | None]:
    # The start position, for a client that loses the connection before the first event.
    begin = f"id: {position.next_offset - 1}\n" if position.next_offset else ""
    yield f": follows\n{begin}\n"
    while not service.stopping.is_set() and service.tokens.still(caller):
        if not await service.wait(position, LOOK_SECONDS):
            yield None
            continue
        for offset, event in await asyncio.to_thread(_read, service.log, position, scope):
            if event is not None:
                yield event
            position = Position("events", position.topic, position.partition, offset + 1)


def _read(log: LogReader, position: Position, scope: str) -> list[tuple[int, str | None]]:
    """The next records from a position: the offset of each, and its event."""
    records = log.read(position.topic, position.partition, position.next_offset, READ_RECORDS)
    return [
        (record.offset, _as_event(record.offset, record.value, record.timestamp, scope))
        for record in records
    ]


@lru_cache(maxsize=KEPT_EVENTS)  # all followers of a scope get the same events at the same time
def _as_event(offset: int, value: bytes | None, timestamp: datetime, scope: str) -> str | None:
    """The record as an event; None if it is of another scope or changes nothing."""
    if value is None:
        return None
    message = decode(value, MEMORY_HISTORY, timestamp)
    body = message.body
    if message.scope != scope or not isinstance(body, HistoryEvent) or body.event not in NAMES:
        return None
    data: dict[str, object] = {
        "event": TOLD.get(body.event, body.event),
        "memory_id": body.memory_id,
        "content": body.new_content,
        "changed_by": body.changed_by,
        "actor_type": body.actor_type,
        "reason": body.reason,
        "session_id": body.session_id,
        "at": body.created_at.isoformat(),
    }
    if body.event == "session-ended":
        data["session"] = body.metadata
    return f"id: {offset}\nevent: {NAMES[body.event]}\ndata: {json.dumps(data)}\n\n"


# ---- SQL ----
sql_api: APIRouter = router("sql")


class SqlBody(Strict):
    """One read-only statement. It sees all scopes."""

    query: Annotated[str, Field(min_length=1, max_length=100_000, pattern=r"\S")]
    partition: int | None = Field(default=None, ge=0, le=1023)


class SqlQuery(SqlBody):
    """The same as the parameters of a URL."""

    format: Literal["json", "csv", "arrow", "parquet"] | None = None


Accept = Annotated[str, Header()]
_BY_TYPE: Final = {kind.partition(";")[0]: name for name, (kind, _) in FORMS.items()}


_IN_ALL_FORMS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "content": {
            kind.partition(";")[0]: {"schema": {"type": "string", "format": "binary"}}
            for name, (kind, _) in FORMS.items()
            if name != "json"
        }
    },
    **errors("malformed", "not_acceptable"),
}


@sql_api.post(
    "/sql",
    response_model=answers.SqlRows,
    responses={**_IN_ALL_FORMS, **errors(*WITH_BODY)},
)
async def sql(
    service: ServiceOf, caller: Analyst, body: SqlBody, accept: Accept = JSON_TYPE
) -> Response:
    """Run one SELECT over the views of all scopes; returns JSON, CSV, Parquet or an Arrow
    stream."""
    return await _answer(service, caller, body, _form(accept))


@sql_api.get("/sql", response_model=answers.SqlRows, responses=_IN_ALL_FORMS)
async def sql_link(
    service: ServiceOf,
    caller: Analyst,
    asked: Annotated[SqlQuery, Query()],
    accept: Accept = JSON_TYPE,
) -> Response:
    """Run one SELECT, as a link: `format` names what the header `Accept` otherwise does."""
    return await _answer(service, caller, asked, asked.format or _form(accept))


async def _answer(service: Service, caller: Caller, asked: SqlBody, form: str) -> Response:
    kind, write = (JSON_TYPE, _json) if form == "json" else FORMS[form]
    table = await run_query(service, caller, asked.query, asked.partition)
    return Response(await asyncio.to_thread(write, table), media_type=kind)


async def run_query(
    service: Service, caller: Caller, query: str, partition: int | None = None
) -> pa.Table:
    """The result of a read-only statement. Raises RequestError."""
    who = "" if caller is LOCAL else caller.id
    seconds = service.settings.http.sql_seconds
    return await service.queries.table(SqlRequest(query, partition, seconds, caller=who))


def _form(accept: str) -> str:
    """The requested format; JSON if any is accepted. Raises Problem for an unsupported format."""
    for each in accept.split(","):
        kind = each.partition(";")[0].strip().lower()
        if kind in (*_BY_TYPE, "application/*", "*/*", ""):
            return _BY_TYPE.get(kind, "json")
    raise Problem("not_acceptable", f"ask for {', '.join(_BY_TYPE)}")


def _json(table: pa.Table) -> bytes:
    columns = [{"name": field.name, "type": str(field.type)} for field in table.schema]
    values = [column.to_pylist() for column in table.columns]
    rows = [[json_value(value) for value in row] for row in zip(*values, strict=True)]
    return json.dumps({"columns": columns, "rows": rows}, ensure_ascii=False).encode()
