"""Documents: adding, listing, showing and deleting them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse

from palimpsest.ops.documents.adding import text_document, url_document
from palimpsest.ops.http import document_bodies as bodies
from palimpsest.ops.http.answers import Accepted
from palimpsest.ops.http.callers import Caller
from palimpsest.ops.http.commands import DeskOf
from palimpsest.ops.http.memory_routes import named_scope
from palimpsest.ops.http.routing import WITH_BODY, errors, router
from palimpsest.ops.http.service import ID_CHARACTERS, Recaller, Service, ServiceOf, permitted
from palimpsest.ops.queries.document_errors import no_document
from palimpsest.ops.queries.requests import (
    DocumentChunksRequest,
    DocumentRequest,
    DocumentsRequest,
    JsonObject,
)
from palimpsest.schemas.document_commands import DeleteDocumentCommand

PLACE: Final = "/api/documents"
"""Where a body may be as large as a document."""

routes: APIRouter = router("documents")

Rememberer = Annotated[Caller, Depends(permitted("remember"))]
Forgetter = Annotated[Caller, Depends(permitted("forget"))]
WRITTEN: Final[dict[int | str, dict[str, Any]]] = {
    202: {"model": Accepted, "description": "Not carried out yet"},
    **errors("not_found", "conflict"),
}


@routes.post(
    "/documents", response_model=bodies.AddedDocument, responses={**WRITTEN, **errors(*WITH_BODY)}
)
async def add(desk: DeskOf, caller: Rememberer, body: bodies.DocumentBody) -> Response:
    """Add a document: a text, or a URL that is then fetched. Its chunks are memories soon after,
    as its `status` tells. The same URL or text again is the same document: `deduped`."""
    scope = caller.scope(body.scope)
    settings = desk.service.settings.documents
    if body.url is not None:
        command = url_document(body.url, body.title, settings)
    else:
        text = (body.text or "").encode()
        command = await asyncio.to_thread(
            text_document, text, settings, body.name, body.title, body.content_type, "utf-8"
        )
    return await desk.whole(caller, scope, command)


@routes.get("/documents", response_model=bodies.Documents, responses=errors("not_found"))
async def documents(
    service: ServiceOf, caller: Recaller, asked: Annotated[bodies.DocumentsParameters, Query()]
) -> Response:
    """List documents, newest first: of a scope, or of all for those who see all."""
    scope = named_scope(caller, asked.scope)
    request = DocumentsRequest(scope, asked.status, asked.limit, asked.cursor)
    return JSONResponse(await service.ask(request))


@routes.get("/documents/{id}", response_model=bodies.Document, responses=errors("not_found"))
async def document(service: ServiceOf, caller: Recaller, id: str) -> Response:  # noqa: A002
    """One document with how far it has come, also a deleted one."""
    return JSONResponse(await _known(service, caller, id))


@routes.get(
    "/documents/{id}/chunks", response_model=bodies.DocumentChunks, responses=errors("not_found")
)
async def chunks(
    service: ServiceOf,
    caller: Recaller,
    id: str,  # noqa: A002
    asked: Annotated[bodies.ChunksParameters, Query()],
) -> Response:
    """The chunks of a document in order, each with the id of its memory, also forgotten ones."""
    await _known(service, caller, id)
    after = -1 if asked.cursor is None else asked.cursor
    return JSONResponse(await service.ask(DocumentChunksRequest(id, after, asked.limit)))


@routes.delete(
    "/documents/{id}",
    response_model=bodies.DeletedDocument,
    responses={**WRITTEN, **errors("rate_limited")},
)
async def delete(
    desk: DeskOf,
    caller: Forgetter,
    id: str,  # noqa: A002
    asked: Annotated[bodies.DeleteParameters, Query()],
) -> Response:
    """Forget a document with its chunks, but those that are pinned or confirmed."""
    desk.service.rates.count(caller.id, "delete")
    known = await _known(desk.service, caller, id)
    order = DeleteDocumentCommand(document_id=id, reason=asked.reason)
    return await desk.whole(caller, str(known["scope"]), order)


async def _known(service: Service, caller: Caller, document_id: str) -> JsonObject:
    """A document of the caller. Raises NotFoundError, also for another's."""
    if len(document_id) != ID_CHARACTERS:
        raise no_document(document_id)
    found = await service.ask(DocumentRequest(document_id))
    if not caller.sees(str(found["scope"])):
        raise no_document(document_id)
    return found
