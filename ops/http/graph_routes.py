"""Reading the graph: who and what is remembered."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from palimpsest.ops.http import answers, bodies
from palimpsest.ops.http.routing import errors, router
from palimpsest.ops.http.service import Recaller, ServiceOf
from palimpsest.ops.queries.requests import EntitiesRequest, EntityRequest

routes: APIRouter = router("graph")


@routes.get("/entities", response_model=answers.Entities, responses=errors("not_found"))
async def entities(
    service: ServiceOf, caller: Recaller, asked: Annotated[bodies.EntitiesParameters, Query()]
) -> Response:
    """Entities of a scope, the most often told of first."""
    request = EntitiesRequest(caller.scope(asked.scope), asked.q, asked.limit, asked.cursor)
    return JSONResponse(await service.ask(request))


@routes.get(
    "/entities/{name:path}", response_model=answers.EntityInfo, responses=errors("not_found")
)
async def entity(
    service: ServiceOf,
    caller: Recaller,
    name: str,
    asked: Annotated[bodies.EntityParameters, Query()],
) -> Response:
    """One entity by any of its names: relations, attributes, the newest memories."""
    return JSONResponse(
        await service.ask(EntityRequest(caller.scope(asked.scope), name, asked.limit))
    )
