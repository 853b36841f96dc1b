"""Reading memories: by question, by id, in lists."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, cast

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse, StreamingResponse

from palimpsest.ops.http import answers, bodies
from palimpsest.ops.http.callers import Caller
from palimpsest.ops.http.problems import Problem
from palimpsest.ops.http.routing import NDJSON_TYPE, WITH_BODY, errors, router
from palimpsest.ops.http.service import Recaller, Service, ServiceOf
from palimpsest.ops.queries.requests import (
    ContextRequest,
    EmbeddingsRequest,
    ExplainRequest,
    GetRequest,
    HistoryRequest,
    JsonObject,
    ListRequest,
    SearchRequest,
)

routes: APIRouter = router("memories")


@routes.post(
    "/memory/recall",
    response_model=answers.Recalled,
    responses=errors(*WITH_BODY, "not_found"),
)
async def recall(service: ServiceOf, caller: Recaller, body: bodies.RecallBody) -> Response:
    """Find memories by meaning and by words, best first, with the parts of each score."""
    return JSONResponse(await service.ask(body.request(caller.scope(body.scope))))


@routes.post(
    "/memory/context",
    response_model=answers.ContextBlock,
    responses=errors(*WITH_BODY, "not_found"),
)
async def context(service: ServiceOf, caller: Recaller, body: bodies.ContextBody) -> Response:
    """Collect what is known about a question as Markdown for a model's prompt."""
    request = ContextRequest(
        caller.scope(body.scope),
        body.query,
        body.budget,
        body.session,
        body.asked_at,
        body.min_score,
    )
    return JSONResponse(await service.ask(request))


@routes.get("/memory/search", response_model=answers.Found, responses=errors("not_found"))
async def search(
    service: ServiceOf, caller: Recaller, asked: Annotated[bodies.SearchParameters, Query()]
) -> Response:
    """Find memories by their words alone."""
    request = SearchRequest(caller.scope(asked.scope), asked.q, asked.limit, asked.type, asked.role)
    return JSONResponse(await service.ask(request))


@routes.get("/memories", response_model=answers.Memories, responses=errors("not_found"))
async def memories(
    service: ServiceOf, caller: Recaller, asked: Annotated[bodies.ListParameters, Query()]
) -> Response:
    """List memories, newest first: of a scope, or of all for those who see all."""
    request = ListRequest(
        named_scope(caller, asked.scope),
        asked.type,
        asked.session,
        asked.who,
        asked.deleted,
        asked.limit,
        asked.cursor,
        asked.id,
        asked.category,
        asked.temporal,
        asked.valid_at,
        asked.role,
    )
    return JSONResponse(await service.ask(request))


def named_scope(caller: Caller, scope: str | None) -> str | None:
    """The scope that is listed; None for all. Raises Problem where the caller has to name one."""
    if scope is None and caller.sees_all:
        return None
    if scope is None and (len(caller.scopes) > 1 or caller.scopes[0].endswith("*")):
        raise Problem("invalid", f"name a scope; this token has {', '.join(caller.scopes)}")
    return caller.scope(scope)


@routes.get("/memory/{id}", response_model=answers.Memory, responses=errors("not_found"))
async def memory(service: ServiceOf, caller: Recaller, id: str) -> Response:  # noqa: A002
    """One memory with all its fields, also a forgotten one."""
    await service.scope_of(id, caller)
    return JSONResponse(await service.ask(GetRequest(id)))


@routes.get("/memory/{id}/history", response_model=answers.History, responses=errors("not_found"))
async def history(
    service: ServiceOf,
    caller: Recaller,
    id: str,  # noqa: A002
    asked: Annotated[bodies.HistoryParameters, Query()],
) -> Response:
    """Everything that happened to a memory, in order."""
    await service.scope_of(id, caller)
    return JSONResponse(await service.ask(HistoryRequest(id, asked.limit)))


@routes.get(
    "/memory/{id}/explain", response_model=answers.Provenance, responses=errors("not_found")
)
async def explain(service: ServiceOf, caller: Recaller, id: str) -> Response:  # noqa: A002
    """Where a memory came from, what it was before, what was decided and why."""
    await service.scope_of(id, caller)
    return JSONResponse(await service.ask(ExplainRequest(id)))


@routes.get(
    "/embeddings",
    response_class=StreamingResponse,
    responses={
        200: {
            "model": answers.Vector,
            "content": {NDJSON_TYPE: {"schema": {"type": "string"}}},
            "description": "One vector a line",
        },
        **errors("not_found"),
    },
)
async def embeddings(
    service: ServiceOf, caller: Recaller, asked: Annotated[bodies.ScopeParameters, Query()]
) -> Response:
    """Export the vectors of a scope's active memories, a line each."""
    scope = caller.scope(asked.scope)
    first = await service.ask(EmbeddingsRequest(scope))  # what is wrong is told as a status
    return StreamingResponse(_vectors(service, scope, first), media_type=NDJSON_TYPE)


async def _vectors(service: Service, scope: str, page: JsonObject) -> AsyncIterator[str]:
    while True:
        for row in cast("list[JsonObject]", page["embeddings"]):
            yield json.dumps(row) + "\n"
        if page["next"] is None:
            return
        page = await service.ask(EmbeddingsRequest(scope, str(page["next"])))
