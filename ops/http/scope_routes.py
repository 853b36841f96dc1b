"""A whole scope: as lines that another service takes, and back."""

from __future__ import annotations

import os
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.concurrency import iterate_in_threadpool

from palimpsest.ops.http import answers, bodies
from palimpsest.ops.http.commands import DeskOf
from palimpsest.ops.http.routing import NDJSON_TYPE, errors, media_type, router
from palimpsest.ops.http.service import Administrator, Recaller, ServiceOf
from palimpsest.ops.importing import Importer
from palimpsest.ops.queries.requests import ExportRequest
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
    asked: Annotated[bodies.ExportParameters, Query()],
) -> Response:
    """Export all that a scope remembers, as of one moment."""
    request = ExportRequest(caller.scope(scope), asked.deleted)
    folder = service.settings.data_dir
    service.streams.check(caller.id)
    file = await written(lambda path: service.queries.export_scope(request, path), folder)
    size = os.fstat(file.fileno()).st_size
    # Of known length: an export that was cut off is an error to the one who asked.
    headers = {"Content-Length": str(size), "Cache-Control": "no-store"}
    sent = service.streams.counted(caller.id, iterate_in_threadpool(read_parts(file)))
    return StreamingResponse(sent, media_type=NDJSON_TYPE, headers=headers)


@routes.post(
    "/scopes/{scope:path}/import",
    response_model=answers.Imported,
    responses={
        202: {"model": answers.Imported, "description": "Not all carried out yet"},
        **errors("too_large", "unsupported_media_type", "conflict"),
    },
    openapi_extra=_BODY,
)
async def import_scope(
    desk: DeskOf, caller: Administrator, scope: Scope, request: Request
) -> Response:
    """Take what was exported into a scope, without asking a model anything.

    What is there already stays as it is, so that a file may be sent again. Lines that are not taken
    are told with their number, and the others are taken.
    """
    media_type(request, NDJSON_TYPE)
    importer = Importer(
        desk.commands,
        caller.scope(scope),
        desk.actor(caller),
        desk.seconds,
        desk.service.settings.log.max_record_bytes,
    )
    imported = await importer.take(request.stream())
    return JSONResponse(imported.as_json(), 202 if imported.pending else 200)
