"""Export and import of a whole scope as lines, and export of its vectors."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.concurrency import iterate_in_threadpool

from palimpsest.ops.http import answers
from palimpsest.ops.http.callers import CallerAccess
from palimpsest.ops.http.routing import NDJSON_TYPE, errors, media_type, router
from palimpsest.ops.http.service import (
    ActorHeader,
    Administrator,
    Recaller,
    Service,
    ServiceOf,
    WaitSeconds,
)
from palimpsest.ops.importing import Importer
from palimpsest.ops.operations.memories import Embeddings, MemoryVector
from palimpsest.ops.operations.operation import Json
from palimpsest.ops.requests import ExportRequest
from palimpsest.ops.service.local import read_parts, written
from palimpsest.schemas.envelope import Scope

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
    file = await written(lambda path: service.queries.export_scope(request, path), folder)
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
        **errors("too_large", "unsupported_media_type", "conflict"),
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
